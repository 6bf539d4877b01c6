"""Restoring what belongs to a session beside its log: the inbox, the outbox and the events that
another store has.
"""

from holdfast.engine.blobs import address
from holdfast.engine.protocol import Laid
from holdfast.engine.sqlite.lease_clock import NO_LEASE
from holdfast.engine.sqlite.queries import Statements

NO_CLAIM = (None, None, None)


def restore(statements: Statements, session: int, tenant: str, restored: Laid) -> None:
    """Inbox and outbox hold this and nothing else; events that are known stay as they are known."""
    run = statements.run
    run("remove_all_waiting", session)
    for each in restored.inbox:
        who = (each.message, each.waiter, tenant)
        run("add_waiting", session, each.seq, *who, *NO_LEASE)
    run("remove_all_debts", session)
    for debt in restored.outbox:
        owed = (debt.id, debt.turn, address(debt.reply_to), debt.at)
        run("add_debt", session, *owed, tenant, *NO_CLAIM)
    for event in restored.events:
        run("restore_event", event.name, session, event.seq, event.message)
