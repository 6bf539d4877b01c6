"""What a person sees, does and is spared: the page in chromium."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Page, expect

import holdfast
from holdfast.exporters.safe_text import harmless
from holdfast.server.page import files
from torture.page.conftest import PHONE
from torture.page.story import CUT, LONG, OPS, SCRIPT, TABLE, TURNS

ROOT = Path(__file__).resolve().parents[2]


def views(page: Page) -> None:
    page.get_by_role("tab", name="Three views").click()
    expect(page.get_by_role("columnheader")).to_have_count(3)


def row_of(page: Page, words: str):
    return page.locator(".row", has_text=words).first


SMALL = {"width": 1200, "height": 740}


def test_pictures_of_it(opened, pictures):
    """First: what later tests do is on none of them."""
    page = opened(TABLE, color_scheme="light", viewport=SMALL)
    expect(page.locator(".conversation")).to_be_visible()
    page.locator("article", has_text="Your menu page").scroll_into_view_if_needed()
    page.screenshot(path=pictures / "page-conversation.png")
    views(page)
    summary = page.locator(".row[data-kind=summary]")
    summary.evaluate("each => each.scrollIntoView({ block: 'start' })")
    page.screenshot(path=pictures / "page-views.png")
    page = opened(TABLE, color_scheme="dark", viewport=SMALL)
    views(page)
    row_of(page, CUT).scroll_into_view_if_needed()
    page.screenshot(path=pictures / "page-views-dark.png")
    page = opened(TABLE, color_scheme="light", viewport=PHONE)
    page.get_by_role("tab", name="Three views").click()
    page.get_by_role("button", name="The model will be sent", exact=True).click()
    row_of(page, "What is on the tasting menu").scroll_into_view_if_needed()
    page.screenshot(path=pictures / "page-phone.png")
    for path in pictures.glob("page-*.png"):
        assert 10_000 < path.stat().st_size < 200_000


def test_the_token_leaves_the_address_and_goes_out_in_a_header(opened, server):
    page = opened()
    expect(page.locator("a.session").first).to_be_visible()
    assert page.url == f"{server.address}/#/"
    with page.expect_request("**/v1/sessions**") as asked:
        pass
    assert asked.value.headers["authorization"] == f"Bearer {server.token}"
    assert page.evaluate("localStorage.length") == 0
    # Another tab has to be told it, too.
    other = page.context.new_page()
    other.goto(f"{server.address}/")
    expect(other.get_by_label("Token")).to_be_focused()


def test_a_wrong_token_is_asked_for_again(opened, server):
    page = opened(complains=True)
    page.evaluate("sessionStorage.setItem('holdfast.token', 'hf_wrong')")
    page.reload()
    expect(page.get_by_text("does not know this token")).to_be_visible()
    page.get_by_label("Token").fill(server.token)
    page.get_by_role("button", name="Open").click()
    expect(page.locator("a.session").first).to_be_visible()


def test_sessions_are_listed_and_found_by_what_was_said(opened):
    page = opened()
    expect(page.locator("a.session")).to_have_count(7)
    page.get_by_role("button", name="Ended").click()
    expect(page.locator("a.session")).to_have_count(1)
    page.get_by_label("Search").fill("consommé ceps")
    expect(page.get_by_role("status").filter(has_text="match")).to_have_text("1 match")
    expect(page.locator("mark")).to_have_text(["consommé", "ceps"])
    page.locator("a.hit").click()
    expect(page.locator("article.found")).to_contain_text(CUT)
    expect(page.locator("a.hit")).to_have_attribute("aria-current", "true")
    expect(page.locator("article.found")).to_be_in_viewport()
    # What a tool answered is found with its call.
    page.get_by_label("Search").fill("21:15 hall")
    page.locator("a.hit", has_text="tool").click()
    expect(page.locator("details.found .result")).to_be_in_viewport()
    page.get_by_label("Search").fill(OPS)
    expect(page.locator(".hits a.session")).to_contain_text(OPS)


def test_a_conversation_has_its_turns_its_pairs_and_its_cut(opened):
    page = opened(TABLE)
    expect(page.locator("header.turn h2")).to_have_count(6)
    pair = page.locator("details.pair", has_text="find_tables")
    expect(pair.locator(".state")).to_have_text("done")
    expect(pair.locator(".name")).to_have_text('find_tables(people=2, from="19:00", to="21:30")')
    pair.locator("summary").click()
    expect(pair.locator(".result")).to_contain_text("terrace")
    open_call = page.locator("details.pair", has_text="fetch_menu")
    expect(open_call.locator(".state")).to_have_text("outcome unknown")
    cut = page.locator("article", has_text=CUT)
    expect(cut.locator(".said")).to_have_text(CUT)
    expect(cut.locator(".cut")).to_contain_text("the user saw no more")
    expect(page.get_by_text("never shown")).to_have_count(0)
    expect(page.locator(".end.interrupted")).to_have_count(1)
    # What the model no longer sees is marked, with the reason.
    expect(page.locator("[data-code=retracted]")).to_contain_text("had not called its tool")


def test_three_views_stand_side_by_side_with_their_reasons(opened):
    page = opened(TABLE)
    views(page)
    cut = row_of(page, CUT)
    for view in ("saw", "sent", "stored"):
        expect(cut.locator(f".cell.{view}")).to_contain_text(CUT)
    expect(cut.locator(".cell.saw .cut")).to_be_visible()
    made = page.locator(".row[data-kind=made]")
    expect(made.locator(".cell.sent [data-code=interrupted]")).to_be_visible()
    expect(made.locator(".cell.stored").get_by_text("not stored")).to_be_visible()
    booked = row_of(page, "Book a table for two tonight")
    expect(booked.locator(".cell.sent")).to_have_class(re.compile("absent"))
    expect(booked.locator(".cell.sent")).to_contain_text("The summary in entry")
    expect(row_of(page, "bring the dog").locator(".cell.sent")).to_contain_text(
        "waits in the inbox"
    )
    places = [cell.bounding_box() for cell in cut.locator(".cell").all()]
    assert places[0]["y"] == places[1]["y"] == places[2]["y"]
    assert places[0]["x"] < places[1]["x"] < places[2]["x"]
    # Only what is of note.
    count = page.locator(".row").count()
    page.get_by_label(re.compile("Of note")).check()
    noted = page.locator(".row").count()
    assert 0 < noted < count
    expect(page.get_by_text(f"Of note ({noted})")).to_be_visible()
    # The bytes themselves.
    cut.get_by_role("button", name=re.compile("JSON of entry")).click()
    expect(cut.locator(".json")).to_have_count(2)
    expect(cut.locator(".json").last).to_contain_text('"partial": true')


def test_the_format_is_chosen_by_the_session_or_by_hand(opened):
    page = opened(OPS)
    views(page)
    expect(page.get_by_label("Format of the context")).to_have_value("anthropic")
    expect(page.locator(".cell.sent [data-code=reduced]")).to_have_count(0)
    page.get_by_label("Format of the context").select_option("openai.chat")
    expect(page.locator(".cell.sent [data-code=reduced]")).to_contain_text("without reasoning")


def test_markup_in_a_message_is_text(opened):
    page = opened(TABLE)
    for _ in range(2):
        expect(page.get_by_text(SCRIPT).first).to_be_visible()
        assert page.evaluate("window.hacked") is None
        assert page.locator("main script, main img").count() == 0
        views(page)
    # And if a script of the page made markup of it, the browser would refuse, and say so.
    page = opened(complains=True)
    told = page.evaluate(
        "() => { try { document.body.innerHTML = '<b>'; } catch (e) { return e.name; } }"
    )
    assert told == "TypeError"


def test_what_would_steer_the_eye_is_a_sign(opened, server):
    turn = server.post("/v1/turns", {"key": "steering", "message": "abc\u202edef \x1b[31m red"})
    server.post(f"/v1/turns/{turn['id']}/end", {})
    server.ids["steering"] = turn["session_id"]
    page = opened("steering")
    expect(page.locator("article .said")).to_have_text("abc\\u202edef ␛[31m red")
    # The same signs as on the command line, for all of them.
    every = "".join(map(chr, [*range(0x3000), *range(0xFE00, 0x10000), 0x1F600]))
    script = "async (text) => (await import('/page/dom.js')).harmless(text)"
    assert page.evaluate(script, every) == harmless(every)


def test_keys_are_enough(opened):
    page = opened()
    expect(page.locator("a.session").first).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.type("oysters")
    expect(page.locator("a.hit")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.hit")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("article.found")).to_be_focused()
    page.keyboard.press("v")
    expect(page.get_by_role("tab", name="Three views")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("n")
    first = page.evaluate("document.activeElement.dataset.row")
    page.keyboard.press("n")
    second = page.evaluate("document.activeElement.dataset.row")
    assert first and second and first != second
    page.keyboard.press("p")
    assert page.evaluate("document.activeElement.dataset.row") == first
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.keyboard.press("c")
    expect(page.locator(".conversation")).to_be_visible()
    page.keyboard.press("/")
    page.keyboard.press("Escape")
    expect(page.locator("a.session").first).to_be_visible()
    page.keyboard.press("l")
    page.keyboard.press("ArrowDown")
    expect(page.locator("a.session:focus")).to_have_count(1)
    # Whatever can be pressed has a name.
    nameless = page.evaluate(
        "[...document.querySelectorAll('button, a, input, select')].filter("
        "each => !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length)).length"
    )
    assert nameless == 0


def test_a_phone_shows_one_thing_at_a_time(opened):
    page = opened(viewport=PHONE, has_touch=True, is_mobile=True)
    expect(page.locator("a.session").first).to_be_visible()
    assert fits(page)
    page.locator("a.session", has_text=TABLE).tap()
    expect(page.locator(".conversation")).to_be_visible()
    expect(page.locator("nav.list")).to_be_hidden()
    assert fits(page)
    page.get_by_role("tab", name="Three views").tap()
    for view, title in (
        ("sent", "The model will be sent"),
        ("stored", "Stored"),
        ("saw", "The user saw"),
    ):
        page.get_by_role("button", name=title, exact=True).tap()
        expect(page.locator(f".cell.{view}").first).to_be_visible()
        shown = {
            each
            for each in ("saw", "sent", "stored")
            if page.locator(f".cell.{each}").first.is_visible()
        }
        assert shown == {view}
        assert fits(page)
    page.get_by_role("link", name="All sessions").tap()
    expect(page.locator("nav.list")).to_be_visible()


def fits(page: Page) -> bool:
    """Nothing is wider than the screen."""
    script = (
        "[...document.querySelectorAll('body, body *')].every(each => !each.checkVisibility() ||"
    )
    script += " getComputedStyle(each).overflowX !== 'visible' || each.closest('.title, .snippet, .first') ||"
    script += " each.getBoundingClientRect().right <= innerWidth + 1)"
    return page.evaluate(script) and page.evaluate("document.body.scrollWidth <= innerWidth")


CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const over = (color, under) => {
    paint.fillStyle = `rgb(${under})`; paint.fillRect(0, 0, 1, 1);
    paint.fillStyle = color; paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (color) => {
    const [r, g, b] = color.map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    return over(getComputedStyle(element).backgroundColor, behind(element.parentElement));
  };
  const poor = [];
  for (const each of document.querySelectorAll("main *, nav *, .bar *")) {
    const own = [...each.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !each.checkVisibility() || each.closest("option")) continue;
    const under = behind(each);
    const [a, b] = [light(over(getComputedStyle(each).color, under)), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${each.className} ${ratio.toFixed(2)}`);
  }
  return [...new Set(poor)];
}"""


