"""Where a streamed answer of chat completions ends: what its client takes for whole is stored as whole, and
nothing else is.
"""

from pathlib import Path
from typing import Any

import pytest

from proxy_world import ProxyClients, cut_off, provider, proxied, told, turns

HI = [{"role": "user", "content": "Hi"}]
DONE = (None, "[DONE]")


def says(index: int, words: str, finish: str | None = None) -> tuple[None, Any]:
    choice = {"index": index, "delta": {"content": words}, "finish_reason": finish}
    return None, {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


@pytest.mark.parametrize("ending", ["well", "cut", "closed"])
@pytest.mark.parametrize(
    "events",
    [
        pytest.param([says(0, "Hel"), says(0, "lo"), DONE], id="done without a reason"),
        pytest.param([says(0, "Hel"), says(0, "lo", "stop")], id="a reason without done"),
        pytest.param(
            [says(0, "Hel"), says(1, "B", "stop"), says(0, "lo", "stop")], id="two reasons"
        ),
        pytest.param([says(0, "Hello"), says(1, "Half of "), DONE], id="done for two"),
    ],
)
def test_the_mark_of_its_end_makes_an_answer_whole(
    tmp_path: Path, events: list[Any], ending: str
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        upstream.answer(events, ending=ending)
        list(ProxyClients(port, "mine").stream("openai.chat", HI))
    assert told(store, "mine")[-1] == ("assistant", "Hello", "complete")
    assert turns(store, "mine") == ["completed"]


@pytest.mark.parametrize("ending", ["well", "cut", "closed"])
@pytest.mark.parametrize("half", [0, 1])
def test_a_choice_in_the_middle_of_a_sentence_breaks_off(
    tmp_path: Path, half: int, ending: str
) -> None:
    store = tmp_path / "a.db"
    with provider() as upstream, proxied(store, upstream) as port:
        events = [says(half, "Half of "), says(1 - half, "Whole"), says(1 - half, ".", "stop")]
        upstream.answer(events, ending=ending)
        with cut_off():
            list(ProxyClients(port, "mine").stream("openai.chat", HI))
    assert turns(store, "mine") == ["failed"]
