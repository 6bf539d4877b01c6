"""The files of the page, as they are served: each at an address of its own, and nothing else.

They hold nothing of the store, and are open to everybody. What the page shows it asks for with a
token, which reaches it in the part of an address that browsers send to nobody. It runs its own files
and no others, makes no markup of anything that was said, and asks nobody but this server: its policy
tells the browser to insist on that.
"""

from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.server.auth import needs

FOLDER = Path(__file__).parent / "files"
INDEX = "index.html"
MEDIA = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        # No text can become markup, whatever the scripts do with it.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    ]
)
HEADERS = {
    "content-security-policy": POLICY,
    "cross-origin-opener-policy": "same-origin",
}


def routes() -> list[Route]:
    """One route for each file."""
    found = []
    for path in sorted(FOLDER.iterdir()):
        if path.suffix in MEDIA:
            address = "/" if path.name == INDEX else f"/page/{path.name}"
            found.append(Route(address, _serving(path), methods=["GET"]))
    return found


def _serving(path: Path) -> Any:
    content, media = path.read_bytes(), MEDIA[path.suffix]

    @needs(None)
    async def endpoint(request: Request) -> Response:
        return Response(content, headers=HEADERS, media_type=media)

    return endpoint