GROUND = "getComputedStyle(document.body).backgroundColor"


def test_light_and_dark_can_both_be_read(opened):
    grounds = []
    for scheme in ("light", "dark"):
        page = opened(TABLE, color_scheme=scheme)
        expect(page.locator(".conversation")).to_be_visible()
        assert page.evaluate(CONTRAST) == []
        views(page)
        assert page.evaluate(CONTRAST) == []
        grounds.append(page.evaluate(GROUND))
    assert grounds[0] != grounds[1]
    # By hand, it stays so whatever the system has: light, then dark, then as the system has it.
    for ground in (*grounds, grounds[1]):
        page.keyboard.press("t")
        assert page.evaluate(GROUND) == ground
        page.reload()
        expect(page.locator(".session-head h1")).to_be_visible()
        assert page.evaluate(GROUND) == ground


def test_news_come_by_themselves_and_a_cut_is_seen_as_it_happens(opened, server):
    turn = server.post("/v1/turns", {"key": "live", "message": "Tell me a story."})
    server.ids["live"] = turn["session_id"]
    tabs = [opened("live"), opened("live")]
    for page in tabs:
        expect(page.locator(".end.running")).to_be_visible()
    stream = server.post(f"/v1/turns/{turn['id']}/streams", {"format": "text"})["message_id"]
    path = f"/v1/turns/{turn['id']}/streams/{stream}"
    words = ["Once ", "there was ", "a kelp "]
    for index, word in enumerate(words):
        server.post(path, {"index": index, "chunks": [word]})
        for page in tabs:
            expect(page.locator("article.assistant .said")).to_have_text(
                "".join(words[: index + 1]).strip()
            )
    expect(tabs[0].locator(".speaking")).to_be_visible()
    server.post(f"/v1/sessions/{turn['session_id']}/stop", {"reason": "enough"})
    for page in tabs:
        expect(page.locator("article.assistant .cut")).to_be_visible()
        expect(page.locator(".end.interrupted")).to_be_visible()
        expect(page.locator(".speaking")).to_have_count(0)


