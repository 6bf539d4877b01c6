"""What is sought, in the words of FTS5.

FTS5 reads all that there is of a word when it looks for its beginning, however few messages are
wanted of it, and whatever else they have to say. So a beginning is replaced by the words that have
it, as long as they are few.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import apsw

from holdfast.domain.search.query import SearchQuestion
from holdfast.engine.named_sql import Rows
from holdfast.engine.sqlite.queries import SEARCH
from holdfast.engine.sqlite.search.feed import any_of, as_listed

ENDINGS_MAX = 32
"""So many words with a beginning are looked for one by one."""
LISTED_MAX = 4000
"""A beginning of more words than these, in all volumes, is looked for everywhere."""
_LAST = "\U0010ffff"


class FtsQuestion(NamedTuple):
    """All of these facets, one of these sessions if there are any, all of the phrases. No word has a
    quote in it.
    """

    asked: SearchQuestion
    facets: Sequence[str]
    sessions: Sequence[int]

    def by_volume(
        self, connection: apsw.Connection, times: tuple[int, int]
    ) -> Iterator[tuple[int, str]]:
        """The volumes that may have an answer of these times, newest first, and what to ask each of
        them.
        """
        volumes = [n for (n,) in connection.execute(SEARCH["volumes"], times)]
        for word in self._whole_words():
            rows = connection.execute(SEARCH["volumes_of"], (word,)).fetchall()
            having = {volume for (volume,) in rows}
            volumes = [volume for volume in volumes if volume in having]
        endings = self._endings(connection) if volumes else None
        for volume in volumes:
            if endings is None:
                yield volume, self._expression([])
            elif volume in endings:
                yield volume, self._expression(endings[volume])

    def _whole_words(self) -> list[str]:
        """The words that every answer has."""
        words = [word for phrase in self.asked.phrases for word in phrase]
        if self.asked.beginning:
            words.pop()
        facets = list(self.facets)
        if len(self.sessions) == 1:
            facets.append(f"s{self.sessions[0]}")
        return [*map(as_listed, facets), *words]

    def _endings(self, connection: apsw.Connection) -> dict[int, list[str]] | None:
        """The words that the last one may be the beginning of, by volume; None if it is none, or of
        very many.
        """
        if not self.asked.beginning:
            return None
        word = self.asked.phrases[-1][-1]
        span = (word, word + _LAST, LISTED_MAX)
        rows: Rows = connection.execute(SEARCH["beginnings"], span).fetchall()
        if len(rows) == LISTED_MAX:
            return None
        endings: dict[int, list[str]] = defaultdict(list)
        for text, volume in rows:
            endings[volume].append(text)
        return endings

    def _expression(self, endings: Sequence[str]) -> str:
        """What to ask of a volume in which the last word is one of these."""
        terms = [f'facet : "{facet}"' for facet in self.facets]
        if self.sessions:
            terms.append(any_of(self.sessions))
        phrases = [" ".join(phrase) for phrase in self.asked.phrases]
        if 0 < len(endings) <= ENDINGS_MAX:
            start = " ".join(self.asked.phrases[-1][:-1])
            some = " OR ".join(f'"{start} {word}"' for word in endings)
            terms += [f'text : "{phrase}"' for phrase in phrases[:-1]]
            return " AND ".join([*terms, f"text : ({some})"])
        terms += [f'text : "{phrase}"' for phrase in phrases]
        return " AND ".join(terms) + (" *" if self.asked.beginning else "")
