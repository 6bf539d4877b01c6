"""Journal rows: what is packed comes back, each part by itself (I-5)."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.chunk import GROWING, pack, raw, shown, sound, squeeze, unpack

TEXTS = st.text(alphabet=st.characters(blacklist_categories=()), max_size=4)
INDEXES = st.integers(0, 3)
GROWTH = st.tuples(st.sampled_from(sorted(GROWING)), INDEXES, TEXTS)
OPENED = st.tuples(st.just("call"), INDEXES, st.fixed_dictionaries({"id": TEXTS, "name": TEXTS}))
DELTAS = st.lists(GROWTH | OPENED | st.just(("done", 0, None)))


def grown(deltas):
    """What each part has grown to, by kind and index, and all else in order."""
    parts, rest = {}, []
    for kind, index, value in deltas:
        if kind in GROWING:
            parts[kind, index] = parts.get((kind, index), "") + value
        else:
            rest.append((kind, index, value))
    return parts, rest


def test_the_arguments_of_parallel_calls_are_not_glued_together():
    """FAULTS E: two calls that speak in turns, in one row, are two after a crash too."""
    said = [
        ("arguments", 4, '{"a":'),
        ("arguments", 5, '{"b":'),
        ("arguments", 4, "1}"),
        ("arguments", 5, "2}"),
    ]
    assert unpack(pack(said)) == said
    assert grown(unpack(pack(said)))[0] == {
        ("arguments", 4): '{"a":1}',
        ("arguments", 5): '{"b":2}',
    }


def test_neighbours_that_grow_the_same_part_are_one_delta():
    assert unpack(pack([("text", 0, "a"), ("text", 0, "b"), ("text", 1, "c")])) == [
        ("text", 0, "ab"),
        ("text", 1, "c"),
    ]
    assert squeeze([("text", 0, "a"), ("thinking", 0, "b"), ("text", 0, "c")]) == [
        ("text", 0, "a"), ("thinking", 0, "b"), ("text", 0, "c")]  # fmt: skip


@given(DELTAS)
def test_a_row_folds_to_what_its_deltas_fold_to(deltas):
    """Whatever their kinds and indexes: each part has grown to the same, and what is shown is the
    same.
    """
    assert grown(unpack(pack(deltas))) == grown(deltas)
    assert shown(unpack(pack(deltas))) == shown(deltas)


def test_what_a_row_cannot_hold_is_kept_raw_and_takes_nothing_along():
    odd = [
        ("text", 0, "a"),
        ("arguments", 4, {"a": 1}),
        ("text", 0, ["b"]),
        ("meta", 0, object),
        ("text", None, "c"),
    ]
    made = sound(odd)
    assert [delta[0] for delta in made] == ["text", "raw", "raw", "raw", "raw"]
    assert made[1][2] == ["arguments", 4, {"a": 1}] and "object" in made[3][2]
    assert shown(unpack(pack(made))) == "a"
    assert raw(float("nan")) == "nan"
