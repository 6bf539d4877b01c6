"""`holdfast store info`: what is in a store."""

from typing import Any

from holdfast.cli.codes import DONE
from holdfast.cli.output import Output
from holdfast.cli.parser import Parser
from holdfast.cli.targets import opened
from holdfast.exporters import units


def options(parser: Parser) -> None:
    parser.add_store()


def run(options: Any, out: Output) -> int:
    """Show what is in a store and how large it is, all tenants together.

    With --json, one object with the fields of `Store.info()`.
    """
    with opened(options) as store:
        info = store.info()
    if out.is_json:
        out.json(info)
        return DONE
    for name, text in _facts(info).items():
        out.line((f"{name:<11} ", "quiet"), text)
    for name, size in info.files.items():
        out.line((f"{'':<11} ", "quiet"), (f"{units.size(size):>11}  {name}", "quiet"))
    return DONE


def _facts(info: Any) -> dict[str, str]:
    held = [
        units.many(info.sessions, "session"),
        units.many(info.entries, "entry", "entries"),
        units.many(info.tenants, "tenant"),
    ]
    active = "none yet"
    if info.active_at is not None:
        active = units.moment(info.active_at)
    facts = {
        "store": info.where,
        "holds": ", ".join(held),
        "last entry": active,
        "format": f"{info.version}, {info.engine}",
    }
    # A server tells of its standbys; a file, of the file system that it lies on.
    if info.replication is None:
        facts["file system"] = info.file_system or "unknown"
    else:
        facts["replicated"] = info.replication
    return {**facts, "size": units.size(info.bytes)}