def test_a_tab_that_nobody_looks_at_holds_no_connection(opened, server):
    turn = server.post("/v1/turns", {"key": "unseen", "message": "Is anybody there?"})
    server.ids["unseen"] = turn["session_id"]
    page = opened("unseen")
    expect(page.locator(".end.running")).to_be_visible()

    def waits(request):
        return urlsplit(request.url).path.endswith("/stream")

    hide = "([hidden]) => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });"
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    with page.expect_event("requestfailed", waits):
        page.evaluate(hide, [True])
    with page.expect_event("response", lambda answer: waits(answer.request)):
        page.evaluate(hide, [False])
    say = f"/v1/turns/{turn['id']}/messages"
    server.post(say, {"message": "I am."})
    expect(page.locator("article.assistant .said")).to_have_text("I am.")
    with page.expect_event("requestfailed", waits):
        page.evaluate(hide, [True])
    server.post(say, {"message": "Still."})
    with page.expect_request(waits) as again:
        page.evaluate(hide, [False])
    # It goes on where it was, and nothing is missing or there twice.
    assert again.value.headers["last-event-id"]
    expect(page.locator("article.assistant .said")).to_have_text(["I am.", "Still."])
    server.post(f"/v1/turns/{turn['id']}/end", {})
    expect(page.locator(".end.completed")).to_be_visible()


