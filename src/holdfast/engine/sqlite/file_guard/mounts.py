"""Which file system a path lies on. SQLite's log needs locks and memory that all processes share,
and a network file system gives neither (FAULTS G7).
"""

import os
import re
from typing import NamedTuple

from holdfast.errors import StoreUnavailable

MOUNTS = "/proc/self/mountinfo"

# Not 9p and virtiofs, which share a disk of the same machine, and not every kind of
# fuse: most are
# local.
REMOTE = {
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "davfs",
    "fhgfs",
    "glusterfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "orangefs",
    "pvfs2",
    "smb3",
    "smbfs",
    "fuse.beegfs",
    "fuse.ceph",
    "fuse.curlftpfs",
    "fuse.davfs",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.goofys",
    "fuse.juicefs",
    "fuse.mfs",
    "fuse.mount.davfs",
    "fuse.rclone",
    "fuse.s3fs",
    "fuse.smbnetfs",
    "fuse.sshfs",
}


class Mount(NamedTuple):
    """Where a file system is mounted, and of what kind it is."""

    point: str
    kind: str


def mount_of(path: str, mounts: str) -> Mount | None:
    """The mount that an absolute path lies on, given the text of `mountinfo`; of two on one point
    the later counts.
    """
    found: Mount | None = None
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        fields, kinds = before.split(" "), after.split(" ")
        if len(fields) < 5 or not kinds[0]:
            continue
        point = re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])
        if _is_within(path, point) and (
            found is None or len(point) >= len(found.point)
        ):
            found = Mount(point, kinds[0])
    return found


def _is_within(path: str, point: str) -> bool:
    return path == point or path.startswith(point.rstrip("/") + "/")


def mounted(path: str) -> Mount | None:
    """The mount that this path lies on; None where the system does not tell."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return mount_of(os.path.realpath(path), file.read())
    except OSError:
        return None


def refuse_lone_file(path: str) -> None:
    """Refuses a file whose log would lie where others do not look for it: the log lies beside the
    name by which the store was opened, and two names are two logs.
    """
    if not os.path.isfile(path):
        return
    if os.stat(path).st_nlink > 1:
        raise StoreUnavailable(
            where=path,
            problem="it is a hard link: under its other name it has another log, and what is "
            "written under one name is "
            "missing under the other",
            remedy="Keep one name and remove the others, or make a copy with `holdfast store "
            "backup`",
        )
    mount = mounted(path)
    if mount is not None and mount.point == os.path.realpath(path):
        raise StoreUnavailable(
            where=path,
            problem="only the file itself is mounted here: its log would lie outside of the mount "
            "and be lost with it",
            remedy="Mount a folder with the file in it, not the file: for example -v "
            f"./data:{os.path.dirname(path)}",
        )


def refuse_remote(path: str) -> None:
    """Refuses a path on a network file system."""
    mount = mounted(path)
    if mount is not None and mount.kind in REMOTE:
        raise StoreUnavailable(
            where=path,
            problem=f"it lies on {mount.kind}, a network file system mounted at {mount.point}, "
            "where several processes would damage it",
            remedy="Keep it on a local disk",
        )
