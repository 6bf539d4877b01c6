"""Laws of searching: what was said is found, as of this moment, by whoever may see it (I-17, I-19).

The engine is opened with a `words_of` that reads messages, such as
`holdfast.runtime.searchable_text.words_of`. Here the times of messages grow as they arrive:
which of two is newer when clocks step back is the engine's own affair.
"""

import itertools
from typing import Any

from holdfast.domain.entry import Draft, noted
from holdfast.domain.message import MessageNote, freeze
from holdfast.domain.search.query import SearchScope, asked
from holdfast.engine.protocol import Engine, Opening, Write
from holdfast.testing.conformance.builders import did, mint, named, opened, started
from holdfast.testing.conformance.laws import Laws

LAWS = Laws()

SCRIPTS = [
    "Crème",
    "мир",
    "κόσμος",
    "机器",
    "学习",
    "タワー",
    "서울",
    "สวัสดี",
    "سلام",
    "שלום",
    "हिन्दी",
    "👍🏽",
]
_times = itertools.count(1_000)


def said(text: str, *, role: str = "user", at: int | None = None) -> Draft:
    """A message on its way, of this time or of the next one."""
    note = noted(MessageNote(role=role))  # type: ignore[arg-type]
    body = freeze({"role": role, "content": text})
    return Draft(
        "message", None, mint(), next(_times) if at is None else at, note, body
    )


def say(engine: Engine, session: str, *texts: str, role: str = "user") -> None:
    did(engine, Write(session, drafts=tuple(said(text, role=role) for text in texts)))


def look(
    engine: Engine, text: str, *, tenant: str = "t", limit: int = 1000, **filters: Any
) -> list[str]:
    """The texts that answer, newest first."""
    found = engine.search(SearchScope(tenant, asked(text), **filters), limit=limit)
    return [one.words.text for one in found]


def matching(
    engine: Engine, text: str, *, limit: int = 9, since: int | None = None
) -> list[str]:
    """The sessions that have an answer, the one with the newest first."""
    return engine.matching(SearchScope("t", asked(text), since=since), limit=limit)


def erased(engine: Engine, session: str) -> None:
    """A session is erased, as the runtime does it."""
    audit = (Draft("erased", None, mint(), next(_times), b"{}"),)
    notes = tuple((entry.seq, b"") for entry in engine.entries(session))
    did(engine, Write(session, drafts=audit, close=True, ended_too=True, erase=notes))


@LAWS
def a_message_that_is_blanked_is_found_no_more_and_its_neighbours_are(
    engine: Engine,
) -> None:
    session = opened(engine, 1)
    say(engine, session, "kelp a", "kelp b", "kelp c")
    assert look(engine, "kelp") == ["kelp c", "kelp b", "kelp a"]
    audit = (Draft("blanked", None, mint(), next(_times), b"{}"),)
    blank = ((3, b'{"role":"user","erased":true}'),)
    did(engine, Write(session, drafts=audit, blank=blank))
    assert look(engine, "kelp") == ["kelp c", "kelp a"]
    # Nor by a word that it had alone.
    assert look(engine, "b") == []
    say(engine, session, "kelp d")
    assert look(engine, "kelp") == ["kelp d", "kelp c", "kelp a"]


@LAWS
def a_search_is_complete_as_of_the_call(engine: Engine) -> None:
    session = opened(engine, 1)
    newest_first: list[str] = []
    for number in range(12):
        say(engine, session, f"message {number}")
        newest_first.insert(0, f"message {number}")
        assert look(engine, "message") == newest_first


@LAWS
def the_newest_come_first_over_all_sessions(engine: Engine) -> None:
    one = opened(engine, 1)
    two = opened(engine, 2)
    say(engine, one, "kelp a")
    say(engine, two, "kelp b")
    say(engine, one, "kelp c")
    assert look(engine, "kelp") == ["kelp c", "kelp b", "kelp a"]
    assert look(engine, "kelp", limit=2) == ["kelp c", "kelp b"]
    assert matching(engine, "kelp") == [one, two]
    assert matching(engine, "kelp", limit=1) == [one]
    assert matching(engine, "b") == [two]
    assert matching(engine, "kelp", since=next(_times)) == []


@LAWS
def a_long_history_is_found_page_by_page(engine: Engine) -> None:
    """More than an engine reads at once, of one session and of many."""
    sessions = [opened(engine, number) for number in range(1, 9)]
    texts = [f"kelp {number}" for number in range(400)]
    batch = []
    for session, text in zip(itertools.cycle(sessions), texts[:200], strict=False):
        batch.append((Write(session, drafts=(said(text),)),))
    engine.commit(batch)
    say(engine, sessions[0], *texts[200:])
    assert look(engine, "kelp") == texts[::-1]
    assert look(engine, "kelp 37", limit=3) == ["kelp 379", "kelp 378", "kelp 377"]


@LAWS
def all_words_must_occur_and_quoted_ones_in_a_row(engine: Engine) -> None:
    session = opened(engine, 1)
    say(
        engine, session, "the giant kelp forest", "kelp: a giant?", "giants and forests"
    )
    assert look(engine, "kelp giant") == ["kelp: a giant?", "the giant kelp forest"]
    assert look(engine, '"giant kelp"') == ["the giant kelp forest"]
    assert matching(engine, '"kelp giant"') == []
    assert matching(engine, '"giant kelp"') == [session]
    assert look(engine, "giant fo") == ["the giant kelp forest"]
    assert look(engine, "fo") == ["giants and forests", "the giant kelp forest"]
    # In quotes a word is whole.
    assert look(engine, '"fo"') == []


