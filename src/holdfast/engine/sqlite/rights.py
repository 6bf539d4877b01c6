"""Files that only their owner may read, whatever the umask is (FAULTS K5)."""

import os

OWNER_ONLY = 0o600


def make_owned(path: str) -> None:
    """Makes an empty file, unless there is one; the rights of one that is there are left as they are."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY)
    except FileExistsError:
        return
    os.fchmod(file, OWNER_ONLY)
    os.close(file)
