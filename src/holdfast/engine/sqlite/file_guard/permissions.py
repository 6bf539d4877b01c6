"""Files that only their owner may read, whatever the umask is (FAULTS K5)."""

import os
import warnings

from holdfast.errors import OpenToOthers

OWNER_ONLY = 0o600


def warn_of_others(path: str) -> None:
    """Says so when a file of the store may be used by every user of the machine. Whoever shares it
    with a group means to.
    """
    mode = os.stat(path).st_mode & 0o777
    if mode & 0o007:
        remedy = f"Run `chmod o-rwx {path}`, and the same for the files beside it"
        warnings.warn(
            OpenToOthers(where=path, mode=f"{mode:o}", remedy=remedy), stacklevel=2
        )


def make_owned(path: str) -> None:
    """Makes an empty file, unless there is one; the rights of one that is there are left as they
    are.
    """
    try:
        file = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, OWNER_ONLY
        )
    except FileExistsError:
        return
    # the umask may have taken away even what the owner needs
    os.fchmod(file, OWNER_ONLY)
    os.close(file)