def test_a_stream_is_read_right_wherever_it_is_cut_into_pieces(opened, server):
    page = opened(OPS)
    script = """async (texts) => {
      const { EventLines } = await import('/page/event_lines.js');
      return texts.map((text) => {
        const found = [];
        for (let cut = 0; cut <= text.length; cut += 1) {
          const lines = new EventLines("start");
          const events = [...lines.feed(text.slice(0, cut)), ...lines.feed(text.slice(cut))];
          found.push(JSON.stringify([events, lines.lastId]));
        }
        return [...new Set(found)].map(JSON.parse);
      });
    }"""
    opening = "retry: 1000\nid: a\n\n"
    entry = 'event: entry\nid: b\ndata: {"text": "x: y"}\n\n'
    assert page.evaluate(script, [opening + ":\n\n" + entry, opening, entry + entry[:-1]]) == [
        [[[{"event": "entry", "id": "b", "data": {"text": "x: y"}}], "b"]],
        [[[], "a"]],
        # Without its empty line it has not come.
        [[[{"event": "entry", "id": "b", "data": {"text": "x: y"}}], "b"]],
    ]


def test_many_tabs_leave_connections_for_what_they_ask(opened, server):
    turn = server.post("/v1/turns", {"key": "crowded", "message": "Tell all of them."})
    server.ids["crowded"] = turn["session_id"]
    first = opened("crowded")
    tabs = [first, *(first.context.new_page() for _ in range(8))]
    streams = []
    for page in tabs[1:]:
        page.on(
            "request",
            lambda request: streams.append(request.url) if "/stream" in request.url else None,
        )
        page.goto(server.at("crowded"))
    for page in tabs:
        expect(page.locator(".end.running")).to_be_visible()
    server.post(f"/v1/turns/{turn['id']}/messages", {"message": "Here it is."})
    for page in tabs:
        expect(page.locator("article.assistant .said")).to_have_text("Here it is.")
    assert len(streams) < 3
    server.post(f"/v1/turns/{turn['id']}/end", {})
    # A tab that goes leaves its place to another one.
    waiting = tabs[-1]
    with waiting.expect_request(re.compile("/stream")):
        for page in tabs[:-1]:
            page.close()
    expect(waiting.locator(".end.completed")).to_be_visible()


def test_a_server_that_is_killed_and_comes_back_is_found_again(opened, server):
    page = opened(OPS, complains=True)
    expect(page.locator(".conversation")).to_be_visible()
    server.kill()
    expect(page.get_by_text("does not answer")).to_be_visible()
    server.start()
    expect(page.get_by_text("does not answer")).to_be_hidden(timeout=30_000)
    expect(page.locator("article").first).to_be_visible()


def test_a_long_session_is_shown_from_its_end_and_more_is_asked_for(opened):
    page = opened(LONG)
    asked = page.locator("article.user .said")
    expect(asked.get_by_text(f"Report of night {TURNS}", exact=True)).to_be_in_viewport()
    expect(asked.get_by_text("Report of night 1", exact=True)).to_have_count(0)
    for first in (81, 31, 1):
        expect(asked.first).to_have_text(f"Report of night {first}")
        expect(page.locator("article")).to_have_count(2 * (TURNS - first + 1))
        if first > 1:
            page.get_by_role("button", name="Earlier turns").dblclick(force=True)
    expect(page.get_by_role("button", name="Earlier turns")).to_be_hidden()
    # A place in the middle, found: what comes after it is asked for, too.
    page.get_by_label("Search").fill("Night 40 quiet")
    page.locator("a.hit", has_text="Night 40:").click()
    expect(page.locator("article.found")).to_be_in_viewport()
    expect(page.get_by_role("button", name="Later turns")).to_be_visible()


