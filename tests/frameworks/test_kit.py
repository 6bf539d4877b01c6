"""The kit for adapters, on a hand-written loop: what is lost without Holdfast is seen to be lost,
and nothing is lost with it.
"""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from anthropic import Anthropic
from openai import BadRequestError, OpenAI

import holdfast
from holdfast.testing.adapters import ROWS, ScriptedAnswer, play, serve
from holdfast.testing.adapters.row_setup import PlayedBy, set_up
from holdfast.testing.adapters.verdict import misfits
from thorough import EXPLORE

PLAYER = str(Path(__file__).parents[2] / "torture" / "frameworks" / "plain.py")


def client_of(url: str) -> OpenAI:
    return OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)


def test_a_prompt_is_answered_by_its_mark_and_again_after_each_result_of_a_tool() -> None:
    with serve() as provider:
        calls = [("water", {"row": 7})]
        provider.answer("ask-01", ScriptedAnswer(("Look",), calls), ScriptedAnswer(("Done",)))
        client = client_of(provider.url)
        asked: list[Any] = [{"role": "user", "content": "ask-01"}]
        first = client.chat.completions.create(model="m", messages=asked).choices[0].message
        assert first.content == "Look"
        assert first.tool_calls is not None
        [call] = first.tool_calls
        asked += [
            {"role": "assistant", "content": "Look", "tool_calls": [call.to_dict()]},
            {"role": "tool", "tool_call_id": call.id, "content": "wet"},
        ]
        said = client.chat.completions.create(model="m", messages=asked).choices[0].message
        assert said.content == "Done"


def test_all_three_apis_answer_whole_as_they_stream() -> None:
    with serve() as provider:
        provider.answer("ask-01", ScriptedAnswer(("Ca", "sa"), [("water", {"row": 7})]))
        client = client_of(provider.url)
        response = client.responses.create(model="m", input="ask-01")
        assert response.output_text == "Casa"
        anthropic = Anthropic(base_url=provider.url, api_key="none", max_retries=0)
        message = anthropic.messages.create(
            model="m", max_tokens=9, messages=[{"role": "user", "content": "ask-01"}]
        )
        assert [block.type for block in message.content] == ["text", "tool_use"]
        assert message.content[0].text == "Casa"  # type: ignore[union-attr]
        with client.responses.stream(model="m", input="ask-01") as stream:
            texts = [e.delta for e in stream if e.type == "response.output_text.delta"]
        assert texts == ["Ca", "sa"]


def test_what_the_provider_refuses_is_refused_and_kept() -> None:
    with serve() as provider:
        orphan: list[Any] = [{"role": "tool", "tool_call_id": "c", "content": "wet"}]
        with pytest.raises(BadRequestError):
            client_of(provider.url).chat.completions.create(model="m", messages=orphan)
        [asked] = provider.asked
        assert asked.problems


def test_a_stream_stands_still_until_it_is_told_to_go_on() -> None:
    with serve() as provider:
        provider.answer("ask-01", ScriptedAnswer(("a", "b", "c"), stalls_after=2))
        prompt: list[Any] = [{"role": "user", "content": "ask-01"}]
        client = client_of(provider.url)
        seen = ""
        for chunk in client.chat.completions.create(model="m", messages=prompt, stream=True):
            for choice in chunk.choices:
                seen += choice.delta.content or ""
            if seen == "ab":
                assert provider.stalled.wait(60)
                provider.go_on.set()
        assert seen == "abc"


def test_a_path_that_no_api_has_is_an_error() -> None:
    with serve() as provider:
        body = json.dumps({"input": "x"}).encode()
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(f"{provider.url}/v1/embeddings", data=body)


def test_marks_tell_what_is_lost_doubled_and_misplaced() -> None:
    assert misfits("a b c", ["a", "b", "c"]) == []
    assert misfits("a c", ["a", "b", "c"]) == ["'b' is lost"]
    assert misfits("a b b", ["a", "b"]) == ["'b' is there 2 times"]
    assert misfits("b a", ["a", "b"]) == ["'b' is misplaced"]


@pytest.mark.slow
def test_a_plain_loop_loses_what_was_shown_and_holdfast_does_not() -> None:
    matrix = play(PLAYER, rows=["kill -9 in the stream"])
    [(_, outcomes)] = matrix.lines
    assert outcomes["own"].wrong and outcomes["own"].stored == "0"
    assert outcomes["holdfast"].right and outcomes["holdfast"].stored == "14"
    assert not matrix.wrong
    assert "REFUSED" not in matrix.text()


@pytest.mark.slow
@pytest.mark.parametrize("row", [row.name for row in ROWS][1 :: 1 if EXPLORE else len(ROWS)])
def test_every_row_is_right_with_holdfast(row: str) -> None:
    assert play(PLAYER, stores=["holdfast"], rows=[row]).wrong == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "before", "after"),
    [
        # It goes by itself, with its prompt stored and nothing shown.
        ("kill -9 in the stream", "    while True:", "    while 'ask-02' not in task.prompt:"),
        # No code of such a name: there is no line to be killed at.
        ("kill -9 in a compaction", '"frameworks/plain.py"', '"nowhere.py"'),
    ],
)
def test_a_row_whose_process_was_not_killed_says_so(
    tmp_path: Path, row: str, before: str, after: str
) -> None:
    player = tmp_path / "unhurt.py"
    player.write_text(Path(PLAYER).read_text().replace(before, after))
    on = "own" if "compaction" in row else "holdfast"
    [(_, outcomes)] = play(str(player), stores=[on], rows=[row]).lines
    [sentence] = outcomes[on].wrong
    assert sentence.startswith("the fault did not happen: ")


def test_a_compaction_can_be_killed_wherever_holdfast_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below a folder with the name of the kit, whose own lines don't count."""
    installed = tmp_path / "testing"
    installed.symlink_to(Path(holdfast.__file__).parents[1], target_is_directory=True)
    monkeypatch.setenv("PYTHONPATH", str(installed))
    with set_up(PlayedBy(PLAYER, sys.executable, "holdfast")) as made:
        process = made.start(action="clear")
        assert process.end() == 0
        assert process.facts[-1]["lines"] > 0
