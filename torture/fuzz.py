"""`./dev fuzz`: requests that schemathesis makes up from the OpenAPI document, against a real server.

Whatever is asked, the answer is one that the document tells of, and never a defect. Three rounds: on a
session and a turn that are there, with everything that leaves them there and has an end; on the same with what ends
them, and streams that have an end then; and on ids that are made up. None of the last two starts turns, which wait
for one another.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_schema_conformance"
)
WAITING = r"^/v1/(turns|sessions/\{session\}/(turns|compact))$"
ENDING = r"(/(end|stop|erase|reset|retract|turns|compact|stream)|/ag-ui/\{session\})$"


def main(arguments: list[str]) -> int:
    examples = arguments[0] if arguments else "20"
    with tempfile.TemporaryDirectory() as folder:
        served = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "serve", f"{folder}/s.db"]
            + ["--port", "0", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert served.stdout is not None
            told = json.loads(served.stdout.readline())
            start = {"key": "fuzzed", "message": "Hello.", "lease_s": 3600}
            turn = _post(told, "/v1/turns", start)
            stream = _post(told, f"/v1/turns/{turn['id']}/streams", {})
            known = {"turn": turn["id"], "session": turn["session_id"], **stream}
            known["message"] = known.pop("message_id")
            lines = [f'"path.{name}" = "{text}"' for name, text in known.items()]
            # Not in the folder that it runs in: there it would be found by itself.
            config = Path(folder, "known", "schemathesis.toml")
            config.parent.mkdir()
            config.write_text("\n".join(["[parameters]", *lines, ""]))
            there = ("--config-file", str(config))
            rounds = [_fuzz(told, folder, examples, ENDING, *there)]
            for last, body in (("stop", {}), ("end", {"reason": "enough"})):
                _post(told, f"/v1/sessions/{turn['session_id']}/{last}", body)
            rounds.append(_fuzz(told, folder, examples, WAITING, *there))
            rounds.append(_fuzz(told, folder, examples, WAITING))
            return max(rounds)
        finally:
            served.kill()
            served.wait()


def _post(told: dict[str, str], path: str, body: object) -> dict[str, str]:
    request = urllib.request.Request(
        told["address"] + path,
        json.dumps(body).encode(),
        {"Authorization": f"Bearer {told['token']}"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def _fuzz(told: dict[str, str], folder: str, examples: str, excluded: str, *options: str) -> int:
    program = str(Path(sys.executable).with_name("schemathesis"))
    words = [program, *options, "run", f"{told['address']}/openapi.json"]
    words += ["-H", f"Authorization: Bearer {told['token']}", "--checks", CHECKS]
    words += ["--phases", "fuzzing", "-n", examples, "--request-timeout", "10"]
    words += ["--exclude-path-regex", excluded, "--continue-on-failure"]
    # There: it leaves a folder of its own behind.
    return subprocess.run(words, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
