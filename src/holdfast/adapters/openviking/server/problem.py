"""What a client is told when its request can't be done: OpenViking's codes, each with its status."""

from typing import Any

from holdfast.errors import (
    CallerMistake,
    HoldfastError,
    NotFound,
    Overtaken,
    TryAgain,
)

STATUS = {
    "INVALID_ARGUMENT": 400,
    "INVALID_URI": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "CONFLICT": 409,
    "FAILED_PRECONDITION": 412,
    "RESOURCE_EXHAUSTED": 413,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
}


class RequestProblem(Exception):
    """A request that was refused."""

    def __init__(
        self,
        code: str,
        message: str,
        details: Any = None,
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.details = code, message, details

    @property
    def status(self) -> int:
        return STATUS[self.code]


def not_found(what: str, name: str) -> RequestProblem:
    """There is no such thing, or it is somebody else's."""
    details = {"resource": name, "type": what}
    return RequestProblem(
        "NOT_FOUND", f"{what.capitalize()} not found: {name}", details
    )


def problem_of(error: HoldfastError) -> RequestProblem:
    """What an error of the store is to a client. Its words may name places on this machine, and are
    told only when the client can do something about it.
    """
    if isinstance(error, NotFound | Overtaken):
        return RequestProblem(
            "NOT_FOUND",
            "The session is not there any more.",
        )
    if isinstance(error, CallerMistake):
        return RequestProblem("INVALID_ARGUMENT", str(error))
    if isinstance(error, TryAgain):
        return RequestProblem(
            "CONFLICT", "The session has changed meanwhile; try again."
        )
    return RequestProblem(
        "UNAVAILABLE", "The store can't be used now; try again later."
    )