def test_a_page_that_follows_for_long_keeps_the_end_and_asks_for_the_rest(opened, server):
    with holdfast.open(server.store, durability="process") as store:
        session = store.session("follows:long")
        session.append("Message 0")
        server.ids["follows:long"] = session.id
        page = opened("follows:long")
        for last in range(100, 900, 100):
            session.append_all([f"Message {last - 99 + each}" for each in range(100)])
            shown = page.get_by_text(f"Message {last}", exact=True)
            expect(shown).to_be_in_viewport(timeout=30_000)
    articles = page.locator("article")
    assert 400 <= articles.count() <= 500
    first = int(articles.first.locator(".said").inner_text().split()[1])
    page.get_by_role("button", name="Earlier turns").click()
    expect(articles.first.locator(".said")).to_have_text(f"Message {first - 100}")
    shown = page.locator("article .said").all_inner_texts()
    assert shown == [f"Message {number}" for number in range(first - 100, 801)]


def test_long_words_and_long_rows_cover_nothing(opened, server):
    with holdfast.open(server.store, durability="process") as store:
        session = store.session("long:words")
        with session.turn("Go.") as turn:
            call = turn.call("wide", {"rows": ["v" * 50] * 100})
            turn.result(call, "Done.")
            turn.fail("E" * 300)
        words = {"label" * 60: "value" * 60}
        session.label(session.append("Labelled."), **words)
        server.ids["long:words"] = session.id
    page = opened("long:words")
    views(page)
    page.get_by_text("Labelled.").first.wait_for()
    assert page.evaluate(
        "document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth"
    )
    row = page.locator(".row.long")
    more, reason = row.locator(".more").bounding_box(), row.locator(".reasons").last.bounding_box()
    assert reason["y"] + reason["height"] <= more["y"]
    why = page.locator(".turn .why")
    why.focus()
    assert why.evaluate("each => each.scrollWidth <= each.clientWidth")


def test_a_list_says_what_it_does_not_have(opened, server):
    with holdfast.open(server.store, durability="process") as store:
        store.session("many:words").append_all([f"Plenty of it, {each}" for each in range(60)])
        gone = store.session("gone:words")
        gone.append("Erase me.")
        store.erase(gone.id)
    page = opened()
    erased = page.locator("a.session", has_text="gone:words")
    expect(erased.locator(".title")).to_have_text("(no words)")
    expect(erased.get_by_role("img", name="ended")).to_be_visible()
    page.get_by_label("Search").fill("plenty of it")
    told = page.locator(".count")
    expect(told).to_have_text("The newest 50 matches; there may be more")
    page.get_by_label("Search").fill("")
    page.get_by_role("button", name="Running").click()
    expect(told).to_have_text("No session is running.")


def test_an_address_that_is_no_code_names_nothing(opened):
    page = opened(complains=True)
    page.evaluate("location.hash = '#/s/%ZZ'")
    expect(page.get_by_role("alert")).to_contain_text("There is no session `%ZZ`")


def test_what_changes_far_back_is_seen_too(opened, server):
    session = server.ids[LONG]
    page = opened(LONG)
    page.get_by_role("button", name="Earlier turns").click()
    expect(page.locator("article.user .said").first).to_have_text("Report of night 31")
    count = page.locator("article").count()
    turn = server.post("/v1/turns", {"key": LONG, "message": "Report of the last night"})
    server.post(f"/v1/turns/{turn['id']}/messages", {"message": "All quiet."})
    server.post(f"/v1/turns/{turn['id']}/end", {})
    expect(page.locator("article")).to_have_count(count + 2)
    expect(page.locator("[data-code=summarised]")).to_have_count(0)
    server.post(f"/v1/sessions/{session}/compact", {"summary": "Quiet nights.", "keep_turns": 1})
    expect(page.locator("[data-code=summarised]").first).to_be_attached()
    expect(page.locator("article.user .said").first).to_have_text("Report of night 31")
    expect(page.locator("[data-code=summarised]")).to_have_count(100)


def test_the_wheel_has_the_files_of_the_page(tmp_path):
    made = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT],
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    [wheel] = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    for path in files.FOLDER.iterdir():
        assert f"holdfast/server/page/files/{path.name}" in names
