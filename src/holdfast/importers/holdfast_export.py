"""A session that `holdfast export --as holdfast` wrote: known by how it begins, however damaged the
rest of it is.
"""

import re
import stat
from pathlib import Path

from holdfast.importers.private_copy import read_start
from holdfast.importers.values import StrPath

_START = re.compile(rb'\{"holdfast": ?[0-9]+ ?,')


def is_written_out(path: StrPath) -> bool:
    """Whether this is a file that begins as such a session does."""
    try:
        # A pipe is not read from: what is taken out is gone, and it may block.
        return stat.S_ISREG(Path(path).stat().st_mode) and bool(
            _START.match(read_start(path, 64))
        )
    except OSError:
        return False
