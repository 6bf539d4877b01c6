"""Extractors: what makes an overview of an archive, given as an address or as a Python function.

It is called with the archive and answers with what is to stand for it. It may be called again with
the same archive, under the same `task_id`: after an answer that was lost, and by a second server on
the same store.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from importlib import import_module
from typing import Any

from holdfast.adapters.openviking.server.sessions.archive import Json
from holdfast.errors import BadArgument

Extractor = Callable[[Json], Any]
TIMEOUT_S = 600
ANSWER_MAX = 8 << 20
_TAKES = "an http:// or https:// address, or a function as `module:name`"


class ExtractionFailed(Exception):
    """An extractor did not say what it has to."""


def extractor_at(given: str) -> Extractor:
    """The extractor that somebody named."""
    if given.startswith(("http://", "https://")):
        return HttpExtractor(given)
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

    def __init__(self, url: str) -> None:
        self._url = url

    def __call__(self, archive: Json) -> Any:
        headers = {
            "content-type": "application/json",
            "idempotency-key": archive["task_id"],
        }
        body = json.dumps(archive).encode()
        request = urllib.request.Request(self._url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
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


def said_by(answer: Any) -> Json:
    """What an extractor answered, as it is kept: `overview` and `abstract` are texts, `memories`
    counts by kind. A function may answer with the overview alone, or with nothing.
    """
    if answer is None:
        return {}
    if isinstance(answer, str):
        return {"overview": answer}
    if not isinstance(answer, dict):
        raise ExtractionFailed("the extractor's answer is neither an object nor a text")
    said: Json = {}
    for name in ("overview", "abstract"):
        text = answer.get(name) or ""
        if not isinstance(text, str):
            raise ExtractionFailed(f"the extractor's `{name}` is not a text")
        said[name] = text
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
