"""The page that `holdfast serve` has: its files, its policy, its token, and news as they come. What a
browser makes of it, `./dev page` looks at.
"""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast
import procs
from commanding import surroundings
from holdfast.engine.sqlite.reads import SqliteReads
from holdfast.server.page import files, views
from wire_server import WireServer, ask, in_thread, new_token

FILES = {path.name: path.read_text("utf-8") for path in sorted(files.FOLDER.iterdir())}
SCRIPTS = {name: text for name, text in FILES.items() if name.endswith(".js")}
NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'


def test_no_file_names_an_address_of_anybody_else():
    assert {"index.html", "page.css", "main.js", "icon.svg"} <= set(FILES)
    for name, text in FILES.items():
        # A namespace is a name: nobody is asked for it.
        told = text.replace(NAMESPACE, "")
        found = re.findall(r"(?:\bhttps?:|\bwss?:|\bdata:|url\(|@import|[\"'(]//)[^\s\"')]*", told)
        assert found == [], f"{name} names {found}"


@pytest.mark.parametrize(
    "never",
    [
        *(r"innerHTML", r"outerHTML", r"insertAdjacentHTML", r"createContextualFragment"),
        *(r"document\.write", r"\beval\b", r"new Function\(", r"javascript:", r"\bDOMParser\b"),
        *(r"setAttribute\(\s*[\"']style", r"\.style\b", r"document\.cookie", r"srcdoc"),
    ],
)
def test_no_script_makes_markup_or_code_of_text(never):
    for name, text in SCRIPTS.items():
        assert not re.search(never, text), f"{name} has {never}"


def test_the_document_has_no_script_and_no_style_of_its_own():
    text = FILES["index.html"]
    assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
    assert re.findall(r"<style|\bstyle=|\son\w+=", text) == []


def test_every_file_that_is_asked_for_is_there_and_none_is_left_over():
    asked = set(re.findall(r"(?:href|src)=\"page/([\w.]+)\"", FILES["index.html"]))
    for name, text in SCRIPTS.items():
        found = set(re.findall(r"from \"\./([\w.]+)\"", text))
        assert name not in found
        asked |= found | set(re.findall(r"\"page/([\w.]+)\"", text))
    assert asked == set(FILES) - {"index.html"}


def test_the_token_is_kept_for_one_tab_and_goes_out_in_a_header_alone():
    for name, text in SCRIPTS.items():
        assert ("sessionStorage" in text) == (name == "api.js"), name
    text = SCRIPTS["api.js"]
    assert text.count("sessionStorage.getItem(KEPT)") == 2 and "Authorization: `Bearer ${" in text
    # In no address, and in nothing that outlives the tab.
    assert not re.search(r"searchParams\.set\([^)]*token", text, re.I)
    assert all(
        "token" not in line for line in re.findall(r"localStorage.*", "".join(FILES.values()))
    )


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    store = tmp_path_factory.mktemp("page") / "s.db"
    with in_thread(store) as (port, token):
        yield port, token, store


