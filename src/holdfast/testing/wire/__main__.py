"""`python -m holdfast.testing.wire BASE --token T --other-token T`: every case, against a server."""

import argparse
import json
import sys

from holdfast.testing.wire.case_file import all_cases
from holdfast.testing.wire.player import Player


def main(arguments: list[str] | None = None) -> int:
    """Plays the cases, tells each, and gives the exit code: 1 if one failed."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.testing.wire",
        description="Plays the cases of the protocol against a server.",
    )
    parser.add_argument("base", metavar="BASE", help="such as http://127.0.0.1:8642")
    parser.add_argument("--token", required=True, help="a token with the scope admin")
    parser.add_argument(
        "--other-token", required=True, help="the same, of another tenant"
    )
    parser.add_argument("--only", default="", help="cases with these words in them")
    parser.add_argument("--json", action="store_true", help="an object for each case")
    given = parser.parse_args(arguments)
    player = Player(given.base, token=given.token, other_token=given.other_token)
    passed = failed = 0
    for case in all_cases():
        if given.only not in case.name:
            continue
        problem = player.play(case)
        failed += problem is not None
        passed += problem is None
        if given.json:
            print(json.dumps({"case": case.name, "problem": problem}), flush=True)
        else:
            print(f"{'ok  ' if problem is None else 'FAIL'}  {case.name}", flush=True)
            if problem is not None:
                print(f"      {problem}", flush=True)
    print(f"{passed} passed, {failed} failed", file=sys.stderr)
    # With `--only` nothing may have been played at all, which proves nothing.
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
