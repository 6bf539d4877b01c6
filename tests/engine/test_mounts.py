"""Which file system a store lies on, and that a network one is refused before anything is made
there (FAULTS G7).
"""

from pathlib import Path

import pytest

import holdfast
from holdfast.engine.sqlite.file_guard import mounts
from holdfast.engine.sqlite.file_guard.mounts import REMOTE, Mount, mount_of
from holdfast.errors import StoreUnavailable

LOCAL = """\
21 1 254:0 / / rw,relatime - ext4 /dev/root rw
22 21 0:20 / /proc rw,nosuid,nodev,noexec,relatime shared:12 - proc proc rw
23 21 0:21 / /tmp rw,nosuid,nodev shared:13 - tmpfs tmpfs rw,size=1024k
24 21 0:22 / /mnt rw - 9p hostshare rw,trans=virtio
"""


def line(point: str, kind: str) -> str:
    return f"40 21 0:40 / {point} rw,relatime shared:7 - {kind} server:/export rw,vers=4.2\n"


def test_a_path_lies_on_the_mount_with_the_longest_prefix() -> None:
    text = LOCAL + line("/data", "nfs4") + line("/data/local", "xfs")
    for path, point, kind in [
        ("/agent.db", "/", "ext4"),
        ("/data/agent.db", "/data", "nfs4"),
        ("/data/local/agent.db", "/data/local", "xfs"),
        ("/data/locality/agent.db", "/data", "nfs4"),
        ("/database/agent.db", "/", "ext4"),
        ("/data", "/data", "nfs4"),
        ("/tmp/x/y/z", "/tmp", "tmpfs"),
    ]:
        assert mount_of(path, text) == Mount(point, kind), path


def test_of_two_mounts_on_one_point_the_later_counts() -> None:
    assert mount_of("/data/a", line("/data", "ext4") + line("/data", "nfs")) == Mount(
        "/data", "nfs"
    )
    assert mount_of("/data/a", line("/data", "nfs") + line("/data", "ext4")) == Mount(
        "/data", "ext4"
    )


def test_a_mount_point_with_spaces_is_read_as_the_kernel_writes_it() -> None:
    assert mount_of("/my data/agent.db", line(r"/my\040data", "cifs")) == Mount("/my data", "cifs")


def test_what_can_not_be_understood_is_skipped() -> None:
    assert mount_of("/a", "") is None
    assert mount_of("/a", "nonsense\n\n1 2 3\n- - -\n" + LOCAL) == Mount("/", "ext4")


@pytest.fixture
def mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of which the kernel says what a test tells it to say."""
    told = tmp_path / "mountinfo"
    monkeypatch.setattr(mounts, "MOUNTS", str(told))
    (tmp_path / "data").mkdir()
    return told


@pytest.mark.parametrize("kind", sorted(REMOTE))
def test_a_store_on_a_network_file_system_is_refused_with_a_remedy(
    kind: str, mounted: Path, tmp_path: Path
) -> None:
    """G7: and nothing is left there."""
    mounted.write_text(LOCAL + line(str(tmp_path / "data"), kind))
    with pytest.raises(StoreUnavailable) as caught:
        holdfast.open(tmp_path / "data" / "agent.db")
    assert kind in caught.value.problem and str(tmp_path / "data") in caught.value.problem
    assert "local disk" in caught.value.remedy
    assert list((tmp_path / "data").iterdir()) == []


@pytest.mark.parametrize(
    "kind", ["ext4", "xfs", "btrfs", "zfs", "tmpfs", "overlay", "9p", "virtiofs", "fuse", "fuseblk"]
)
def test_a_store_on_a_local_file_system_is_not_refused(
    kind: str, mounted: Path, tmp_path: Path
) -> None:
    mounted.write_text(LOCAL + line(str(tmp_path / "data"), kind))
    with holdfast.open(tmp_path / "data" / "agent.db") as store:
        assert store.info().file_system == kind


def test_a_link_to_a_network_file_system_is_followed(mounted: Path, tmp_path: Path) -> None:
    mounted.write_text(LOCAL + line(str(tmp_path / "data"), "nfs4"))
    (tmp_path / "link").symlink_to(tmp_path / "data")
    with pytest.raises(StoreUnavailable, match="nfs4"):
        holdfast.open(tmp_path / "link" / "agent.db")


def test_a_system_that_does_not_tell_its_mounts_is_believed(mounted: Path, tmp_path: Path) -> None:
    assert not mounted.exists()
    with holdfast.open(tmp_path / "data" / "agent.db") as store:
        assert store.info().file_system is None