@LAWS
def words_of_any_script_are_found(engine: Engine) -> None:
    session = opened(engine, 1)
    say(engine, session, *SCRIPTS, "机器学习 и мир")
    for word in SCRIPTS:
        assert word in look(engine, f'"{word}"'), word
    assert look(engine, "学习 мир") == ["机器学习 и мир"]
    # Neither case nor accents matter.
    assert look(engine, "CREME") == ["Crème"]


@LAWS
def no_question_is_an_error(engine: Engine) -> None:
    say(engine, opened(engine, 1), "AND OR NOT x", "a:b & c | !d <-> 'e' \\ f*")
    odd = (
        "",
        " ",
        "!?",
        '"',
        "'",
        "\\",
        "a:*",
        ":*",
        "& | ! <->",
        "(",
        "a & ",
        "NOT x",
        "\0",
        "\ud800",
        "x'" * 400,
    )
    for question in odd:
        look(engine, question)
        look(engine, f'"{question}')
        matching(engine, question)
    assert look(engine, "NOT x") == ["AND OR NOT x"]
    assert look(engine, "b c d e f") == ["a:b & c | !d <-> 'e' \\ f*"]


@LAWS
def tenants_find_only_their_own(engine: Engine) -> None:
    """I-19."""
    say(engine, opened(engine, 1, tenant="red"), "kelp of red")
    blue = opened(engine, 2, tenant="blue")
    say(engine, blue, "kelp of blue")
    assert look(engine, "kelp", tenant="red") == ["kelp of red"]
    assert look(engine, "kelp", tenant="blue") == ["kelp of blue"]
    assert look(engine, "kelp", tenant="red", session=blue) == []
    assert look(engine, "kelp") == []


@LAWS
def what_is_looked_for_can_be_narrowed(engine: Engine) -> None:
    one = opened(engine, 1, key="k")
    two = opened(engine, 2)
    say(engine, one, "kelp asked")
    say(engine, one, "kelp answered", role="assistant")
    say(engine, two, "kelp elsewhere")
    found = engine.search(SearchScope("t", asked("kelp")))
    elsewhere_at, answered_at, asked_at = (one.entry.at for one in found)
    assert look(engine, "kelp", role="assistant") == ["kelp answered"]
    assert look(engine, "kelp", session=two) == ["kelp elsewhere"]
    assert look(engine, "kelp", session="no such session") == []
    assert look(engine, "kelp", key="k", role="user") == ["kelp asked"]
    # A span holds its beginning and not its end.
    newer = look(engine, "kelp", since=answered_at)
    assert newer == ["kelp elsewhere", "kelp answered"]
    older = look(engine, "kelp", since=asked_at, until=elsewhere_at)
    assert older == ["kelp answered", "kelp asked"]
    # Without words all messages answer that the filters let through.
    assert look(engine, "", key="k") == ["kelp answered", "kelp asked"]
    assert look(engine, "kelp", partial=True) == []
    assert look(engine, "kelp", tool="look") == []


@LAWS
def a_state_that_is_looked_for_is_the_one_of_this_moment(engine: Engine) -> None:
    sessions = [opened(engine, number) for number in range(1, 10)]
    for number, session in enumerate(sessions, 1):
        say(engine, session, f"kelp {number}")
    assert look(engine, "kelp", state="ended") == []
    for session in sessions[:3]:
        did(engine, Write(session, close=True))
    started(engine, sessions[3], at=next(_times))
    ended = look(engine, "kelp", state="ended")
    assert ended == ["kelp 3", "kelp 2", "kelp 1"]
    assert look(engine, "kelp", state="running") == ["kelp 4"]
    still_open = look(engine, "kelp", state="open")
    assert still_open == ["kelp 9", "kelp 8", "kelp 7", "kelp 6", "kelp 5"]


@LAWS
def a_message_that_makes_no_sense_hides_no_other(engine: Engine) -> None:
    """I-18."""
    session = opened(engine, 1)
    for body in (b"kelp {", b"\0 kelp", b"[]"):
        draft = Draft("message", None, mint(), 1, b'{"plain":false}', body)
        did(engine, Write(session, drafts=(draft,)))
    say(engine, session, "kelp")
    assert look(engine, "kelp") == ["kelp"]


@LAWS
def what_was_erased_is_found_no_more(engine: Engine) -> None:
    """I-21: whether it was in an index already or not."""
    kept, found, unread = (opened(engine, number) for number in (1, 2, 3))
    say(engine, kept, "kelp kept")
    say(engine, found, "kelp found")
    assert look(engine, "kelp") == ["kelp found", "kelp kept"]
    # Not searched for yet, so that an index may not have it.
    say(engine, unread, "kelp unread")
    erased(engine, found)
    erased(engine, unread)
    assert look(engine, "kelp") == ["kelp kept"]
    assert matching(engine, "kelp") == [kept]


@LAWS
def a_session_with_a_shared_past_is_searched_for_its_own_words(engine: Engine) -> None:
    """What it shares is the other session's."""
    parent = opened(engine, 1)
    say(engine, parent, "kelp of both")
    fork = named(2)
    opening = Opening("t", None, 1, head=2, fence=0, parent=parent)
    did(engine, Write(fork, drafts=(said("kelp of the fork"),), open=opening))
    assert look(engine, "kelp") == ["kelp of the fork", "kelp of both"]
    assert look(engine, "kelp", session=fork) == ["kelp of the fork"]
