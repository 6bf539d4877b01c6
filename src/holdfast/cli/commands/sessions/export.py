"""`holdfast export`: a session written out, for programs or for people."""

import os
from collections.abc import Iterable
from typing import Any

from holdfast.cli.codes import DONE, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import opened_session
from holdfast.exporters.export import DOCUMENTS, FORMATS, export
from holdfast.exporters.safe_text import escaped


def options(parser: Parser) -> None:
    parser.add_session()
    how = f"one of {', '.join(FORMATS)} (default: holdfast)"
    parser.add_value(
        "--as", "FORMAT", how, dest="format", choices=FORMATS, default="holdfast"
    )
    file = "write to this file, which must not exist yet (default: stdout)"
    parser.add_value("--out", "PATH", file)
    keep = "leave keys, tokens and passwords in requests and documents"
    parser.add_switch("--keep-secrets", keep)
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Write a session out, for programs or for people.

    holdfast: the log itself, nothing left out; `holdfast import` makes the same session of it. JSON lines: first
    `{"holdfast": 1, "session": …}`, then every entry with `seq`, `kind`, `turn`, `id`, `at`, `note` and `body`; the
    last two are the stored JSON, byte for byte.

    goose-json: what `goose session import` takes.

    openai.chat, openai.responses, anthropic: what the model would be sent next, as a JSON object in the shape of a
    request.

    markdown, html: a document for people. What was said stands in it as plain text, never as markup.

    What looks like a key, a token or a password is replaced in requests and documents, for they are handed on; with
    --keep-secrets it stays. The other two are made to be carried on from, and have every word.

    With --json, a file that was written is reported as one object, `out`, `bytes` and `session_id`, and a document on
    stdout is wrapped in one, `markdown` or `html`; the other formats are JSON as they are.
    """
    with opened_session(options) as session:
        # A generator: a long log is written as it is read, so the store stays open
        # until all is out.
        data = export(session, options.format, secrets=options.keep_secrets)
        if options.out is None:
            _print(data, options.format, out)
            return DONE
        written = _write(options.out, data)
    facts = {"out": options.out, "bytes": written, "session_id": session.id}
    out.report(facts, f"Wrote {options.out} ({written:,} bytes)")
    return DONE


def _print(data: Iterable[bytes], format: str, out: Output) -> None:
    if format in DOCUMENTS and out.is_json:
        out.json({format: b"".join(data).decode()})
        return
    for piece in data:
        # On a terminal, what would steer it is escaped; JSON means the same then. Files and pipes
        # get the bytes.
        if out.is_terminal and format not in DOCUMENTS:
            piece = escaped(piece.decode()).encode()
        out.raw(piece)


def _write(path: str, data: Iterable[bytes]) -> int:
    """A new file, for its owner only; what could not be written whole is not left behind."""
    # O_EXCL: somebody else's file is never overwritten, not even one that appears this moment.
    try:
        number = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
        )
    except OSError as error:
        raise Stop(USAGE, f"`{path}` can't be made: {error.strerror}.") from error
    try:
        with os.fdopen(number, "wb") as file:
            return sum(file.write(piece) for piece in data)
    # Also Ctrl-C and SIGTERM: half an export looks like a whole one to a reader.
    except BaseException:
        os.unlink(path)
        raise
