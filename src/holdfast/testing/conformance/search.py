"""Laws of searching: what was said is found, as of this moment, by whoever may see it (I-17, I-19).

The engine is opened with a `words_of` that reads messages, such as
`holdfast.runtime.catalog.search.words_of`. Here the times of messages grow as they arrive: which of
two is newer when clocks step back is the engine's own affair.
"""

import itertools
from typing import Any

from holdfast.domain.entry import STARTING, Draft, noted
from holdfast.domain.message import MessageNote, freeze
from holdfast.domain.search.query import SearchScope, asked
from holdfast.engine.protocol import Engine, Opening, Start, Write
from holdfast.testing.conformance.builders import Laws, did, mint, named, opened

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


def erased(engine: Engine, session: str) -> None:
    """A session is erased, as the runtime does it."""
    entries = engine.entries(session, limit=10_000)
    draft = Draft("erased", None, mint(), next(_times), b"{}")
    did(
        engine,
        Write(
            session,
            drafts=(draft,),
            close=True,
            ended_too=True,
            erase=tuple((e.seq, b"") for e in entries),
        ),
    )


@LAWS
def a_message_that_is_blanked_is_found_no_more_and_its_neighbours_are(
    engine: Engine,
) -> None:
    session = opened(engine, 1)
    say(engine, session, "kelp a", "kelp b", "kelp c")
    assert look(engine, "kelp") == ["kelp c", "kelp b", "kelp a"]
    draft = Draft("blanked", None, mint(), next(_times), b"{}")
    did(
        engine,
        Write(session, drafts=(draft,), blank=((3, b'{"role":"user","erased":true}'),)),
    )
    assert look(engine, "kelp") == ["kelp c", "kelp a"] and look(engine, "b") == []
    say(engine, session, "kelp d")
    assert look(engine, "kelp") == ["kelp d", "kelp c", "kelp a"]


@LAWS
def a_search_is_complete_as_of_the_call(engine: Engine) -> None:
    session = opened(engine, 1)
    for number in range(12):
        say(engine, session, f"message {number}")
        assert look(engine, "message") == [
            f"message {n}" for n in range(number, -1, -1)
        ]


@LAWS
def the_newest_come_first_over_all_sessions(engine: Engine) -> None:
    one, two = opened(engine, 1), opened(engine, 2)
    for session, text in ((one, "kelp a"), (two, "kelp b"), (one, "kelp c")):
        say(engine, session, text)
    assert look(engine, "kelp") == ["kelp c", "kelp b", "kelp a"]
    assert look(engine, "kelp", limit=2) == ["kelp c", "kelp b"]
    assert engine.matching(SearchScope("t", asked("kelp")), limit=9) == [one, two]
    assert engine.matching(SearchScope("t", asked("kelp")), limit=1) == [one]
    assert engine.matching(SearchScope("t", asked("b")), limit=9) == [two]
    assert (
        engine.matching(SearchScope("t", asked("kelp"), since=next(_times)), limit=9)
        == []
    )


@LAWS
def a_long_history_is_found_page_by_page(engine: Engine) -> None:
    """More than an engine reads at once, of one session and of many."""
    sessions = [opened(engine, number) for number in range(1, 9)]
    texts = [f"kelp {number}" for number in range(400)]
    engine.commit(
        [
            (Write(sessions[n % 8], drafts=(said(text),)),)
            for n, text in enumerate(texts[:200])
        ]
    )
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
    assert engine.matching(SearchScope("t", asked('"kelp giant"')), limit=9) == []
    assert engine.matching(SearchScope("t", asked('"giant kelp"')), limit=9) == [
        session
    ]
    assert look(engine, "giant fo") == ["the giant kelp forest"]
    assert look(engine, "fo") == ["giants and forests", "the giant kelp forest"]
    assert look(engine, '"fo"') == []


@LAWS
def words_of_any_script_are_found(engine: Engine) -> None:
    session = opened(engine, 1)
    say(engine, session, *SCRIPTS, "机器学习 и мир")
    for word in SCRIPTS:
        assert word in look(engine, f'"{word}"'), word
    assert look(engine, "学习 мир") == ["机器学习 и мир"]
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
        engine.matching(SearchScope("t", asked(question)), limit=3)
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
    one, two = opened(engine, 1, key="k"), opened(engine, 2)
    say(engine, one, "kelp asked")
    say(engine, one, "kelp answered", role="assistant")
    say(engine, two, "kelp elsewhere")
    found = engine.search(SearchScope("t", asked("kelp")))
    elsewhere_at, answered_at, asked_at = (one.entry.at for one in found)
    assert look(engine, "kelp", role="assistant") == ["kelp answered"]
    assert look(engine, "kelp", session=two) == ["kelp elsewhere"]
    assert look(engine, "kelp", session="no such session") == []
    assert look(engine, "kelp", key="k", role="user") == ["kelp asked"]
    assert look(engine, "kelp", since=answered_at) == [
        "kelp elsewhere",
        "kelp answered",
    ]
    assert look(engine, "kelp", since=asked_at, until=elsewhere_at) == [
        "kelp answered",
        "kelp asked",
    ]
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
    turn = Draft("turn", STARTING, mint(), next(_times))
    did(engine, Write(sessions[3], drafts=(turn,), start=Start("me", 600.0)))
    assert look(engine, "kelp", state="ended") == [f"kelp {n}" for n in (3, 2, 1)]
    assert look(engine, "kelp", state="running") == ["kelp 4"]
    assert look(engine, "kelp", state="open") == [f"kelp {n}" for n in (9, 8, 7, 6, 5)]


@LAWS
def a_message_that_makes_no_sense_hides_no_other(engine: Engine) -> None:
    """I-18."""
    session = opened(engine, 1)
    for body in (b"kelp {", b"\0 kelp", b"[]"):
        did(
            engine,
            Write(
                session,
                drafts=(Draft("message", None, mint(), 1, b'{"plain":false}', body),),
            ),
        )
    say(engine, session, "kelp")
    assert look(engine, "kelp") == ["kelp"]


@LAWS
def what_was_erased_is_found_no_more(engine: Engine) -> None:
    """I-21: whether it was in an index already or not."""
    kept, found, unread = opened(engine, 1), opened(engine, 2), opened(engine, 3)
    say(engine, kept, "kelp kept")
    say(engine, found, "kelp found")
    assert look(engine, "kelp") == ["kelp found", "kelp kept"]
    say(engine, unread, "kelp unread")
    erased(engine, found)
    erased(engine, unread)
    assert look(engine, "kelp") == ["kelp kept"]
    assert engine.matching(SearchScope("t", asked("kelp")), limit=9) == [kept]


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
