"""The shipped kit: what a store, an engine or an agent can be tested with."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

import holdfast


@contextmanager
def temporary_store(*, tenant: str = "default") -> Iterator[holdfast.Store]:
    """A real store in a temporary folder, closed and deleted at the end of the block: for tests of
    a program that uses Holdfast. It is what SQLite's `:memory:` is asked for, with files, locks and
    recovery as they are in earnest.
    """
    with (
        TemporaryDirectory(prefix="holdfast-") as folder,
        holdfast.open(
            f"{folder}/holdfast.db", durability="process", tenant=tenant
        ) as store,
    ):
        yield store
