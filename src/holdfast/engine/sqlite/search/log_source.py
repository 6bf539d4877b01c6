"""Where the search index reads from."""

from collections.abc import Callable
from typing import NamedTuple

from holdfast.engine.named_sql import Row, Rows
from holdfast.engine.protocol import WordsOf


class LogSource(NamedTuple):
    """The log as the search knows it. `read` asks it, by the name of a query, and raises Holdfast's
    errors: they are about the log, not about the index. `whole` puts a body together again;
    `words_of` says what can be found in an entry.
    """

    read: Callable[[str, Row], Rows]
    whole: Callable[[bytes], bytes]
    words_of: WordsOf
