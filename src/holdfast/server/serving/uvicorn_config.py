"""How uvicorn is set up for whatever we serve."""

from typing import Any

import uvicorn
from uvicorn.config import LOGGING_CONFIG

from holdfast.server.serving.json_log import LogForm
from holdfast.server.serving.slow_clients import TimedProtocol


def uvicorn_config(
    app: Any, *, level: str, log: LogForm, **more: Any
) -> uvicorn.Config:
    """For this application, with nothing in the log below `level`, and no line for a request:
    addresses name sessions.
    """
    return uvicorn.Config(
        app,
        http=TimedProtocol,
        ws="none",
        log_level=level,
        access_log=False,
        # Logs in JSON are set up already.
        log_config=None if log == "json" else LOGGING_CONFIG,
        lifespan="on",
        server_header=False,
        # Whom a request comes from is asked nowhere, and a header of its own would say.
        proxy_headers=False,
        **more,
    )
