"""`holdfast doctor`: what is wrong is told, for people and for programs, and a healed copy is a new
store.
"""

import os
from pathlib import Path
from typing import Any

import pytest

import goose_stores
import hermes_stores
import holdfast
import item_stores
from commanding import command, on_terminal
from holdfast.doctor.rulebook import rulebook
from holdfast.doctor.rules_page import page
from thorough import few_cases

DOCS = Path(__file__).resolve().parents[2] / "docs"
FIELDS = [
    "rule",
    "session",
    "place",
    "severity",
    "cause",
    "measured",
    "expected",
    "remedy",
    "policy",
]


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    cases = (
        goose_stores.orphan_tool_request,
        goose_stores.token_split_rows,
        goose_stores.metadata_clobbered,
    )
    return goose_stores.built(tmp_path / "sessions.db", *cases)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    return goose_stores.built(tmp_path / "sessions.db", *goose_stores.HEALTHY)


def rules(told: Any) -> list[str]:
    return [finding["rule"] for store in told["stores"] for finding in store["findings"]]


def test_a_healthy_store_is_told_in_one_line_and_exits_with_0(sound: Path) -> None:
    done = command("doctor", sound)
    assert done.code == 0
    assert "goose" in done.out and "No problems found." in done.out


def test_findings_are_told_to_programs_with_all_their_fields(damaged: Path) -> None:
    done = command("doctor", damaged, "--json")
    assert done.code == 1
    assert done.json["schema"] == 1
    [store] = done.json["stores"]
    assert (store["kind"], store["path"], store["sessions"], store["live"]) == (
        "goose",
        str(damaged),
        3,
        False,
    )
    assert [list(finding) for finding in store["findings"]] == [FIELDS] * 3
    found = ["goose/orphan-tool-request", "goose/token-split-rows", "goose/metadata-clobbered"]
    assert sorted(rules(done.json)) == sorted(found)


def test_findings_are_told_to_people_with_a_summary_first(damaged: Path) -> None:
    done = on_terminal("doctor", damaged, columns=100)
    assert done.code == 1
    summary, table = done.out.index("healed"), done.out.index("measured")
    assert summary < table and "\x1b[" in done.out
    for rule in rules(command("doctor", damaged, "--json").json):
        assert rule in done.out


@pytest.mark.slow
def test_stored_text_can_t_steer_the_terminal(tmp_path: Path) -> None:
    """I-20."""
    store = hermes_stores.Book(tmp_path / "state.db")
    hermes_stores.plain(store, "\x1b]52;c;evil\x07")
    hermes_stores.orphan_user(store)
    store.close()
    done = on_terminal("doctor", tmp_path / "state.db", columns=80)
    assert "\x1b]52" not in done.out


def test_only_one_rule_or_one_session_can_be_looked_for(damaged: Path) -> None:
    one = command("doctor", damaged, "--only", "goose/token-*", "--json").json
    assert rules(one) == ["goose/token-split-rows"]
    session = one["stores"][0]["findings"][0]["session"]
    other = command("doctor", damaged, "--session", session, "--json").json
    assert other["stores"][0]["sessions"] == 1 and rules(other) == ["goose/token-split-rows"]


def test_a_misspelt_rule_is_a_mistake_not_good_news(damaged: Path) -> None:
    done = command("doctor", damaged, "--only", "goose/tocen-split-rows")
    assert done.code == 2 and "goose/token-split-rows" in done.err


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 5000, b"SQLite format 3\0" + b"\xff" * 5000, b"{}\n" * 10]
)
def test_what_is_no_store_exits_with_3(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "thing.db").write_bytes(data)
    done = command("doctor", tmp_path / "thing.db", "--json")
    assert done.code == 3 and rules(done.json)
    assert command("doctor", tmp_path / "nothing.db").code == 3


def test_a_folder_means_the_stores_in_it(damaged: Path, tmp_path: Path) -> None:
    goose_stores.built(tmp_path / "deeper.db", goose_stores.one_call)
    (tmp_path / "notes.txt").write_text("nothing")
    told = command("doctor", tmp_path, "--json").json
    assert [Path(store["path"]).name for store in told["stores"]] == ["deeper.db", "sessions.db"]