def test_each_file_is_served_to_everybody_with_a_strict_policy(served):
    port, _, _ = served
    for name, text in FILES.items():
        address = "/" if name == "index.html" else f"/page/{name}"
        told = ask(port, None, "GET", address)
        assert (told.status, told.body) == (200, text)
        policy = dict(part.strip().split(" ", 1) for part in
                      told.headers["content-security-policy"].split(";"))  # fmt: skip
        assert policy["default-src"] == "'none'" and policy["script-src"] == "'self'"
        assert policy["trusted-types"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert not re.search(r"unsafe|\*|http|data:", " ".join(policy.values()))
        assert told.headers["x-content-type-options"] == "nosniff"
        assert told.headers["referrer-policy"] == "no-referrer"
        assert told.headers["cache-control"] == "no-store"
        kind = told.headers["content-type"]
        assert kind == files.MEDIA[Path(name).suffix]


def test_nothing_but_these_files_is_served(served):
    port, token, _ = served
    for name in ("files.py", "../files.py", "%2e%2e/files.py", "", "index.html", "main.js/"):
        assert ask(port, token, "GET", f"/page/{name}").code == "not_found"
    # Whatever a page is to be run from, no answer with somebody's words is one.
    policy = ask(port, token, "GET", "/v1/sessions").headers["content-security-policy"]
    assert policy == "default-src 'none'; frame-ancestors 'none'"


def waiting(
    port: int, token: str, path: str, tag: str, *, wait_s: int = 30
) -> tuple[threading.Thread, list]:
    """A request that waits for news, under way."""
    told: list = []
    headers = {"If-None-Match": tag, "Prefer": f"wait={wait_s}"}
    asking = lambda: told.append(ask(port, token, "GET", path, headers=headers))  # noqa: E731
    thread = threading.Thread(target=asking)
    thread.start()
    return thread, told


def test_news_are_told_whoever_writes_them(served):
    port, token, place = served
    with holdfast.open(place, durability="process") as elsewhere:
        session = elsewhere.session("live")
        path = f"/v1/sessions/{session.id}/views"
        with session.turn("Tell me.") as turn:
            words = iter(turn.deliver(iter(["Half ", "an answer."])))
            tag = ask(port, token, "GET", path).headers["etag"]
            thread, told = waiting(port, token, path, tag)
            next(words)
            thread.join(60)
            row = told[0].done["sections"][-1]["rows"][-1]
            assert (row["kind"], row["saw"]["parts"][0]["text"]) == ("spoken", "Half ")
            # Nothing has happened since: there is no news.
            still = told[0].headers["etag"]
            headers = {"If-None-Match": still}
            assert ask(port, token, "GET", path, headers=headers).status == 304
            thread, told = waiting(port, token, path, still)
            assert list(words) == ["an answer."]
            thread.join(60)
            assert told[0].status == 200 and told[0].headers["etag"] != still
        [section] = ask(port, token, "GET", path).done["sections"]
        assert (section["end"], len(section["rows"])) == ("completed", 2)


KILLED = """
    import holdfast
    with holdfast.open(sys.argv[1], durability="process") as store:
        with store.session("k").turn("Tell me.") as turn:
            for _ in turn.deliver(["Half ", "an answer."]):
                say("shown")
                hear()
"""


@pytest.mark.slow
def test_who_waits_is_told_the_end_of_a_turn_whose_process_was_killed(tmp_path, monkeypatch):
    """Nobody else looks whether it is alive, and nothing is stored that could be told."""
    monkeypatch.setattr(SqliteReads, "look_s", 1000.0)
    monkeypatch.setattr(views, "WAIT_MAX_S", 1000.0)
    with in_thread(tmp_path / "s.db") as (port, token):
        session = ask(port, token, "POST", "/v1/sessions", {"key": "k"}).done["id"]
        path = f"/v1/sessions/{session}/views"
        with procs.child(KILLED, tmp_path / "s.db") as other:
            other.wait_for("shown")
            tag = ask(port, token, "GET", path).headers["etag"]
            thread, told = waiting(port, token, path, tag, wait_s=1000)
            while not told and ask(port, token, "GET", "/metrics").body.count("under_way 2") == 0:
                pass
            other.kill()
        thread.join(60)
        assert told[0].done["sections"][-1]["end"] == "abandoned"


def test_a_server_that_is_told_to_end_lets_nobody_wait(tmp_path):
    with in_thread(tmp_path / "s.db") as (port, token):
        session = ask(port, token, "POST", "/v1/sessions", {"key": "k"}).done["id"]
        path = f"/v1/sessions/{session}/views"
        tag = ask(port, token, "GET", path).headers["etag"]
        thread, told = waiting(port, token, path, tag)
        while not told and ask(port, token, "GET", "/metrics").body.count("under_way 2") == 0:
            pass
    thread.join(60)
    assert told[0].status == 304


@pytest.mark.slow
def test_views_of_another_tenant_are_not_told_though_they_were_looked_at(tmp_path):
    """I-19: what is remembered of a session is asked for by those who may see it alone."""
    tokens = {name: new_token(tmp_path / "tokens", name, "read") for name in ("one", "other")}
    with holdfast.open(tmp_path / "s.db", tenant="one") as store:
        session = store.session("k")
        session.append("A secret.")
    with WireServer(tmp_path / "s.db", "--tokens", tmp_path / "tokens") as server:
        path = f"/v1/sessions/{session.id}/views"
        assert "A secret." in str(server.ask("GET", path, token=tokens["one"]).done)
        assert server.ask("GET", path, token=tokens["other"]).code == "not_found"


def test_what_was_erased_is_not_told_from_memory(served):
    """I-21: nor in a fork that shares it."""
    port, token, place = served
    with holdfast.open(place, durability="process") as store:
        session = store.session("erased")
        session.append("A secret.")
        fork = session.fork()
        paths = [f"/v1/sessions/{each.id}/views" for each in (session, fork)]
        assert all("A secret." in str(ask(port, token, "GET", path).done) for path in paths)
        session.end("done")
        store.erase(session.id)
        assert not any("A secret." in str(ask(port, token, "GET", path).done) for path in paths)


@pytest.mark.slow
def test_the_address_of_the_page_has_the_token_where_nobody_is_sent_it(tmp_path):
    command = [sys.executable, "-m", "holdfast.cli.main", "serve", tmp_path / "s.db", "--port", "0"]
    served = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings())
    try:
        serving, token, page = (served.stdout.readline().rstrip("\n") for _ in range(3))
        address = serving.rpartition(" ")[2]
        assert page == f"Page: {address}/#token={token.removeprefix('Token: ')}"
    finally:
        served.terminate()
        served.wait(60)
        served.stdout.close()
