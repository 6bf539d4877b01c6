"""`holdfast import`: the sessions of another program, or of another store, brought into
this one.
"""

import os
import shlex
from contextlib import closing
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

import holdfast
from holdfast.cli.codes import BUSY, DONE, NOT_FOUND, OPERATOR, USAGE, Stop
from holdfast.cli.output import Output
from holdfast.cli.parser import STORE, STORE_VARIABLE, Parser, default_store
from holdfast.cli.targets import access, is_address
from holdfast.doctor.holdfast import records as own_stores
from holdfast.engine.address import shown
from holdfast.errors import Conflict, Damaged, StoreUnavailable
from holdfast.exporters import units
from holdfast.importers import detect
from holdfast.importers.damaged_stores import damage_at
from holdfast.importers.holdfast_export import is_written_out
from holdfast.importers.reader import UnreadableRecord
from holdfast.runtime.transfer.exported_file import EXPORT
from holdfast.runtime.transfer.import_store import ImportedStore, bring
from holdfast.runtime.transfer.restore import restore
from holdfast.runtime.transfer.restore_order import in_order

OWN, OWN_STORE = "holdfast", "holdfast store"
"""A session that `holdfast export` wrote; a whole store of ours, which `holdfast copy`
brings over.
"""
Brought = tuple[ImportedStore, list[UnreadableRecord], dict[str, int]]
"""What came of a store, the records that could not be read, and how many there are of each type
that no reader knows.
"""
WHOLE = "the whole store"
ITS_SESSION = "the session"
CODES = {WHOLE: OPERATOR, ITS_SESSION: BUSY}
"""What a command ends with that has left this out; the highest counts."""
COMMANDS_MAX = 3


