"""The OpenAPI document, made from the routes themselves: what is documented is what is done."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from holdfast.server.operations import Operation, WireRequest, answer, route
from holdfast.server.problems import MEDIA_TYPE, STATUS, WIRE_STATUS

Json = dict[str, Any]
REFERENCE = "#/components/schemas/{name}"


class ProblemRecord(msgspec.Struct, frozen=True):
    """What went wrong; `code` is stable, `detail` is for people. The fields of the error stand
    beside these.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str


def document(routes: Iterable[BaseRoute], version: str) -> Json:
    """The document for these routes."""
    operations = [each for each in map(operation_of, routes) if each is not None]
    types: list[Any] = [ProblemRecord]
    for operation in operations:
        wanted = (operation.body, operation.query, operation.gives)
        types += [each for each in wanted if each is not None and each not in types]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    # By `repr`: not all of them are classes with a name (`Compaction | None`).
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: Json = {}
    for operation in operations:
        item = paths.setdefault(operation.path, {})
        item[operation.method.lower()] = _described(operation, known, components)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def operation_of(each: BaseRoute) -> Operation | None:
    """What is said of a route."""
    found: Operation | None = getattr(
        getattr(each, "endpoint", None), "operation", None
    )
    return found


def _described(operation: Operation, known: Json, components: Json) -> Json:
    told: Json = {
        "summary": operation.about.partition(". ")[0].rstrip(".") + ".",
        "description": operation.about,
        "operationId": _name_of(operation),
        "parameters": _parameters(operation, components),
        "responses": _responses(operation, known),
        "security": [] if operation.scope is None else [{"token": []}],
        "x-scope": operation.scope,
    }
    if operation.body is not None:
        schema = known[repr(operation.body)]
        content = {"application/json": {"schema": schema}}
        # Nothing at all is taken for an empty object.
        fields = msgspec.structs.fields(operation.body)
        is_needed = any(each.required for each in fields)
        told["requestBody"] = {"required": is_needed, "content": content}
    return told


def _name_of(operation: Operation) -> str:
    path = operation.path.replace("/v1/", "/")
    words = re.findall(r"\w+", path)
    name = "_".join([operation.method.lower(), *words])
    return name.replace(".", "_")


def _parameters(operation: Operation, components: Json) -> list[Json]:
    found: list[Json] = []
    for name in re.findall(r"{(\w+)}", operation.path):
        found.append(_parameter("path", name, {"type": "string"}, required=True))
    if operation.query is not None:
        shape = components[operation.query.__name__]
        for name, schema in shape["properties"].items():
            required = name in shape.get("required", ())
            found.append(_parameter("query", name, schema, required=required))
    if operation.takes_key:
        schema = {"type": "string", "minLength": 1, "maxLength": 255}
        found.append(_parameter("header", "Idempotency-Key", schema))
    if operation.takes_match:
        found.append(_parameter("header", "If-Match", {"type": "string"}))
    if operation.takes_tag:
        found.append(_parameter("header", "If-None-Match", {"type": "string"}))
    return found


def _parameter(place: str, name: str, schema: Json, *, required: bool = False) -> Json:
    return {"in": place, "name": name, "required": required, "schema": schema}


def _responses(operation: Operation, known: Json) -> Json:
    schema = {} if operation.gives is None else known[repr(operation.gives)]
    done = {"description": "Done.", "content": {operation.media: {"schema": schema}}}
    told: Json = {str(operation.status): done}
    if operation.nothing is not None:
        told["204"] = {"description": operation.nothing}
    codes: dict[int, list[str]] = {}
    for code, status in {**STATUS, **WIRE_STATUS}.items():
        codes.setdefault(status, []).append(f"`{code}`")
    content = {MEDIA_TYPE: {"schema": known[repr(ProblemRecord)]}}
    for status in sorted(codes):
        words = ", ".join(codes[status])
        told[str(status)] = {"description": words, "content": content}
    if operation.takes_tag:
        told["304"] = {"description": "There is nothing new since the `ETag`."}
    return told


async def show(request: WireRequest) -> Response:
    """This document."""
    return answer(request.request.app.state.document)


def routes() -> list[Route]:
    """The routes of this module."""
    return [route("GET", "/openapi.json", show, scope=None, gives=dict[str, Any])]
