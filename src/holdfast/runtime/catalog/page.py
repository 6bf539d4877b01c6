"""A page of a long list, and the cursor that the next one is asked for with."""

import base64
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")


class Page(Sequence[T]):
    """Some of many: a sequence, with `next`, the cursor to ask for the page after it; None when
    this is the last.
    """

    items: list[T]
    next: str | None

    def __init__(self, items: list[T], next: str | None) -> None:
        self.items = items
        self.next = next

    def __iter__(self) -> Iterator[T]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self.items[index]

    def __repr__(self) -> str:
        more = ", more follow" if self.next else ""
        return f"<Page of {len(self.items)}{more}>"


def write_cursor(place: tuple[Any, ...]) -> str:
    """A place in a list as a string to hand out."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def read_cursor(text: str, place: Any) -> Any:
    """The place that `write_cursor` was given, of this type; ValueError when no such place was."""
    # Without `validate`, characters that are none of the alphabet would be skipped, and
    # a damaged cursor would mean some other place.
    padded = text.encode("ascii") + b"=" * (-len(text) % 4)
    raw = base64.b64decode(padded, altchars=b"-_", validate=True)
    try:
        return msgspec.json.decode(raw, type=place)
    except msgspec.DecodeError as error:
        raise ValueError("no such place") from error
