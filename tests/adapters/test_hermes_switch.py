"""Switching Holdfast on under Hermes and off again: real Pythons that start with it and without."""

import os
import sqlite3
import subprocess
import sys

import pytest

import hermes_environments
import holdfast
from commanding import command, process
from holdfast.adapters.hermes import hook, switch
from holdfast.adapters.hermes.received import given_up

STATE = """
class SessionDB:
    def __init__(self, db_path=None, read_only=False):
        pass
"""
HOOK = "import sys; print(any(hasattr(each, 'is_holdfast_for_hermes') for each in sys.meta_path))"


def asked(python, code, **env):
    given = {**os.environ, **env}
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, env=given)
    return done.returncode, done.stdout.strip(), done.stderr.strip()


@pytest.fixture
def python(tmp_path):
    return hermes_environments.made(tmp_path / "env")


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def on(python, home, *words, **more):
    return command("hermes", *words, "--python", python, "--home", home, **more)


@pytest.mark.slow
def test_it_is_installed_seen_and_taken_away_again(python, home):
    assert "off" in on(python, home, "status").out
    done = on(python, home, "install")
    assert (done.code, "runs on Holdfast" in done.out + done.err) == (0, True), done.err
    assert asked(python, HOOK) == (0, "True", "")
    assert on(python, home, "status").out.startswith("on")
    # Installed again it is brought up to date, and is there once.
    assert on(python, home, "install").code == 0
    assert on(python, home, "uninstall").code == 0
    assert asked(python, HOOK) == (0, "False", "")
    assert "was not under" in on(python, home, "uninstall").err


@pytest.mark.slow
def test_what_was_given_up_is_counted(python, home):
    assert "given up" not in on(python, home, "status").out
    with holdfast.open(home / "holdfast.db") as store:
        store.session(given_up.KEY).append({"role": "system", "content": "Given up."})
    assert "1 message given up" in on(python, home, "status").out


@pytest.mark.slow
def test_nothing_else_of_the_environment_is_touched(python, home, tmp_path):
    def files():
        env = tmp_path / "env"
        return {path: path.stat().st_mtime_ns for path in env.rglob("*.p*") if path.is_file()}

    before = files()
    on(python, home, "install")
    assert {path.name for path in files().keys() - before.keys()} >= {switch.PTH}
    on(python, home, "uninstall")
    left = {path for path in files() if "__pycache__" not in str(path)}
    assert left == {path for path in before if "__pycache__" not in str(path)}


@pytest.mark.slow
def test_a_start_never_fails_and_says_nothing_whatever_is_left_of_it(python, home):
    on(python, home, "install")
    folder = switch.environment_of(python=str(python)).folder
    module = os.path.join(folder, f"{switch.MODULE}.py")
    with open(module, "w") as file:
        file.write("raise RuntimeError('broken')")
    assert asked(python, "print('fine')") == (0, "fine", "")
    os.unlink(module)
    assert asked(python, "print('fine')") == (0, "fine", "")


@pytest.mark.slow
def test_a_start_loads_nothing_that_it_did_not_before(python, home):
    loaded = "import sys; print(sorted(sys.modules))"
    _, before, _ = asked(python, loaded)
    on(python, home, "install")
    _, after, _ = asked(python, loaded)
    assert set(eval(after)) - set(eval(before)) == {switch.MODULE}


@pytest.mark.slow
@pytest.mark.parametrize("version", ["0.20.0", "0.18.9"])
def test_an_unknown_release_is_left_alone_with_a_sentence(tmp_path, home, version):
    modules = {"hermes_state": STATE}
    python = hermes_environments.made(tmp_path / "env", version=version, modules=modules)
    done = on(python, home, "install")
    assert done.code == 2 and version in done.err and "nothing is changed" in done.err
    with_hook = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {switch.MODULE}; "
    (tmp_path / f"{switch.MODULE}.py").write_text(switch._hook_text())
    code, out, err = asked(
        python, with_hook + "import hermes_state as h; print(h.SessionDB.__module__)"
    )
    assert (code, out) == (0, "hermes_state")
    assert err == (
        f"holdfast: Hermes Agent {version} is left alone: this Holdfast is for 0.19.0. "
        "Nothing is stored by Holdfast."
    )


@pytest.mark.slow
def test_what_is_left_alone_is_said_though_hermes_sends_its_own_words_nowhere(tmp_path, home):
    modules = {"hermes_state": STATE}
    python = hermes_environments.made(tmp_path / "env", version="0.20.0", modules=modules)
    (tmp_path / f"{switch.MODULE}.py").write_text(switch._hook_text())
    quiet = "import sys, os; sys.stderr = open(os.devnull, 'w'); "
    with_hook = (
        f"{quiet}sys.path.insert(0, {str(tmp_path)!r}); import {switch.MODULE}, hermes_state"
    )
    assert "Hermes Agent 0.20.0 is left alone" in asked(python, with_hook)[2]


@pytest.mark.slow
def test_the_version_is_that_of_the_environment_for_the_hook_and_for_status(tmp_path, home):
    """Hermes puts its own folder first: a description of another release on PYTHONPATH is not its."""
    python = hermes_environments.made(tmp_path / "env", modules={"hermes_state": STATE})
    assert on(python, home, "install").code == 0
    (tmp_path / "other").mkdir()
    hermes_environments.described(tmp_path / "other", "hermes_agent", "0.20.0")
    path = str(tmp_path / "other")
    done = on(python, home, "status", PYTHONPATH=path)
    assert (done.code, done.out.startswith("on  Hermes Agent 0.19.0")) == (0, True)
    _, _, err = asked(python, "import hermes_state", PYTHONPATH=path)
    assert "0.20.0" not in err


