"""Extractors of archives, files of keys and settings: what is taken, and what is refused."""

import threading

import pytest

from holdfast.adapters.openviking.server import settings
from holdfast.adapters.openviking.server.extraction import WORKERS, Extraction, SessionPlace
from holdfast.adapters.openviking.server.extractor import (
    HANGING_MAX,
    ExtractionFailed,
    LimitedExtractor,
    extractor_at,
    said_by,
)
from holdfast.adapters.openviking.server.incoming import message_in
from holdfast.adapters.openviking.server.problem import RequestProblem
from holdfast.adapters.openviking.server.serve import tokens_in
from holdfast.adapters.openviking.server.sessions.directory import Directory, Requester
from holdfast.errors import BadArgument
from holdfast.runtime.open_store import open_at
from holdfast.server.serving.listening import is_loopback

ME = Requester()


def test_an_extractor_says_an_overview():
    assert said_by("All is well.") == said_by({"overview": "All is well."})
    said = said_by({"overview": "All is well.", "memories_extracted": {"events": 2}, "more": 1})
    assert said == {"overview": "All is well.", "abstract": "", "memories": {"events": 2}}


@pytest.mark.parametrize(
    "answer",
    [
        *(5, ["text"], {"overview": 5}),
        *(None, {}, "", " ", {"overview": None}, {"abstract": "All is well."}),
        {"overview": "All is well.", "memories_extracted": [1]},
        {"overview": "All is well.", "memories_extracted": {"a": "b"}},
    ],
)
def test_what_an_extractor_can_not_say_is_a_failure(answer):
    with pytest.raises(ExtractionFailed):
        said_by(answer)


def test_an_extractor_is_named_by_its_address_or_its_place():
    assert extractor_at("textwrap:dedent")("  a") == "a"
    assert callable(extractor_at("http://127.0.0.1:1/"))
    for wrong in ("textwrap", "textwrap:nothing", "no_such_module:f", "textwrap:__name__", ":"):
        with pytest.raises(BadArgument):
            extractor_at(wrong)


def test_an_archive_is_extracted_by_a_function_until_it_says_something(tmp_path):
    """Each call has the same archive, and those after it wait."""
    calls, done = [], threading.Event()

    def extractor(archive):
        calls.append((archive["archive_id"], [each["id"] for each in archive["messages"]]))
        if len(calls) == 1:
            raise ValueError("My card number is 4000-1234.")
        if len(calls) == 3:
            done.set()
        return archive["archive_id"]

    store = open_at(tmp_path / "extracted.db", tenant="default", durability="process")
    directory = Directory(store)
    handle = directory.make(ME, "s")
    for text in ("One.", "Two."):
        handle.append(message_in({"role": "user", "content": text}, now="now"))
        handle.archive(0, is_finished=False, reset=False)
    extraction = Extraction(directory, extractor, store.world)
    extraction.start([ME])
    assert done.wait(60)
    place = SessionPlace(ME, "s")
    for _ in range(600):
        if not handle.served().unfinished:
            break
        done.wait(0.01)
    extraction.stop()
    assert [name for name, _ in calls] == ["archive_001", "archive_001", "archive_002"]
    assert calls[0] == calls[1]
    assert handle.served().overview == "archive_002" and handle.served().messages == []
    assert extraction.failure(place, 1) is None, "it has gone through since"
    store.close()


@pytest.fixture
def extracting(tmp_path):
    """Sessions of one archive each, and threads that extract them."""
    store = open_at(tmp_path / "extracted.db", tenant="default", durability="process")
    directory = Directory(store)
    started = []

    def archived(name):
        handle = directory.make(ME, name)
        handle.append(message_in({"role": "user", "content": "One."}, now="now"))
        handle.archive(0, is_finished=False, reset=False)
        return handle

    def start(extractor, names, limit_s=60):
        handles = [archived(name) for name in names]
        extraction = Extraction(directory, extractor, store.world, limit_s=limit_s)
        started.append(extraction)
        extraction.start([ME])
        return extraction, handles

    start.archived = archived
    yield start
    for extraction in started:
        extraction.stop()
    store.close()


def wait_until(is_so):
    waiting = threading.Event()
    for _ in range(3000):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError("it does not come")


