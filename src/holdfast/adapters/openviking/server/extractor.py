"""Extractors: what makes an overview of an archive, given as an address or as a Python function.

It is called with the archive and answers with what is to stand for it. It may be called again with
the same archive, under the same `task_id`: after an answer that was lost, and by a second server on
the same store. It has a limited time to answer.
"""

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import import_module
from typing import Any

from holdfast.adapters.openviking.server.sessions.archive import Json
from holdfast.errors import BadArgument

Extractor = Callable[[Json], Any]
LIMIT_S = 300
"""How long an extractor may take over one archive, unless told otherwise."""
HANGING_MAX = 3
"""So many calls for one archive may be waiting for an answer that nobody counts on any more. A
function can't be stopped from outside: each holds a thread.
"""
ANSWER_MAX = 8 << 20
_TAKES = "an http:// or https:// address, or a function as `module:name`"


class ExtractionFailed(Exception):
    """An extractor did not say what it has to."""


class ExtractorTooSlow(ExtractionFailed):
    """An extractor did not answer in time."""


def extractor_at(given: str, *, limit_s: float = LIMIT_S) -> Extractor:
    """The extractor that somebody named."""
    if given.startswith(("http://", "https://")):
        return HttpExtractor(given, limit_s)
    module, _, name = given.partition(":")
    # Now and not when the first archive is there: whoever misspelt it is still looking.
    try:
        found = getattr(import_module(module), name) if module and name else None
    except (ImportError, AttributeError) as error:
        raise BadArgument(
            parameter="extract",
            takes=_TAKES,
            given=given,
        ) from error
    if not callable(found):
        raise BadArgument(
            parameter="extract",
            takes=_TAKES,
            given=given,
        )
    extractor: Extractor = found
    return extractor


class HttpExtractor:
    """An extractor behind an address: the archive is posted to it as JSON."""

    def __init__(self, url: str, limit_s: float) -> None:
        self._url, self._limit_s = url, limit_s

    def __call__(self, archive: Json) -> Any:
        headers = {
            "content-type": "application/json",
            "idempotency-key": archive["task_id"],
        }
        body = json.dumps(archive).encode()
        request = urllib.request.Request(self._url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=self._limit_s) as answer:
                raw = answer.read(ANSWER_MAX + 1)
        except urllib.error.HTTPError as error:
            # Its number alone: an answer may quote what it was sent, and errors are logged.
            raise ExtractionFailed(f"the extractor answered {error.code}") from None
        except OSError as error:
            # Refused, timed out, cut off: each is one try, and the next may go through.
            raise ExtractionFailed(
                f"the extractor can't be reached ({type(error).__name__})"
            ) from None
        # One byte more than is allowed was read: so much of it would be too much.
        if len(raw) > ANSWER_MAX:
            raise ExtractionFailed("the extractor's answer is too large")
        try:
            return json.loads(raw)
        except ValueError:
            raise ExtractionFailed("the extractor's answer is not JSON") from None


class ExtractorCall:
    """One call of an extractor, and what it came to."""

    def __init__(self) -> None:
        self.is_over = threading.Event()
        self.answer: Any = None
        self.problem = ""


class LimitedExtractor:
    """An extractor that is given so many seconds. Each call is made on a thread of its own, which is
    left to itself when time is up; whatever is raised there is a failure of the extractor.
    """

    def __init__(self, extractor: Extractor, limit_s: float) -> None:
        self._extractor, self._limit_s = extractor, limit_s
        self._lock = threading.Lock()
        self.hanging: dict[str, int] = {}
        """How many calls under way there are for each task."""

    def __call__(self, archive: Json) -> Any:
        task, call = archive["task_id"], ExtractorCall()
        with self._lock:
            hanging = self.hanging.get(task, 0)
            if hanging >= HANGING_MAX:
                raise ExtractionFailed("earlier calls of the extractor have not ended")
            self.hanging[task] = hanging + 1
        try:
            threading.Thread(
                target=self._call,
                args=(archive, call),
                name="holdfast-extractor",
                daemon=True,
            ).start()
        except RuntimeError:
            self._count_out(task)
            raise
        if not call.is_over.wait(self._limit_s):
            raise ExtractorTooSlow(
                f"the extractor has not answered in {self._limit_s:g} seconds"
            )
        if call.problem:
            raise ExtractionFailed(call.problem)
        return call.answer

    def _call(self, archive: Json, call: ExtractorCall) -> None:
        try:
            call.answer = self._extractor(archive)
        except ExtractionFailed as error:
            call.problem = str(error)
        except BaseException as error:
            # Any: it may be a caller's own function, and one that calls `sys.exit` has failed, too.
            # By its kind alone: its words may be those of a session.
            call.problem = type(error).__name__
        finally:
            self._count_out(archive["task_id"])
            call.is_over.set()

    def _count_out(self, task: str) -> None:
        with self._lock:
            left = self.hanging.pop(task, 1) - 1
            if left > 0:
                self.hanging[task] = left


def said_by(answer: Any) -> Json:
    """What an extractor answered, as it is kept: `overview` and `abstract` are texts, `memories`
    counts by kind. A function may answer with the overview alone. Without one it has failed: nothing
    would stand for the messages, and the overview so far would be gone.
    """
    if answer is None:
        answer = {}
    if isinstance(answer, str):
        answer = {"overview": answer}
    if not isinstance(answer, dict):
        raise ExtractionFailed("the extractor's answer is neither an object nor a text")
    said: Json = {}
    for name in ("overview", "abstract"):
        text = answer.get(name) or ""
        if not isinstance(text, str):
            raise ExtractionFailed(f"the extractor's `{name}` is not a text")
        said[name] = text
    if not said["overview"].strip():
        raise ExtractionFailed("the extractor gave no overview")
    # Counts alone: what was extracted is the extractor's to keep.
    said["memories"] = _counts(answer.get("memories_extracted") or {})
    return said


def _counts(given: Any) -> dict[str, int]:
    if not isinstance(given, dict):
        raise ExtractionFailed("the extractor's `memories_extracted` is not an object")
    for name, count in given.items():
        if not isinstance(name, str) or type(count) is not int:
            problem = "the extractor's `memories_extracted` is not made of counts"
            raise ExtractionFailed(problem)
    return given
