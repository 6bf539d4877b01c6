"""Restoring what belongs to a session beside its log: the inbox, the outbox and the events that
another store has.
"""

import apsw

from holdfast.engine.blobs import address
from holdfast.engine.protocol import Laid
from holdfast.engine.sqlite.lease_clock import NO_LEASE
from holdfast.engine.sqlite.queries import QUERIES


def restore(
    connection: apsw.Connection, session: int, tenant: str, restored: Laid
) -> None:
    """Inbox and outbox hold this and nothing else; events that are known stay as they are known."""
    run, run_many = connection.execute, connection.executemany
    run(QUERIES["remove_all_waiting"], (session,))
    run_many(
        QUERIES["add_waiting"],
        [
            (session, each.seq, each.message, each.waiter, tenant, *NO_LEASE)
            for each in restored.inbox
        ],
    )
    run(QUERIES["remove_all_debts"], (session,))
    debts = [
        (
            session,
            debt.id,
            debt.turn,
            address(debt.reply_to),
            debt.at,
            tenant,
            None,
            None,
            None,
        )
        for debt in restored.outbox
    ]
    run_many(QUERIES["add_debt"], debts)
    run_many(
        QUERIES["lay_event"],
        [(event.name, session, event.seq, event.message) for event in restored.events],
    )
