"""goose 1.52.0 on this machine: had from npm, run as it is on x86-64, and through qemu elsewhere.

The release is for x86-64. On another machine, qemu and the few libraries that goose asks for come
as Debian packages, unpacked into the environment's folder with a package list of their own: nothing
is installed, no setting of the machine is changed, and no rights are needed.
"""

import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

PACKAGE = "@aaif/goose-binary-linux-x64@1.52.0"
LIBRARIES = ("libc6", "libstdc++6", "libgcc-s1")
LOADER = "ld-linux-x86-64.so.2"


def goose_command(environment: Path) -> list[str]:
    """How goose is called; the first time, it is fetched."""
    program = environment / "package" / "bin" / "goose"
    root = environment / "amd64"
    if not (environment / "fetched").exists():
        print(f"fetching {PACKAGE} (once) ...", file=sys.stderr, flush=True)
        _fetch_goose(environment)
        if not _is_native():
            _fetch_qemu(environment, root)
        (environment / "fetched").touch()
    if _is_native():
        return [str(program)]
    qemu = next(path for path in sorted(root.glob("usr/bin/qemu-x86_64*")))
    return [str(qemu), "-L", str(root), str(program)]


def _is_native() -> bool:
    return platform.machine() in ("x86_64", "amd64")


def _fetch_goose(environment: Path) -> None:
    environment.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["npm", "pack", "--silent", PACKAGE], cwd=environment, check=True, stdout=subprocess.DEVNULL
    )
    (archive,) = environment.glob("*.tgz")
    with tarfile.open(archive) as packed:
        packed.extractall(environment, filter="data")
    archive.unlink()
    (environment / "package" / "bin" / "goose").chmod(0o755)


def _fetch_qemu(environment: Path, root: Path) -> None:
    packages = environment / "packages"
    shutil.rmtree(packages, ignore_errors=True)
    native = subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()
    for architecture, names in ((native, ("qemu-user-static",)), ("amd64", LIBRARIES)):
        folder = packages / architecture
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True)
        apt = ["apt-get", "-qq", *(f"-o{option}" for option in _options(folder, architecture))]
        subprocess.run([*apt, "update"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(
            [*apt, "download", *names], cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
        for archive in sorted(folder.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", archive, root], check=True)
    shutil.rmtree(packages)
    # The loader is a link from the root of a machine that this is not.
    loader = root / "lib64" / LOADER
    (found,) = (
        path
        for path in root.glob(f"**/x86_64-linux-gnu/{LOADER}")
        if path.is_file() and not path.is_symlink()
    )
    loader.parent.mkdir(exist_ok=True)
    loader.unlink(missing_ok=True)
    loader.symlink_to(os.path.relpath(found, loader.parent))


def _options(folder: Path, architecture: str) -> list[str]:
    return [
        f"APT::Architecture={architecture}",
        f"APT::Architectures={architecture}",
        "APT::Sandbox::User=root",
        f"Dir::State::Lists={folder / 'lists'}",
        "Dir::State::status=/dev/null",
        f"Dir::Cache={folder / 'cache'}",
    ]
