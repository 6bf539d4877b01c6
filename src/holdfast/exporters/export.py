"""A session in the form that was asked for."""

from collections.abc import Iterator

import holdfast
from holdfast.exporters.document import document
from holdfast.exporters.entry_json import encoded, record
from holdfast.exporters.html import html
from holdfast.exporters.markdown import markdown
from holdfast.exporters.redaction import redacted_pieces
from holdfast.formats.secret_shapes import redacted_value
from holdfast.importers.values import JsonObject
from holdfast.runtime.transfer.exported_file import VERSION
from holdfast.runtime.transfer.restore import standing_of

# The provider formats, and what their requests call the list.
REQUESTS = {
    "openai.chat": "messages",
    "openai.responses": "input",
    "anthropic": "messages",
}
# What people read.
DOCUMENTS = {"markdown": markdown, "html": html}
FORMATS = ("holdfast", "goose-json", *REQUESTS, *DOCUMENTS)


def export(
    session: holdfast.Session, format: str, *, secrets: bool = False
) -> Iterator[bytes]:
    """A session in one of `FORMATS`, piece by piece: a long one is never whole in memory (I-24).

    What looks like a secret is left out of requests and documents, unless `secrets` are wanted.
    `holdfast` and `goose-json` are made to be carried on from, and have every word.
    """
    if format == "holdfast":
        header = {
            "holdfast": VERSION,
            "session": session.info(),
            "standing": standing_of(session),
        }
        yield encoded(header) + b"\n"
        for entry in session.entries():
            yield encoded(record(entry)) + b"\n"
    elif format == "goose-json":
        from holdfast.exporters.goose_json import goose_json  # for those who ask for it

        yield encoded(goose_json(session)) + b"\n"
    elif format in DOCUMENTS:
        pieces = document(session)
        if not secrets:
            pieces = redacted_pieces(pieces)
        for line in DOCUMENTS[format](pieces):
            yield line.encode() + b"\n"
    else:
        context = session.context(format)
        request: JsonObject = {}
        # In the other formats the instructions stand among the messages.
        if format == "anthropic" and context.instructions:
            request["system"] = context.instructions
        request[REQUESTS[format]] = list(context)
        yield encoded(request if secrets else redacted_value(request)) + b"\n"
