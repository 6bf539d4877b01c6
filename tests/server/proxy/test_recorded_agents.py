"""Claude Code, Codex, goose and Hermes as they were recorded: their requests, played to a store."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast.server.proxy.answers import whole_chunks
from holdfast.server.proxy.marks import marks_of
from holdfast.server.proxy.proxied_sessions import ProxiedSessions
from holdfast.testing.providers import check
from proxied_samples import AGENTS, Sent, answered, sent, whole
from thorough import few_cases

CLAUDE = "claude-code:56ca3f18-3ff4-4294-a49d-92b01b0deaac"
COMPACTED = "claude-code:53ebfadb-b8b5-49ab-9eb4-f4e1e61375c3"
CODEX = "codex:01a1e077-0e36-7ce1-bb15-8ab4e83cfa28"


def _is_tried_again(requests: list[Sent], place: int) -> bool:
    """Whether the same list comes next in this session: the recorded answer was cut."""
    each = requests[place]
    for later in requests[place + 1 :]:
        if later.key == each.key:
            return marks_of(later.request.messages) == marks_of(each.request.messages)
    return False


async def _play(path: Path, sample: str, restart: bool) -> None:
    requests = sent(sample)
    async with holdfast.open_async(path, durability="process") as store:
        sessions = ProxiedSessions(store)
        for place, each in enumerate(requests):
            recording = await sessions.begin(each.headers, each.request)
            body = whole(each.request.dialect, answered(requests, place))
            chunks = whole_chunks(each.request.dialect, body)
            if _is_tried_again(requests, place):
                await recording.push(chunks[:-1] or chunks)
                await recording.fail("it was cut", again=True)
            else:
                await recording.push(chunks)
                await recording.finish()
            if restart:
                await sessions.close()
                sessions = ProxiedSessions(store)
        await sessions.close()


@contextmanager
def played(path: Path, sample: str, *, restart: bool = False) -> Iterator[holdfast.Store]:
    """The store, after an agent's requests; `restart`: with another proxy for each."""
    asyncio.run(_play(path, sample, restart))
    with holdfast.open(path) as store:
        yield store


def texts(store: holdfast.Store, key: str) -> list[str]:
    """The beginnings of what is in a transcript."""
    found = []
    for message in store.session(key, create=False).transcript():
        words = message.text or "calls"
        found.append(f"{message.role[0]} {words.splitlines()[0][:12]}")
    return found


def ends(store: holdfast.Store, key: str) -> list[str | None]:
    return [turn.end for turn in store.session(key, create=False).turns()]


def _keys(store: holdfast.Store) -> set[str]:
    return {str(info.key) for info in store.sessions()}


@few_cases(every=3)
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("sample", AGENTS)
def test_nothing_is_stored_twice_and_every_context_is_valid(
    tmp_path: Path, sample: str, restart: bool
) -> None:
    with played(tmp_path / "a.db", sample, restart=restart) as store:
        for info in store.sessions():
            session = store.get(info.id)
            for format in ("openai.chat", "openai.responses", "anthropic"):
                assert check(format, session.context(format)) == []
            if "/" in str(info.key):
                continue
            said = []
            for message in session.transcript():
                if message.role in ("user", "tool") and message.text:
                    said.append((message.text, message.id))
            words = [text for text, _ in said if "environment_context" not in text]
            # Codex sends its summary twice, after two compactions, with another id each.
            words = [text for text in words if "Another language model" not in text]
            assert len(set(words)) == len(words), info.key


def test_titles_are_beside_the_session(tmp_path: Path) -> None:
    with played(tmp_path / "a.db", AGENTS[0]) as store:
        [key] = [key for key in _keys(store) if "/" not in key]
        assert _keys(store) == {key, f"{key}/title"}
        assert ends(store, key) == ["completed", "completed"]
        assert texts(store, key) == [
            "u <system-remi",
            "s # Environmen",
            "a Fixed it.",
            "u And again. D",
            "a calls",
            "t a",
            "a Answer 4.",
        ]


def test_a_sub_agent_has_a_session_of_its_own_and_retries_are_one_turn(tmp_path: Path) -> None:
    with played(tmp_path / "a.db", AGENTS[1]) as store:
        [agent] = [key for key in _keys(store) if key.startswith(f"{CLAUDE}/")]
        assert "/agent:" in agent and ends(store, agent) == ["completed"]
        # One prompt that is answered, one with a tool, one that is tried three times.
        assert ends(store, CLAUDE) == ["completed"] * 3
        session = store.session(CLAUDE)
        states = [(each.role, each.state) for each in session.transcript()][-4:]
        assert states == [
            ("user", "complete"),
            ("assistant", "partial"),
            ("assistant", "partial"),
            ("assistant", "complete"),
        ]
        # What was cut is in the transcript, and not in the model's view.
        assert [each["role"] for each in session.context("anthropic")][-2:] == ["user", "assistant"]


def test_a_compaction_is_beside_the_session_and_a_new_view_of_it(tmp_path: Path) -> None:
    with played(tmp_path / "a.db", AGENTS[1]) as store:
        assert ends(store, COMPACTED) == ["completed"] * 3
        aside = texts(store, f"{COMPACTED}/compaction")
        assert [each[0] for each in aside] == list("ssuassua")
        context = store.session(COMPACTED).context("openai.chat")
        assert "This session is being continued" in context[1]["content"]
        assert texts(store, COMPACTED)[2] == "a A1."


def test_a_turn_that_codex_names_goes_on_over_a_compaction(tmp_path: Path) -> None:
    with played(tmp_path / "a.db", AGENTS[2]) as store:
        assert ends(store, CODEX) == ["completed"] * 6
        assert ends(store, f"{CODEX}/compaction") == ["completed"] * 2


def test_hermes_who_names_nothing_has_two_sessions(tmp_path: Path) -> None:
    with played(tmp_path / "a.db", AGENTS[4]) as store:
        found = sorted(len(ends(store, key)) for key in _keys(store))
        assert found == [1, 3]
