"""An environment that looks like one with Hermes Agent in it: a Python of its own, the package's
metadata, a `hermes` command, and modules with the names that are patched.
"""

import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HERMES = """\
#!{python}
import sys
print("hermes", *sys.argv[1:])
import hermes_state
print(hermes_state.SessionDB.__init__.__name__)
sys.exit(3 if "fail" in sys.argv else 0)
"""


def made(folder, *, version="0.19.0", holdfast=True, modules=None):
    """The path of the environment's Python."""
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    lib = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / lib / "site-packages"
    if version is not None:
        described(site, "hermes_agent", version)
    if holdfast:
        described(site, "holdfast", "0.1.0")
        # What Holdfast needs is taken from where these tests run.
        paths = [str(ROOT / "src"), sysconfig.get_paths()["purelib"]]
        (site / "borrowed.pth").write_text("\n".join(paths) + "\n")
    for name, text in (modules or {}).items():
        place = site / (name.replace(".", "/") + ".py")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    hermes = folder / "bin" / "hermes"
    hermes.write_text(HERMES.format(python=python))
    hermes.chmod(0o755)
    return python


def described(site, name, version):
    folder = site / f"{name}-{version}.dist-info"
    folder.mkdir()
    name = name.replace("_", "-")
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
