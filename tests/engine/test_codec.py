"""The codec: what was cut apart joins to the same bytes, whatever they are (I-14)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.accepted_events import event_name
from holdfast.engine import blobs

LONG = blobs.PART_BYTES_MIN


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.text(max_size=20), st.integers(0, 3)), max_size=6), st.binary(max_size=20)
)
def test_a_body_that_was_split_joins_to_the_same_bytes(pieces, noise):
    said = {
        f"k{at}": text * (1 + LONG // max(1, len(text)) * (times > 1))
        for at, (text, times) in enumerate(pieces)
    }
    for body in (
        json.dumps(said).encode(),
        json.dumps(said, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        json.dumps(list(said.values())).encode() + noise,
        noise + b'"' * 3 + b"x" * LONG,
    ):
        skeleton, parts = blobs.split(body)
        assert blobs.join(skeleton, parts.get) == body
        assert set(blobs.names_in(skeleton)) == set(parts)
        assert all(len(part) >= LONG for part in parts.values())


def test_a_string_is_cut_out_exactly_when_it_is_long():
    for length in (LONG - 1, LONG, LONG + 1):
        body = json.dumps({"role": "user", "content": "x" * length}).encode()
        skeleton, parts = blobs.split(body)
        assert [len(part) for part in parts.values()] == ([length] if length >= LONG else [])
        assert (len(skeleton) < 200) == bool(parts)


def test_equal_parts_have_one_name_and_different_ones_have_different_names():
    body = json.dumps(["x" * LONG, "x" * LONG, "y" * LONG]).encode()
    skeleton, parts = blobs.split(body)
    assert len(parts) == 2 and len(blobs.names_in(skeleton)) == 3


def test_a_missing_part_leaves_json_that_says_so():
    body = json.dumps({"content": "x" * LONG, "after": 1}).encode()
    skeleton, _ = blobs.split(body)
    told = json.loads(blobs.join(skeleton, lambda name: None))
    assert "missing" in told["content"] and told["after"] == 1


@given(st.text(), st.text(), st.text(), st.text())
def test_an_event_is_known_by_its_scope_and_its_id_together(scope, event, other_scope, other_event):
    same = (scope, event) == (other_scope, other_event)
    assert (event_name(scope, event) == event_name(other_scope, other_event)) == same