@pytest.mark.slow
def test_a_module_that_is_not_as_it_was_is_left_alone_with_a_sentence(tmp_path, home):
    changed = STATE.replace("read_only=False", "mode='rw'")
    python = hermes_environments.made(tmp_path / "env", modules={"hermes_state": changed})
    assert on(python, home, "install").code == 0
    code, out, err = asked(python, "import hermes_state as h; print(h.SessionDB.__bases__)")
    assert (code, out) == (0, "(<class 'object'>,)")
    assert err == (
        "holdfast: hermes_state.SessionDB.__init__ is not as in Hermes Agent 0.19.0: "
        "hermes_state is left alone"
    )


@pytest.mark.slow
def test_a_command_is_tried_out_with_the_hook_and_leaves_nothing(tmp_path, python, home):
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    (python.parent / "hermes").write_text(f"#!{python}\n{HOOK}\nprint(*sys.argv[1:])\n")
    done = process("hermes", "--", "hermes", "gateway", "run", PATH=path, HERMES_HOME=str(home))
    assert (done.code, done.out.split()) == (0, ["True", "gateway", "run"]), done.err
    assert asked(python, HOOK)[1] == "False"
    (python.parent / "hermes").write_text(f"#!{python}\nimport sys\nsys.exit(7)\n")
    assert command("hermes", "--", "hermes", PATH=path, HERMES_HOME=str(home)).code == 7


@pytest.mark.slow
def test_a_try_out_keeps_a_sitecustomize_that_is_there(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    with switch.trying_out() as variables:
        path = f"{variables['PYTHONPATH']}{os.pathsep}{tmp_path}"
        code, out, err = asked(sys.executable, HOOK, PYTHONPATH=path)
    assert (code, out.split(), err) == (0, ["theirs", "True"], "")


@pytest.mark.slow
def test_a_hermes_without_holdfast_beside_it_is_told_how_to_get_it(tmp_path, home):
    python = hermes_environments.made(tmp_path / "env", holdfast=False)
    done = on(python, home, "install")
    assert done.code == 2 and f"{python} -m pip install holdfast" in done.err


def test_no_hermes_is_3(tmp_path, home):
    done = command("hermes", "status", "--home", home, PATH=str(tmp_path))
    assert done.code == 3 and "no command `hermes`" in done.err
    assert command("hermes", "--").code == 2


def test_the_python_of_a_hermes_is_found_behind_a_shell_script(tmp_path):
    python = tmp_path / "env" / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    inner = python.with_name("hermes")
    inner.write_text(f"#!{python}\nprint()\n")
    inner.chmod(0o755)
    outer = tmp_path / "hermes"
    outer.write_text(f'#!/usr/bin/env bash\nexec "{inner}" "$@"\n')
    outer.chmod(0o755)
    assert switch._python_of(str(outer)) == str(python)
    outer.write_text("#!/bin/sh\nexec something\n")
    with pytest.raises(switch.NoHermes, match="--python"):
        switch._python_of(str(outer))


def test_the_hook_is_put_in_front_once(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    hook.install()
    hook.install()
    assert [type(each).__name__ for each in sys.meta_path].count("Finder") == 1
    assert isinstance(sys.meta_path[0], hook.Finder)


def damaged(path):
    path.write_bytes(b"\x81damage" * 900)


def a_folder(path):
    path.mkdir()


def of_another_program(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE a (b)")
    path.chmod(0o600)


def a_link_to_nowhere(path):
    path.symlink_to("nowhere/x.db")


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [damaged, a_folder, of_another_program, a_link_to_nowhere])
def test_a_store_that_cant_be_used_is_told_by_status_and_refused_by_install(python, home, spoil):
    assert on(python, home, "install").code == 0
    spoil(home / "holdfast.db")
    done = on(python, home, "status")
    assert done.code == 1 and done.out.startswith("on  Hermes Agent 0.19.0")
    assert str(home / "holdfast.db") in done.out and "not known" in done.out
    [told] = on(python, home, "status", "--json").lines
    assert told["waiting"] is None and told["problem"] in done.out
    again = on(python, home, "install")
    assert again.code == 5 and told["problem"] in again.err
    # Switched off, it is no matter of Hermes'.
    assert on(python, home, "uninstall").code == 0
    done = on(python, home, "status")
    assert done.code == 0 and done.out.startswith("off")


@pytest.mark.slow
def test_a_store_that_is_empty_or_yet_to_be_made_is_none_that_cant_be_used(python, home):
    (home / "holdfast.db").touch()
    (home / "state.db").touch()
    done = on(python, home, "install")
    assert done.code == 0 and f"nothing in {home}: nothing was brought over" in done.err
    done = on(python, home, "status")
    assert done.code == 0 and "0 messages waiting" in done.out
    (home / "holdfast.db").unlink()
    (home / "holdfast.db").symlink_to("x.db")
    assert on(python, home, "status").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("word", ["install", "status"])
def test_a_home_that_is_none_is_an_error(python, tmp_path, word):
    done = on(python, tmp_path / "hom", word)
    assert done.code == 2 and f"no folder {tmp_path / 'hom'}" in done.err
    (tmp_path / "file").touch()
    done = on(python, tmp_path / "file", word)
    assert done.code == 2 and "is no folder" in done.err
    assert asked(python, HOOK)[1] == "False"


@pytest.mark.slow
def test_a_home_that_hermes_is_yet_to_make_is_said_to_be_empty(python, tmp_path):
    new = str(tmp_path / "new")
    done = command("hermes", "install", "--python", python, HERMES_HOME=new)
    assert done.code == 0 and "nothing was brought over" in done.err
