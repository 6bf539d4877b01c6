"""Tombstones: the log keeps its build, and not a word that anybody said (I-1, I-21)."""

import msgspec
import pytest

from holdfast.domain.entry import NOTES, Entry, note_of, noted
from holdfast.domain.erasure import tombstone

WORD = "Xanthocephalus"


def full(kind):
    """A note of this kind with the word wherever a text can stand."""
    return msgspec.convert(
        {field.encode_name: _value(field.type) for field in msgspec.structs.fields(kind)}, kind
    )


def _value(type_):
    shape = (
        msgspec.inspect.type_info(type_) if not isinstance(type_, msgspec.inspect.Type) else type_
    )
    match shape:
        case msgspec.inspect.StrType():
            return WORD
        case msgspec.inspect.BoolType():
            return True
        case msgspec.inspect.IntType():
            return 3
        case msgspec.inspect.NoneType():
            return None
        case msgspec.inspect.LiteralType():
            return shape.values[0]
        case msgspec.inspect.AnyType():
            return {"said": WORD}
        case msgspec.inspect.UnionType():
            return _value(
                next(each for each in shape.types if not isinstance(each, msgspec.inspect.NoneType))
            )
        case msgspec.inspect.VarTupleType() | msgspec.inspect.ListType():
            return [_value(shape.item_type)]
        case msgspec.inspect.TupleType():
            return [_value(each) for each in shape.item_types]
        case msgspec.inspect.DictType():
            return {_value(shape.key_type): _value(shape.value_type)}
        case msgspec.inspect.StructType():
            return {field.encode_name: _value(field.type) for field in shape.fields}
    raise AssertionError(f"a note has a {shape}")


KEPT = {"opened": {"key", "previous", "parent"}, "erased": {"reason"}}
"""Words that stay, by kind: a session's key and relations, and why it was erased."""
IDS = {"takes", "brought", "session", "returns", "messages", "moved", "owed", "message", "to", "at"}
"""Fields that hold ids that we minted."""


@pytest.mark.parametrize("kind", sorted(NOTES))
def test_a_tombstone_of_every_kind_can_be_read_and_has_no_words_in_it(kind):
    entry = Entry(1, kind, 1, b"0" * 16, 5, noted(full(NOTES[kind])), b"payload")
    left = note_of(kind, tombstone(entry))
    words = {
        name
        for name in left.__struct_fields__
        if WORD in str(getattr(left, name)) and name not in KEPT.get(kind, set()) | IDS
    }
    assert words == set()


def test_a_message_keeps_its_role_and_what_it_cost():
    entry = Entry(1, "message", 1, b"0" * 16, 5, noted(full(NOTES["message"])), b"payload")
    left = note_of("message", tombstone(entry))
    assert left.erased and left.role == "assistant" and left.usage.input == 3


def test_a_kind_without_a_note_leaves_none():
    assert tombstone(Entry(1, "instructions", None, b"0" * 16, 5, b"", b'"text"')) == b""