def options(parser: Parser) -> None:
    parser.usage = f"{parser.prog} PATH... [options]"
    help = "a store of another program: a file, a folder, or a folder with stores in it"
    parser.add_value("paths", "PATH", help, nargs="+")
    into = (
        f"the Holdfast store, created if there is none (default: ${STORE_VARIABLE}, "
        f"else {STORE})"
    )
    parser.add_value("--into", "STORE", into, default=default_store())
    tenant = "the tenant they go to (default: default)"
    parser.add_value("--tenant", "NAME", tenant, default="default")
    parser.add_value("--session", "ID", "import only this session")
    same = (
        "this is the store that was brought from OTHER before: it has moved, or is a copy that "
        "went on"
    )
    parser.add_value("--same-as", "OTHER", same)
    owed = (
        "replies that an exported session owed are owed again, and gateways will send them "
        "(default: they are not)"
    )
    parser.add_switch("--with-outbox", owed)
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Import the sessions of another program.

    Takes what `holdfast doctor` knows: Hermes, goose, OpenViking, Claude Code, Codex, the OpenAI Agents SDK; and what
    `holdfast export --as holdfast` wrote. Everything comes as it is: words, payloads, times, usage, what is hidden from
    the model, what goes on from what. Importing again adds what is new since, and nothing else. What is damaged is left
    out and told; `holdfast doctor PATH --heal OUT` makes a healed store instead.

    A store is known again by its path, for ids like `user_1` are the same in many stores. One that has moved, or a copy
    of it, is declared with --same-as and the path that it had when it was brought over; sessions of Hermes, Claude Code
    and Codex whose ids are drawn by chance are known wherever they lie. Two conversations that differ stay two.

    A folder means all stores in it, and in the folders below. One that can't be read is told and keeps none of the
    others from coming; then the exit code is 5. So does an exported session that went on differently here; with nothing
    worse, the exit code is 4. A Holdfast store is not imported: `holdfast copy` brings it over.

    With --json, one object: `into` and `stores`, each with `kind`, `path`, `sessions`, `new`, `grown`, `empty`,
    `messages`, `labels`, `summaries`, `opaque`, `notes`, `unreadable` and `not_examined`, which counts the records of
    types that no reader here knows.
    """
    found: list[tuple[str, str]] = []
    for given in options.paths:
        found += _stores_at(given, options, out)
    found = _ordered(found)
    if options.same_as is not None and len(found) != 1:
        raise Stop(
            USAGE,
            f"--same-as is for one store, and there are {len(found)} at these paths.",
        )
    if options.session is not None:
        _insist_on_session(options.session, found)
    # One store after another, each told when it is in: what came before a failure has come.
    stores = []
    code = DONE
    # Opened after the look at the paths: a path that means nothing must not leave an
    # empty store behind.
    with holdfast.open(
        options.into, tenant=options.tenant, **access(options.into)
    ) as store:
        for kind, path in found:
            brought, unreadable, unknown = _import_or_report(
                store, kind, path, options, out, alone=len(found) == 1
            )
            code = max(
                code, *(CODES.get(each.place, DONE) for each in unreadable), DONE
            )
            lost = [f"{each.place}: {each.problem}" for each in unreadable]
            rest = {"unreadable": lost, "not_examined": unknown}
            stores.append({"kind": kind, "path": path, **asdict(brought), **rest})
            if not out.is_json:
                _show(out, path, brought, lost, unknown)
    if out.is_json:
        out.json({"into": shown(options.into), "stores": stores})
    return code


def _ordered(stores: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """The stores in the order in which they are imported: exported sessions after those that they
    need.
    """
    own = iter(in_order([path for kind, path in stores if kind == OWN]))
    return [(kind, next(own) if kind == OWN else path) for kind, path in stores]


def _insist_on_session(session: str, stores: list[tuple[str, str]]) -> None:
    """Ends the command unless one of the stores has this session, before anything is made."""
    for kind, path in stores:
        if kind == OWN:
            return  # an export is one session, whose id it has in it
        if kind == detect.UNKNOWN:
            continue
        try:
            reader = detect.open_reader(kind, path)
        except StoreUnavailable:
            return  # it is told when it is imported
        with closing(reader):
            if next(reader.sessions(session), None) is not None:
                return
    raise Stop(
        NOT_FOUND, f"There is no session `{session}` in what was to be imported."
    )


def _stores_at(path: str, options: Any, out: Output) -> list[tuple[str, str]]:
    """The stores that a path means and that can be imported, each with its kind; damaged ones are
    reported later. Holdfast stores are reported here, but for the one that the others go to.
    """
    if is_address(path):
        raise Stop(
            USAGE,
            f"`{shown(path)}` is no file, and import reads files of other programs. "
            "`holdfast copy` brings a Holdfast store over, from there too.",
        )
    if not os.path.exists(path):
        raise Stop(NOT_FOUND, f"There is nothing at `{path}`.")
    own: list[str] = []
    itself: list[str] = []
    others: list[tuple[str, str]] = []
    for kind, store in detect.stores_at(path, _kind_of):
        if kind != OWN_STORE:
            others.append((kind, store))
        elif not _is_same(store, options.into):
            own.append(store)
        else:
            itself.append(store)
    if itself and not own and not others:
        raise Stop(USAGE, _is_itself(itself[0]))
    if own and not others:
        raise Stop(USAGE, _is_ours(own, options.into))
    if all(kind == detect.UNKNOWN for kind, _ in others):
        raise Stop(
            NOT_FOUND,
            f"`{path}` is no store that can be imported; `holdfast doctor {path}` says more.",
        )
    if own:
        out.say_wrapped(_is_ours(own, options.into))
    return others


def _kind_of(path: str | os.PathLike[str]) -> str | None:
    if is_written_out(path):
        return OWN
    if own_stores.recognises(Path(path)):
        return OWN_STORE
    return detect.kind_of(path)


def _is_same(path: str, into: str) -> bool:
    # The target may lie in the folder that is imported.
    if is_address(into) or not os.path.exists(into):
        return False
    return os.path.samefile(path, into)


def _is_ours(stores: list[str], into: str) -> str:
    """What to do with stores of ours, which other stores are not imported from."""
    to = "ADDRESS" if is_address(into) else shlex.quote(into)
    commands = [
        f"`holdfast copy {shlex.quote(store)} {to}`" for store in stores[:COMMANDS_MAX]
    ]
    if len(stores) == 1:
        return f"`{stores[0]}` is a Holdfast store; {commands[0]} copies its sessions."
    listed = ", ".join(commands)
    if len(stores) > COMMANDS_MAX:
        listed += f", and so on for {len(stores)} stores"
    return f"{len(stores)} Holdfast stores are not imported but copied: {listed}."


def _is_itself(store: str) -> str:
    return (
        f"`{store}` is a Holdfast store, and the one to import into; "
        f"`holdfast copy {shlex.quote(store)} OTHER` copies its sessions into another."
    )


def _import_or_report(
    store: holdfast.Store,
    kind: str,
    path: str,
    options: Any,
    out: Output,
    *,
    alone: bool,
) -> Brought:
    """Brings a store over. One that can't be read, or that went on differently here, keeps none of
    the others from coming.
    """
    place = WHOLE
    try:
        if kind != detect.UNKNOWN:
            return _bring(store, kind, path, options, out)
        problem = damage_at(path) or "It was damaged, and is gone by now."
    except StoreUnavailable as error:
        # The target can't be used, or there is nothing else to go on with.
        if alone or error.where != path:
            raise
        problem = str(error)
    except Damaged as error:
        # The same: what is damaged may be the target.
        if alone or error.what != EXPORT:
            raise
        problem = str(error)
    except Conflict as error:
        if alone:
            raise
        place, problem = ITS_SESSION, str(error)
    return ImportedStore(notes=[]), [UnreadableRecord(None, place, problem)], {}


def _bring(
    store: holdfast.Store, kind: str, path: str, options: Any, out: Output
) -> Brought:
    if kind == OWN:
        # All or nothing: an export is vetted before any of it is stored, so nothing of
        # it is left out.
        return restore(store, Path(path), outbox=options.with_outbox), [], {}
    reader = detect.open_reader(kind, path)
    session = options.session
    total = 0
    try:
        if out.is_watched:  # only a progress bar needs to know how many there are
            total = sum(1 for _ in reader.sessions(session))
        known_as = path if options.same_as is None else options.same_as
        source = detect.source_of(known_as)
        brought = bring(
            store,
            reader.sessions(session),
            source=source,
            tell=lambda so_far: _show_progress(out, so_far, total),
        )
        # Asked after the reading: a reader knows only then what it could not read.
        return brought, reader.unreadable(), reader.not_examined()
    finally:
        out.over(None)
        reader.close()


def _show_progress(out: Output, so_far: ImportedStore, total: int) -> None:
    more = f"{so_far.sessions:,} of {units.many(total, 'session')}, {so_far.messages:,} messages"
    out.bar(so_far.sessions, total, more)


def _show(
    out: Output,
    path: str,
    brought: ImportedStore,
    lost: list[str],
    unknown: dict[str, int],
) -> None:
    came = f"{units.many(brought.new, 'new session')}, {brought.grown:,} grown, "
    came += f"{units.many(brought.messages, 'message')} added"
    out.line((path, "strong"), f"  {units.many(brought.sessions, 'session')}: {came}")
    for note in brought.notes:
        out.say(f"  {note}")
    for each in lost:
        out.say(("  left out: ", "hit"), each)
    if unknown:
        out.say(f"  {units.not_examined(unknown)}")
