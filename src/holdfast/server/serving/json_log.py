"""Logs for machines: one JSON object a line, on stderr.

What was said, tokens and the addresses of sessions are in no line: a request is told by the pattern
of its address, an error by its kind.
"""

import logging
from datetime import UTC, datetime
from typing import Any, Literal

from holdfast.domain.message import freeze
from holdfast.server.health import FACTS, REQUESTS

LogForm = Literal["text", "json"]
_LOGGERS = ("holdfast", "uvicorn")


class JsonLines(logging.Formatter):
    """A record as a JSON object: `at`, `level`, `logger`, `message`, and its facts."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "at": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, FACTS, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            # Its words may be somebody's.
            line["error"] = record.exc_info[0].__name__
        return freeze(line).decode()


def log_as_json() -> None:
    """From now on this process logs in JSON, and each request that it answers."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    logging.getLogger(REQUESTS).setLevel(logging.INFO)
