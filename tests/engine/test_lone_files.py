"""A store whose log would lie elsewhere is refused: what is acknowledged would be lost with it
(I-3, FAULTS G7).
"""

import os
from pathlib import Path

import pytest

import holdfast
import namespaces
import procs
from holdfast.errors import StoreUnavailable

OPENS = """
    import holdfast
    from holdfast.errors import StoreUnavailable
    for read_only in (False, True):
        try:
            with holdfast.open(sys.argv[1], read_only=read_only) as store:
                say("opened", len(list(store.sessions())))
        except StoreUnavailable as error:
            say(error)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with holdfast.open(folder / "agent.db") as store:
        store.session("k").append("hello")
    return folder / "agent.db"


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_with_two_names_is_refused_under_both(path: Path, read_only: bool) -> None:
    other = path.with_name("other.db")
    os.link(path, other)
    before = sorted(os.listdir(path.parent))
    for name in (path, other):
        with pytest.raises(StoreUnavailable, match="hard link") as caught:
            holdfast.open(name, read_only=read_only)
        assert "holdfast store backup" in caught.value.remedy
    assert sorted(os.listdir(path.parent)) == before
    other.unlink()
    with holdfast.open(path, read_only=read_only) as store:
        assert len(list(store.session("k").transcript())) == 1


def mounting(source: Path, point: Path) -> list[str]:
    return [*namespaces.UNSHARE, "sh", "-ec", f'mount --bind {source} {point}\nexec "$@"', "sh"]


def test_a_file_that_is_mounted_alone_is_refused_with_what_to_mount_instead(
    path: Path, tmp_path: Path
) -> None:
    point = tmp_path / "alone.db"
    point.touch()
    told = procs.run(OPENS, point, within=mounting(path, point))
    assert len(told) == 2 and all("only the file itself is mounted" in line for line in told), told
    assert f"-v ./data:{tmp_path}" in told[0]


def test_a_folder_that_is_mounted_is_a_place_like_any_other(path: Path, tmp_path: Path) -> None:
    point = tmp_path / "mounted"
    point.mkdir()
    told = procs.run(OPENS, point / "agent.db", within=mounting(path.parent, point))
    assert told == ["opened 1", "opened 1"]
