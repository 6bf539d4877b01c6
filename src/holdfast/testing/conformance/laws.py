"""A family of laws: each is a function whose name is its sentence."""

import functools
import inspect
from collections.abc import Callable

from holdfast.engine.protocol import Engine
from holdfast.testing.conformance.tested_session import TestedSession, new_session

Case = Callable[[Engine], None]
Law = Callable[..., None]


class Laws(dict[str, Case]):
    """Each sentence and the case that shows it, on a fresh engine. Decorates a law, which asks for
    what it needs by its parameters: the engine, and sessions, which are opened for it without a
    key and numbered from 1.
    """

    def __call__(self, law: Law) -> Law:
        needs = [
            given.annotation for given in inspect.signature(law).parameters.values()
        ]

        # So that a traceback and a test's id name the law.
        @functools.wraps(law)
        def case(engine: Engine) -> None:
            given: list[Engine | TestedSession] = []
            sessions = 0
            for need in needs:
                if need is TestedSession:
                    sessions += 1
                    given.append(new_session(engine, sessions))
                else:
                    given.append(engine)
            law(*given)

        self[law.__name__.replace("_", " ")] = case
        # The law itself, and not the case: it can be called with sessions of one's own.
        return law
