"""The page: a session in three views, in a browser; its files, and the one route that computes what
it shows.
"""

from starlette.routing import Route

from holdfast.server.page import files, views


def routes() -> list[Route]:
    """The routes of the page."""
    return [*views.routes(), *files.routes()]