def test_a_store_that_is_in_use_is_said_to_be_live(sound: Path) -> None:
    import subprocess
    import sys

    holder = (
        "import sys; file = open(sys.argv[1], 'rb'); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(sound)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stdout.readline()
        assert command("doctor", sound, "--json").json["stores"][0]["live"] is True
        process.communicate(b"")


@few_cases(every=4)
@pytest.mark.parametrize("rule", sorted(rulebook()))
def test_every_rule_is_explained(rule: str) -> None:
    done = command("doctor", "--explain", rule)
    assert done.code == 0
    for heading in ("Cause:", "Expected:", "Example:", "Remedy:"):
        assert heading in done.out


def test_the_rules_are_listed_and_the_page_of_them_is_up_to_date() -> None:
    listed = command("doctor", "--explain", "all").out
    assert all(rule in listed for rule in rulebook())
    assert (DOCS / "rules.md").read_text() == "\n".join(page()), "run `./dev rules`"


def test_a_healed_copy_is_a_holdfast_store_with_all_that_was_said(
    damaged: Path, tmp_path: Path
) -> None:
    before = damaged.read_bytes()
    out = tmp_path / "healed.db"
    done = command("doctor", damaged, "--heal", out, "--json")
    assert done.code == 1, "one remedy was not accepted"
    healed = done.json["healed"]
    assert {change["rule"] for change in healed["changes"]} == {
        "goose/orphan-tool-request",
        "goose/token-split-rows",
    }
    assert [finding["rule"] for finding in healed["left"]] == ["goose/metadata-clobbered"]
    assert damaged.read_bytes() == before
    assert os.stat(out).st_mode & 0o777 == 0o600
    assert command("doctor", out).code == 0
    with holdfast.open(out) as store:
        assert len(list(store.sessions())) == 3


@pytest.mark.parametrize("ending", ["", os.sep])
def test_the_path_of_a_healed_file_is_told_as_one(
    damaged: Path, tmp_path: Path, ending: str
) -> None:
    out = tmp_path / "healed.db"
    done = command("doctor", damaged, "--heal", f"{out}{ending}")
    assert out.is_file() and f"the healed copy is at {out}\n" in done.out


def test_what_is_accepted_is_healed_too(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "healed.db"
    done = command("doctor", damaged, "--heal", out, "--accept", "goose/*", "--json")
    assert done.code == 0 and done.json["healed"]["left"] == []


@pytest.mark.parametrize("form", ["holdfast", "goose-json"])
def test_healing_twice_gives_the_same_bytes(damaged: Path, tmp_path: Path, form: str) -> None:
    outs = [tmp_path / "one", tmp_path / "two"]
    for out in outs:
        command("doctor", damaged, "--heal", out, "--as", form)
    one, two = (sorted(path.rglob("*")) if path.is_dir() else [path] for path in outs)
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two] and one


def test_a_copy_as_its_own_kind_has_nothing_left_to_heal(damaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "healed"
    command("doctor", damaged, "--heal", out, "--as", "goose-json", "--accept", "goose/*")
    assert command("doctor", out).code == 0


def test_a_store_is_not_healed_as_another_kind(damaged: Path, tmp_path: Path) -> None:
    done = command("doctor", damaged, "--heal", tmp_path / "out", "--as", "hermes")
    assert done.code == 2 and "goose-json" in done.err
    assert not (tmp_path / "out").exists()


def test_nothing_that_is_there_is_written_over(damaged: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    assert command("doctor", damaged, "--heal", tmp_path / "out").code == 2
    assert (tmp_path / "out").read_text() == "mine"


def test_what_no_reader_knows_is_counted_in_every_report(tmp_path: Path) -> None:
    odd = {"type": "telepathy", "sessionId": item_stores.Claude.name.removesuffix(".jsonl")}
    path = item_stores.made(
        item_stores.Claude, tmp_path, [*item_stores.Claude.records(), *[odd] * 12]
    )
    done = command("doctor", path)
    assert done.code == 0 and "Not examined: 12 lines of type `telepathy`" in done.out
    assert command("doctor", path, "--json").json["stores"][0]["not_examined"] == {"telepathy": 12}
    done = command("doctor", path, "--heal", tmp_path / "healed.db")
    assert "Not examined: 12 lines of type `telepathy`" in done.out
    done = command("import", path, "--into", tmp_path / "agent.db")
    assert "Not examined: 12 lines of type `telepathy`" in done.out + done.err
    told = command("import", path, "--into", tmp_path / "agent.db", "--json").json
    assert told["stores"][0]["not_examined"] == {"telepathy": 12}


def test_a_path_where_there_is_nothing_is_told_as_that(tmp_path: Path) -> None:
    done = command("doctor", tmp_path / "nope")
    assert done.code == 3 and "There is nothing at this path." in done.out
    (tmp_path / "words.txt").write_text("not at all")
    assert "No reader knows what this is." in command("doctor", tmp_path / "words.txt").out


@pytest.mark.parametrize(
    "place", ["postgresql://ann:secret@127.0.0.1/agents", "host=127.0.0.1 password=secret"]
)
def test_the_address_of_a_database_is_pointed_to_the_command_that_checks_it(
    tmp_path: Path, place: str
) -> None:
    for arguments in ((), ("--heal", tmp_path / "healed")):
        done = command("doctor", place, *arguments)
        assert done.code == 2 and "`holdfast store check --store ADDRESS`" in done.err
        assert "secret" not in done.out + done.err and not (tmp_path / "healed").exists()
    assert command("store", "check", "--help").code == 0