def test_extractors_that_hang_hold_up_no_other_session_and_are_called_again(extracting):
    over = threading.Event()
    calls = []

    def extractor(archive):
        calls.append(archive["session_id"])
        if archive["session_id"].startswith("hangs") and not over.is_set():
            over.wait()
            return None
        return "All is well."

    names = [f"hangs-{number}" for number in range(2 * WORKERS)]
    try:
        extraction, handles = extracting(extractor, names, limit_s=0.1)
        wait_until(lambda: len(calls) >= WORKERS)
        quick = extracting.archived("quick")
        extraction.notify(SessionPlace(ME, "quick"))
        wait_until(lambda: not quick.served().unfinished)
        place = SessionPlace(ME, calls[0])
        wait_until(lambda: extraction.failure(place, 1) is not None)
        assert extraction.failure(place, 1).problem.endswith("not answered in 0.1 seconds")
        wait_until(lambda: calls.count("hangs-0") > 1)
    finally:
        over.set()
    wait_until(lambda: not any(handle.served().unfinished for handle in handles))


def test_calls_that_never_come_back_are_not_piled_up():
    over = threading.Event()
    calls = []

    def extractor(archive):
        calls.append(archive)
        over.wait()

    limited = LimitedExtractor(extractor, 0.01)
    for _ in range(10):
        with pytest.raises(ExtractionFailed):
            limited({"task_id": "t"})
    assert len(calls) == HANGING_MAX
    over.set()
    wait_until(lambda: not limited.hanging)


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, ValueError])
def test_whatever_an_extractor_raises_it_is_called_again(extracting, caplog, error):
    calls = []

    def extractor(archive):
        calls.append(archive)
        if len(calls) == 1:
            raise error("My card number is 4000-1234.")
        return "All is well."

    _, [handle] = extracting(extractor, ["s"])
    wait_until(lambda: not handle.served().unfinished)
    assert len(calls) == 2
    assert f"extraction failed 1 times: {error.__name__}" in caplog.text
    assert "4000" not in caplog.text


@pytest.mark.parametrize("nothing", [None, {}, {"overview": " "}])
def test_an_answer_without_an_overview_leaves_the_messages_where_they_are(extracting, nothing):
    extraction, [handle] = extracting(lambda archive: nothing, ["s"])
    place = SessionPlace(ME, "s")
    wait_until(lambda: extraction.failure(place, 1) is not None)
    assert extraction.failure(place, 1).problem == "the extractor gave no overview"
    assert len(handle.served().messages) == 1 and handle.served().unfinished


def test_keys_have_an_owner_each_and_are_not_told(tmp_path):
    file = tmp_path / "keys"

    def read(text):
        file.write_text(text)
        file.chmod(0o600)
        return tokens_in(str(file))

    first, second = "k" * 20, "l" * 20
    found = read(f"# keys\n\n{first}\n{second} acme alice\n")
    assert found == {first: Requester(), second: Requester("acme", "alice")}
    for wrong in ("", "short", f"{first} acme", f"{first} a/b c", f"{first}\n{first} acme bob"):
        with pytest.raises(BadArgument) as refused:
            read(wrong)
        assert first not in str(refused.value)


def test_only_this_machine_reaches_a_loopback_address():
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost")
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))


def test_settings_are_merged_clamped_and_cleared():
    set_to = settings.at_creation({"auto_commit_policy": {"message_count_threshold": 5000}})
    assert set_to["auto_commit_policy"]["message_count_threshold"] == 1000
    changed = settings.changed(set_to, {"auto_commit_policy": {"keep_recent_count": -1}})
    policy = changed["auto_commit_policy"]
    assert (policy["message_count_threshold"], policy["keep_recent_count"]) == (1000, 0)
    assert settings.changed(changed, {"auto_commit_policy": None}) == {}
    tags = {"memory_extraction_config": {"events": {"tags": [" Team=A ", "team=a", "none"]}}}
    assert settings.extraction_config(settings.changed({}, tags)) == {
        "events": {"tags": ["team=a"]}
    }
    for wrong in (
        {"other": 1},
        {"auto_commit_policy": {"other": 1}},
        [],
        {"auto_commit_policy": 5},
    ):
        with pytest.raises(RequestProblem):
            settings.changed({}, wrong)


def test_a_session_that_has_just_committed_does_not_commit_by_itself():
    policy = {"message_count_threshold": 2, "min_commit_interval_seconds": 60}
    set_to = settings.at_creation({"auto_commit_policy": policy})

    def is_due(**now):
        return settings.commits_by_itself(set_to, **{"tokens": 0, "since_commit_s": None, **now})

    assert is_due(messages=3) and not is_due(messages=2)
    assert is_due(messages=1, tokens=150_001)
    assert not is_due(messages=3, since_commit_s=59) and is_due(messages=3, since_commit_s=61)
