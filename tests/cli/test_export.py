"""`holdfast sessions export`: nothing is lost for programs, nothing is run for people."""

import json
import re
import stat

import msgspec
import pytest

import holdfast
from commanding import command
from exhibits import HOSTILE
from looking import raw_entries


class Line(msgspec.Struct):
    """An entry as it is exported, its note and body left as bytes."""

    seq: int
    kind: str
    turn: int | None
    id: str
    at: int
    note: msgspec.Raw
    body: msgspec.Raw


def test_the_log_is_exported_byte_for_byte(world):
    """I-14."""
    done = command("sessions", "export", world.table, "--store", world.path)
    header, *lines = done.out.split("\n")[:-1]
    assert json.loads(header)["holdfast"] == 1
    assert json.loads(header)["session"]["id"] == world.table
    with holdfast.open(world.path) as store:
        entries = raw_entries(store, world.table)
    assert len(lines) == len(entries)
    for line, entry in zip(lines, entries, strict=True):
        told = msgspec.json.decode(line.encode(), type=Line)
        assert (told.seq, told.kind, told.turn, bytes.fromhex(told.id), told.at) == (
            entry.seq, entry.kind, entry.turn, entry.id, entry.at
        )  # fmt: skip
        assert bytes(told.note) == (entry.note or b"null")
        assert bytes(told.body) == (entry.body or b"null")


def test_a_fork_is_exported_with_the_past_that_it_shares(world):
    seqs = [
        line["seq"]
        for line in command("sessions", "export", world.fork, "--store", world.path).lines[1:]
    ]
    assert seqs == list(range(1, len(seqs) + 1))
    assert len(seqs) > 12


REQUESTS = [("openai.chat", "messages"), ("openai.responses", "input"), ("anthropic", "messages")]


@pytest.mark.parametrize("format, name", REQUESTS)
def test_a_context_is_exported_in_the_shape_of_a_request(world, format, name):
    told = command("sessions", "export", world.table, "--as", format, "--store", world.path).json
    with holdfast.open(world.path) as store:
        context = store.get(world.table).context(format)
        assert told[name] == list(context)
        assert told.get("system") == (context.instructions if format == "anthropic" else None)


def test_a_document_holds_what_was_said_and_none_of_it_as_markup(tmp_path):
    """I-20: every word of a message stands inside a fence that it can't close."""
    nasty = [
        "<script>alert(1)</script>",
        "```\n# heading\n```",
        "`" * 8,
        "[x](javascript:alert(1))",
        HOSTILE,
        "~~~\n",
    ]
    path = tmp_path / "n.db"
    with holdfast.open(path, durability="process") as store:
        session = store.session("<b>`key`</b>\n# no heading")
        session.instructions("<i>be brief</i>")
        for text in nasty:
            with session.turn(text) as turn:
                turn.call("run", {"code": text}, call_id="c")
                turn.result("c", text)
        session.compact("<u>summary</u>", keep_turns=0)
    out = command("sessions", "export", "@latest", "--as", "markdown", "--store", path).out
    outside, fences = _outside_fences(out)
    assert fences >= 3 * len(nasty)
    for word in ("script", "heading\n", "javascript", "~~~", "\x1b", "<i>", "<u>"):
        assert word not in re.sub(r"`+ ?<b>.*", "", outside)
    assert "<script>alert(1)</script>" in out


def _outside_fences(text: str) -> tuple[str, int]:
    """What a reader of Markdown would take for markup, by CommonMark's rule for fences; and how
    many of those there are.
    """
    left, fence, count = [], None, 0
    for line in text.split("\n"):
        ticks = re.match(r"`{3,}", line)
        if fence is None and ticks:
            fence, count = ticks[0], count + 1
        elif (
            fence is not None
            and ticks
            and len(ticks[0]) >= len(fence)
            and not line.strip("`").strip()
        ):
            fence = None
        elif fence is None:
            left.append(line)
    assert fence is None
    return "\n".join(left), count


def test_a_document_tells_turns_tools_and_cuts(world):
    out = command("sessions", "export", world.table, "--as", "markdown", "--store", world.path).out
    assert re.search(
        r"^## Turn 2\n\n20.*, failed: `RuntimeError: the provider went away`$", out, re.M
    )
    assert re.search(r"^### \d+ assistant · cut off: the user saw no more of it$", out, re.M)
    assert "**Call, waiting for approval**" in out
    assert "## Inbox" in out
    long = command("sessions", "export", world.long, "--as", "markdown", "--store", world.path).out
    assert "summary of 12 messages" in long


def test_a_file_is_new_whole_and_its_owners_alone(world, tmp_path):
    target = tmp_path / "out.jsonl"
    done = command("sessions", "export", world.table, "--store", world.path, "--out", target)
    assert (done.code, done.out) == (0, "")
    assert (
        target.read_text() == command("sessions", "export", world.table, "--store", world.path).out
    )
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    again = command("sessions", "export", world.long, "--store", world.path, "--out", target)
    assert again.code == 2
    assert target.read_bytes() == before


def test_what_could_not_be_written_whole_is_not_left_behind(world, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.Session.entries", lambda *_: (_ for _ in [1 / 0]))
    assert (
        command(
            "sessions", "export", world.table, "--store", world.path, "--out", tmp_path / "x"
        ).code
        == 70
    )
    assert not (tmp_path / "x").exists()


def test_json_is_what_every_export_prints_when_it_is_asked_for(world, tmp_path):
    told = command(
        "sessions", "export", world.table, "--as", "markdown", "--json", "--store", world.path
    ).json
    assert told["markdown"].startswith("# Session")
    target = tmp_path / "out.md"
    told = command(
        "sessions", "export", world.table, "--json", "--store", world.path, "--out", target
    ).json
    assert told == {"out": str(target), "bytes": target.stat().st_size, "session_id": world.table}
