"""What both engines' searches do with a message that an index has proposed."""

from collections.abc import Iterator

from holdfast.domain.entry import Entry
from holdfast.domain.search.query import Found, SearchableText, SearchScope, answers


def found_in(
    session: str,
    key: str | None,
    entry: Entry,
    words: SearchableText | None,
    sought: SearchScope,
) -> Iterator[Found]:
    """The message, if it answers: an index only proposes, and what was read from the log decides."""
    if words is None:
        return
    places = answers(words, sought)
    if places is not None:
        yield Found(session, key, entry, words, tuple(places))
