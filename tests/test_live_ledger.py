"""The judge of `./dev live goose`: what a client was shown is told from its ledger, and a store that
lost, doubled, moved or invented something is found out.
"""

import json
import sys
from copy import deepcopy
from dataclasses import replace

import pytest

from torture.live.acp.client import Client
from torture.live.acp.ledger import Turn, differences, doubled, missing, told

SESSION = "s1"
AGENT = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "session/prompt":
        update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "Half"}}
        news = {"method": "session/update", "params": {"sessionId": "s1", "update": update}}
        print(json.dumps(news), flush=True)
    else:
        print(json.dumps({"id": asked["id"], "result": {}}), flush=True)
"""


def said(method, number=0, **params):
    params = {"sessionId": SESSION, **params}
    return b">" + json.dumps({"id": number, "method": method, "params": params}).encode() + b"\n"


def prompt(number, words):
    return said("session/prompt", number, prompt=[{"type": "text", "text": words}])


def shown(kind, session=SESSION, **update):
    params = {"sessionId": session, "update": {"sessionUpdate": kind, **update}}
    return b"<" + json.dumps({"method": "session/update", "params": params}).encode() + b"\n"


def words(text, kind="agent_message_chunk", **more):
    return shown(kind, content={"type": "text", "text": text}, **more)


def answer(number, **result):
    return b"<" + json.dumps({"id": number, **result}).encode() + b"\n"


def ended(number, how="end_turn"):
    return answer(number, result={"stopReason": how})


def call(id, **more):
    return shown("tool_call", toolCallId=id, title="echo out-1", **more)


def outcome(id, text):
    content = [{"type": "content", "content": {"type": "text", "text": text}}]
    return shown("tool_call_update", toolCallId=id, status="completed", content=content)


WHOLE = [
    said("initialize"),
    prompt(1, "P1: Look."),
    words("Hm.", "agent_thought_chunk"),
    words("I will "),
    words("look."),
    shown("agent_message_chunk", "another", content={"type": "text", "text": "Not mine."}),
    call("c1"),
    outcome("c1", "out-1"),
    words("A saw."),
    ended(1),
]


def test_a_turn_is_what_was_shown_of_it():
    assert told(WHOLE, SESSION).turns == [
        Turn("P1: Look.", "I will look.A saw.", "Hm.", ["c1"], {"c1": {"out-1"}}, "end_turn", True)
    ]


def test_what_a_load_replays_is_no_news():
    lines = [
        *WHOLE,
        said("initialize"),
        said("session/load", 1),
        words("P1: Look.", "user_message_chunk"),
        words("A saw."),
        answer(1, result={}),
        prompt(2, "P2: And now?"),
        words("Still."),
        ended(2),
    ]
    ledger = told(lines, SESSION)
    assert [(turn.number, turn.words) for turn in ledger.turns] == [
        ("P1", "I will look.A saw."), ("P2", "Still."),
    ]  # fmt: skip
    assert [(turn.number, turn.words) for turn in ledger.replays[0]] == [("P1", "A saw.")]


def test_a_queued_prompt_is_answered_after_the_first_and_a_refused_one_never():
    lines = [
        prompt(1, "P1: Look."),
        prompt(2, "P2: Wait."),
        prompt(3, "P3: No."),
        words("First."),
        answer(3, error={"code": -32602}),
        ended(1),
        words("Second."),
        ended(2),
    ]
    turns = told(lines, SESSION).turns
    assert [(turn.words, turn.end) for turn in turns] == [
        ("First.", "end_turn"), ("Second.", "end_turn"), ("", "refused"),
    ]  # fmt: skip


def test_what_a_tool_prints_is_told_with_its_end_though_the_next_turn_runs_by_then():
    printed = {"terminal_output_delta": {"data": "out-1"}}
    lines = [
        prompt(1, "P1: Look."),
        call("c1"),
        ended(1, "cancelled"),
        prompt(2, "P2: And now?"),
        shown("tool_call_update", toolCallId="c1", _meta=printed),
        shown("tool_call_update", toolCallId="c1", status="completed", rawOutput={}),
        ended(2),
    ]
    first, second = told(lines, SESSION).turns
    assert (first.results, second.calls) == ({"c1": {"out-1"}}, [])


def test_what_is_said_of_a_message_after_its_cancel_belongs_to_its_turn():
    lines = [
        prompt(1, "P1: Look."),
        words("I will ", messageId="m1"),
        ended(1, "cancelled"),
        prompt(2, "P2: And?"),
        words("look.", messageId="m1"),
        words("A saw.", messageId="m2"),
        ended(2),
    ]
    first, second = told(lines, SESSION).turns
    assert (first.words, first.late, second.words) == ("I will ", ["look."], "A saw.")
    assert list(differences([first, second], [first, second])) == []
    for late in ([], ["look.", "I will "]):
        stored = [replace(first, late=late), second]
        assert len(list(differences([first, second], stored))) == 1


def test_a_prompt_that_nobody_answered_stays_open_and_its_last_line_may_be_torn():
    lines = [prompt(1, "P1: Look."), words("Hal"), b'<{"jsonrpc', said("initialize")]
    [turn] = told(lines, SESSION).turns
    assert (turn.words, turn.end, turn.is_seen) == ("Hal", "", True)


@pytest.fixture
def turns():
    return told([*WHOLE, prompt(2, "P2: Go on."), words("Half an ans"), call("c2")], SESSION).turns


def test_a_store_that_has_what_was_shown_is_right(turns):
    assert list(differences(turns, deepcopy(turns))) == []
    assert list(missing(turns, deepcopy(turns))) == list(doubled(turns)) == []
    from_elsewhere = Turn("[interrupted]", "Nothing was said.")
    assert list(differences(turns, [*deepcopy(turns), from_elsewhere])) == []


def test_more_may_be_stored_than_was_shown_only_where_nobody_saw_the_end(turns):
    stored = deepcopy(turns)
    stored[1].words += "wer."
    stored[1].calls.append("c3")
    assert list(differences(turns, stored)) == []
    stored[0].words += " And a rake."
    assert len(list(differences(turns, stored))) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda stored: stored.pop(),
        lambda stored: stored.append(deepcopy(stored[0])),
        lambda stored: stored.reverse(),
        lambda stored: setattr(stored[1], "words", "Half"),
        lambda stored: setattr(stored[0], "words", stored[0].words * 2),
        lambda stored: setattr(stored[0], "thoughts", ""),
        lambda stored: setattr(stored[0], "prompt", "P1: Look"),
        lambda stored: stored[0].results.clear(),
        lambda stored: stored[0].results["c1"].clear(),
        lambda stored: stored[0].calls.append("c1"),
        lambda stored: stored[0].calls.append("c9"),
        lambda stored: stored[1].calls.clear(),
        lambda stored: stored.append(Turn("P9: Never said.")),
        lambda stored: stored.append(Turn("", "A saw.")),
        lambda stored: stored.append(Turn("", calls=["c1"])),
    ],
)
def test_whatever_is_lost_doubled_moved_or_made_up_is_found(turns, spoil):
    stored = deepcopy(turns)
    spoil(stored)
    assert list(differences(turns, stored)) != []


def test_an_agent_may_word_what_it_kept_in_its_own_way_and_must_keep_it_once(turns):
    kept = deepcopy(turns)
    kept[0].words = "I will look.  \n\nA saw.\n[interrupted]"
    assert list(missing(turns, kept)) == []
    kept[1].words, kept[1].calls = "", []
    assert list(missing(turns, kept)) == ["P2: words", "P2: 1 call"]
    assert list(doubled([*kept, kept[0]])) == ["prompt P1 2 times", "call c1 2 times"]


def test_a_client_that_is_killed_has_written_down_what_it_was_shown(tmp_path):
    ledger = tmp_path / "ledger"
    client = Client([sys.executable, "-c", AGENT], {}, tmp_path, ledger)
    client.hello()
    waiting = client.prompt(SESSION, "P1: Look.")
    client.wait(lambda: bool(client.shown), "half an answer")
    client.kill()
    assert waiting.get(timeout=10) == {"ended": True}
    [turn] = told(ledger.read_bytes().splitlines(keepends=True), SESSION).turns
    assert (turn.words, turn.end) == ("Half", "")
