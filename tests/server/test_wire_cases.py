"""`docs/PROTOCOL.md`: the server passes the cases, and the cases notice a server that does not."""

import re
from pathlib import Path

import pytest

from holdfast.server import openapi
from holdfast.testing.wire.__main__ import main
from holdfast.testing.wire.case_file import Case, all_cases
from holdfast.testing.wire.player import Player
from wire_server import WireServer, new_token

PAGE = Path(__file__).parents[2] / "docs" / "PROTOCOL.md"
CASES = all_cases()

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server with two tenants; what plays the cases, and the arguments of its command."""
    folder = tmp_path_factory.mktemp("conformance")
    one, other = (new_token(folder / "tokens", name, "admin") for name in ("one", "other"))
    with WireServer(folder / "served.db", "--tokens", folder / "tokens", key=one) as server:
        base = f"http://127.0.0.1:{server.port}"
        yield server, Player(base, token=one, other_token=other), (base, one, other)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_server_answers_as_the_protocol_says(served, case):
    assert served[1].play(case) is None


def test_a_server_that_answers_otherwise_fails_its_case(served):
    step = {"do": "GET /health", "sender": "nobody", "expect": {"status": "unwell"}}
    case = Case(name="it is unwell", step=[_step(step)])
    assert "`status` is 'ok', not 'unwell'" in served[1].play(case)
    wrong = Case(name="it is elsewhere", step=[_step({"do": "GET /v1/nowhere"})])
    assert "status 404, not 200" in served[1].play(wrong)


def _step(step):
    import msgspec

    return msgspec.convert(step, type=Case.__annotations__["step"].__args__[0])


def test_the_command_plays_the_cases_and_tells_what_failed(served, capsys):
    base, one, other = served[2]
    words = ["--token", one, "--other-token", other, "--only", "health"]
    assert main([base, *words]) == 0
    told = capsys.readouterr()
    assert told.out == "ok    health is open to everybody\n"
    assert told.err == "1 passed, 0 failed\n"
    assert main([base, *words[:-1], "no case has this name"]) == 1


def test_every_address_of_the_page_is_served_and_every_route_is_on_the_page(served):
    page = PAGE.read_text("utf-8")
    document = served[0].ask("GET", "/openapi.json", token=None).done
    for path in document["paths"]:
        last = path.removeprefix("/v1").rpartition("}")[2] or path.rpartition("/")[2]
        assert last in page, f"{path} is not in PROTOCOL.md"
    patterns = [re.sub(r"{\w+}", r"[^/]+", path) for path in document["paths"]]
    for address in re.findall(r"`(?:GET|POST) (/[^ `?]+)", page):
        assert any(re.fullmatch(each, address) for each in patterns), address


def test_what_is_said_to_know_its_etag_does_and_nothing_else(served):
    server, document = served[0], served[0].ask("GET", "/openapi.json", token=None).done
    session = server.turn("tagged")["session_id"]
    knowing = set()
    for path, methods in document["paths"].items():
        told = methods.get("get", {})
        media = told.get("responses", {}).get("200", {}).get("content", {})
        if "application/json" not in media or path.count("{") != path.count("{session}"):
            continue
        address = path.replace("{session}", session)
        tag = server.ask("GET", address).headers.get("etag", '"1"')
        again = server.ask("GET", address, headers={"If-None-Match": tag})
        takes = [each["name"] for each in told["parameters"] if each["in"] == "header"]
        assert (again.status == 304) == ("304" in told["responses"]) == ("If-None-Match" in takes)
        if again.status == 304:
            knowing.add(path)
    assert knowing == {"/v1/sessions/{session}", "/v1/sessions/{session}/views"}
    run = document["paths"]["/v1/ag-ui/{session}"]["get"]
    assert "304" not in run["responses"]


def test_every_code_of_a_problem_is_on_the_page():
    page = PAGE.read_text("utf-8")
    codes = {**openapi.STATUS, **openapi.WIRE_STATUS}
    for code, status in codes.items():
        assert f"`{code}`" in page, f"{code} is not in PROTOCOL.md"
        rows = [row for row in page.splitlines() if row.startswith("|") and f"`{code}`" in row]
        assert not rows or any(row.startswith(f"| {status} ") for row in rows), code
