"""A commit that was done, and whose caller does not hear of it."""


class TornTicket:
    """A commit that was done, and whose caller gets Ctrl-C instead of hearing of it."""

    def __init__(self, ticket):
        self._ticket = ticket

    @property
    def done(self):
        return self._ticket.done

    def result(self):
        self._ticket.result()
        raise KeyboardInterrupt
