"""The public suite of the Durable Streams protocol, against a real server.

The suite knows of no tokens: each of its requests is given one on its way in. A live read waits for two seconds, for
the suite waits out many of them. What it does not try here, subscriptions, the server has not.
"""

import asyncio
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import holdfast
from holdfast.server.app import Settings
from holdfast.server.auth import Tokens, digest_of, identity
from holdfast.server.durable import endpoints
from holdfast.server.serving.listening import listening
from holdfast.server.serving.serve import server_of

TOKEN = "hf_suite"
SUITE = """\
import { runConformanceTests } from "@durable-streams/server-conformance-tests";
runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL });
"""


def conformance(pages: Path) -> bool:
    """Runs the suite, tells what failed, and whether nothing did."""
    endpoints.LONG_POLL_S = 2.0
    (pages / "conformance.test.mjs").write_text(SUITE)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_beside(Path(folder) / "s.db", pages))
    told = json.loads((pages / "conformance.json").read_text())
    for file in told["testResults"]:
        for test in file["assertionResults"]:
            if test["status"] == "failed":
                print(f"FAIL  {' > '.join([*test['ancestorTitles'], test['title']])}")
                print(f"      {test['failureMessages'][0].splitlines()[0][:200]}")
    counts = (told[f"num{each}Tests"] for each in ("Passed", "Failed", "Pending"))
    print("Durable Streams: {} passed, {} failed, {} skipped".format(*counts))
    return not told["numFailedTests"] and told["numPassedTests"] > 300


async def _beside(store: Path, pages: Path) -> None:
    with listening("127.0.0.1", 0) as listener:
        async with holdfast.open_async(store, durability="process") as opened:
            tokens = Tokens({digest_of(TOKEN): identity("default", "admin")})
            server = server_of(opened, Settings(tokens=tokens))
            server.config.app = _with_token(server.config.app)
            serving = asyncio.create_task(server.serve(sockets=[listener]))
            address = f"http://127.0.0.1:{listener.getsockname()[1]}"
            await asyncio.to_thread(_suite, pages, address)
            server.should_exit = True
            await serving


def _with_token(app: Any) -> Any:
    token = (b"authorization", b"Bearer " + TOKEN.encode())

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], token]}
        await app(scope, receive, send)

    return wrapped


def _suite(pages: Path, address: str) -> None:
    words = ["npx", "vitest", "run", "--reporter=json", "--outputFile=conformance.json"]
    subprocess.run(
        words,
        cwd=pages,
        env={**os.environ, "CONFORMANCE_TEST_URL": address},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=600,
    )
