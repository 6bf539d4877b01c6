"""OpenViking's client: what was stored arrives once and in order, whatever the server does."""

import asyncio
import threading
import time

import pytest

import holdfast
from holdfast.adapters.openviking import AsyncClient, AsyncCommitHandle, Client, CommitHandle
from holdfast.adapters.openviking.client.deliveries import DeliveryLog
from holdfast.engine.sqlite import reads
from holdfast.errors import BadArgument, InvalidMessage, StoreUnavailable
from tidy import faces
from viking_clients import KEY, add, numbers

pytestmark = pytest.mark.usefixtures("impatient")


def test_messages_arrive_in_order_with_our_ids(viking, client, store):
    ids = add(client, *numbers(0, 3))
    assert client.flush()
    there = viking.sessions[KEY]["live"]
    assert [message["source_message_ids"] for message in there] == [[id] for id in ids]
    assert viking.live(KEY) == [each.text for each in store.session(KEY).transcript()]


def test_no_more_than_a_hundred_go_at_once(viking, client):
    client.add_messages(KEY, [{"role": "user", "content": text} for text in numbers(0, 250)])
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 250)
    assert sum("batch" in path for _, path in viking.requests) == 3


@pytest.mark.parametrize(
    "fault", ["drop", "die", "error", "failed", "busy", "hiccup", "twice", "torn", "slow"]
)
def test_a_message_arrives_once_whatever_becomes_of_its_answer(viking, client, fault):
    add(client, "m0")
    assert client.flush()
    viking.next(fault, *[fault] * (fault == "hiccup"))  # the whole batch, then half of it
    viking.slow_s = 0.05
    add(client, "m1", "m2")
    assert client.flush()
    add(client, "m3")
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 4)
    assert client.report(KEY).refused == []


@pytest.mark.slow
def test_a_request_that_is_still_under_way_is_waited_for(viking, store):
    viking.next("slow")
    viking.slow_s = 0.6
    with Client(viking.url, store=store, background=False, timeout_s=0.2, grace_s=2) as client:
        add(client, "m0")
        assert client.flush()
    viking.wait_until_idle()
    assert viking.live(KEY) == ["m0"]


def test_what_could_not_be_sent_is_sent_by_the_next_client(viking, store):
    viking.kill()
    with Client(viking.url, store=store, background=False) as first:
        add(first, *numbers(0, 3))
        first.commit(KEY)
        add(first, "m3")
        assert not first.flush(0)
        assert "refused" in first.report(KEY).problem and first.report(KEY).unsent == 4
    viking.start()
    with Client(viking.url, store=store, background=False) as second:
        assert second.resume() == 1
        assert second.flush()
        assert second.resume() == 0 or second.report(KEY).commits[0].state == "accepted"
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == ["m3"]


def test_what_is_left_is_found_without_its_name_and_without_looking_at_all_sessions(
    viking, store, monkeypatch
):
    with Client(viking.url, store=store, background=False) as first:
        for number in range(30):
            add(first, "sent", key=f"old-{number}")
        assert first.flush()
        assert first.unsent() == []
        viking.kill()
        add(first, "left", key="orchard")
        marked_ms = time.time_ns() // 1_000_000
        while time.time_ns() // 1_000_000 == marked_ms:
            pass  # marks are ordered by their milliseconds
        add(first, "left, too", "and more", key="garden")
        first.commit("garden")
    viking.start()
    with Client(viking.url, store=store, background=False) as second:
        looked = []
        get = second._store.get
        monkeypatch.setattr(second._store, "get", lambda id: (looked.append(id), get(id))[1])
        left = [(each.key, each.messages, each.commits, each.failed) for each in second.unsent()]
        assert left == [("orchard", 1, 0, ()), ("garden", 2, 1, ())]
        assert second.resume() == 2 and len(looked) == 4
        assert second.flush()
        wait_for_commits(second, "garden")
        assert second.unsent() == [] and second.resume() == 0
    assert viking.live("orchard") == ["left"]
    assert viking.archives("garden") == [["left, too", "and more"]]


def wait_for_commits(client, key):
    for _ in range(200):
        if all(each.is_over for each in client.report(key).commits):
            return
        client.flush(0.1)
    raise AssertionError(client.report(key))


def test_marks_do_not_pile_up_while_the_server_is_away(viking, client, store):
    viking.kill()
    add(client, *numbers(0, 40))
    assert not client.flush(0)
    assert len(DeliveryLog(client._logs, store.session(KEY)).marks()) == 1
    viking.start()
    assert client.flush()
    assert DeliveryLog(client._logs, store.session(KEY)).marks() == []
    assert viking.live(KEY) == numbers(0, 40)


def test_what_is_marked_during_a_visit_stays_marked(viking, client, store, monkeypatch):
    """A message that comes when a sender has read for the last time is not forgotten with it."""
    from holdfast.adapters.openviking.client import workers

    is_done = workers.Visit.is_done

    def late(visit):
        done = is_done(visit)
        monkeypatch.setattr(workers.Visit, "is_done", is_done)
        other = DeliveryLog(client._logs, store.session(KEY))
        other.add({"role": "user", "content": "m1"}, None)
        return done

    monkeypatch.setattr(workers.Visit, "is_done", late)
    add(client, "m0")
    assert client.flush()
    assert viking.live(KEY) == ["m0"]
    [left] = client.unsent()
    assert left.messages == 1
    assert client.resume() == 1 and client.flush()
    assert viking.live(KEY) == ["m0", "m1"] and client.unsent() == []


def test_a_wiped_session_is_filled_again_before_anything_else(viking, client):
    add(client, *numbers(0, 5))
    assert client.flush()
    viking.kill()
    viking.wipe(KEY)
    viking.start()
    add(client, "m5")
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 6)
    [lost] = client.report(KEY).lost
    assert (lost.messages, lost.why, lost.misplaced) == (5, "wiped", 0)


def test_only_what_was_live_is_filled_again(viking, client):
    add(client, *numbers(0, 3))
    assert client.commit(KEY).wait(10).state == "completed"
    add(client, *numbers(3, 5))
    assert client.flush()
    viking.kill()
    viking.wipe(KEY)
    viking.start()
    client.send(KEY)
    assert client.flush()
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == numbers(3, 5)


def test_a_session_that_is_gone_is_filled_again_with_its_commits(viking, client):
    add(client, *numbers(0, 3))
    client.commit(KEY)
    add(client, "m3")
    assert client.flush()
    viking.kill()
    viking.sessions.clear()
    viking.start()
    add(client, "m4")
    assert client.flush()
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == ["m3", "m4"]
    [lost] = client.report(KEY).lost
    assert (lost.messages, lost.why) == (4, "gone")


@pytest.mark.parametrize("blinks", [1, 4, 5, 8])
def test_a_session_that_looks_empty_for_a_moment_is_not_filled_again(viking, client, blinks):
    add(client, *numbers(0, 5))
    assert client.flush()
    client._workers.visit_all()
    viking.kill()
    viking.start()
    viking.blinks = blinks
    add(client, "m5")
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 6) and client.report(KEY).lost == []


def test_a_wipe_without_a_restart_is_noticed_by_the_count(viking, client):
    add(client, *numbers(0, 3))
    assert client.flush()
    viking.wipe(KEY)
    add(client, "m3")
    client._workers.visit_all()
    add(client, "m4")
    assert client.flush()
    # OpenViking can't put a message before another: what was there already stays where it is.
    assert sorted(viking.live(KEY)) == numbers(0, 5)
    assert client.report(KEY).lost[0].misplaced <= 2


def test_a_refused_message_takes_away_nothing_but_itself(viking, client):
    ids = add(client, *numbers(0, 40), "poison", *numbers(40, 80), "poison too", "m80")
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 81)
    refused = client.report(KEY).refused
    assert [each.message_id for each in refused] == [ids[40], ids[81]]
    assert refused[0].status == 400
    viking.wipe(KEY)
    viking.kill()
    viking.start()
    client.send(KEY)
    assert client.flush()
    assert viking.live(KEY) == numbers(0, 81) and len(client.report(KEY).refused) == 2


def test_a_session_that_is_refused_makes_no_message_a_refused_one(viking, client):
    add(client, *numbers(0, 3), key="bad-session")
    assert not client.flush(0.5)  # time for more tries than a refusal takes
    report = client.report("bad-session")
    assert report.refused == [] and report.unsent == 3 and "400" in report.problem


def test_a_server_that_wants_a_key_gets_nothing_and_loses_nothing(viking, client, monkeypatch):
    answer = viking.answer
    monkeypatch.setattr(viking, "answer", lambda *request: (401, {"code": "UNAUTHENTICATED"}))
    add(client, "m0")
    assert not client.flush(0)
    assert "401" in client.report(KEY).problem
    monkeypatch.setattr(viking, "answer", answer)
    assert client.flush()
    assert viking.live(KEY) == ["m0"] and client.report(KEY).refused == []


# Commits.


@pytest.mark.parametrize(
    "fault", ["", "drop", "die", "error", "failed", "busy", "hiccup", "twice", "torn"]
)
def test_a_commit_happens_once_and_in_its_place(viking, client, fault):
    add(client, *numbers(0, 3))
    assert client.flush()
    commit = client.commit(KEY)
    add(client, *numbers(3, 5))
    if fault:
        viking.next(fault)
    assert commit.wait(10).state == "completed"
    assert client.flush()
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == numbers(3, 5)


def test_a_failed_commit_is_reported_and_not_sent_again(viking, client):
    viking.task_end = "failed"
    add(client, *numbers(0, 3))
    report = client.commit(KEY).wait(10)
    assert (report.state, report.problem) == ("failed", "429 from the model")
    viking.task_end = "completed"
    add(client, "m3")
    assert client.flush()
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == ["m3"]
    assert client.report(KEY).commits == [report]


@pytest.mark.parametrize("fault", ["", "drop", "error", "twice", "torn", "failed"])
def test_a_failed_commit_can_be_asked_for_again(viking, client, fault):
    add(client, *numbers(0, 3))
    viking.task_end = "failed"
    assert client.commit(KEY, keep_recent_count=1).wait(10).state == "failed"
    add(client, "m3")
    assert client.flush()
    [left] = client.unsent()
    assert left.key == KEY and left.messages == 0
    viking.task_end = "completed"
    if fault:
        viking.next(fault)
    [handle] = client.retry_commits()
    assert handle.wait(20).state == "completed"
    assert handle.report().again == left.failed[0]
    assert sorted(viking.archives(KEY)[-1]) == numbers(0, 4)
    assert client.retry_commits() == [] and client.unsent() == []
    add(client, "m4")
    assert client.flush() and viking.live(KEY) == ["m4"]
    assert client.report(KEY).lost == []


def test_a_commit_that_fails_again_is_asked_for_again(viking, client):
    add(client, *numbers(0, 3))
    viking.task_end = "failed"
    assert client.commit(KEY).wait(10).state == "failed"
    add(client, "m3")
    [handle] = client.retry_commits(KEY)
    assert handle.wait(10).state == "failed"
    assert len(client.unsent()[0].failed) == 1
    viking.task_end = "completed"
    [handle] = client.retry_commits(KEY)
    assert handle.wait(10).state == "completed"
    assert sorted(viking.archives(KEY)[-1]) == numbers(0, 4)
    assert client.unsent() == []


def test_two_who_ask_again_at_once_ask_once(viking, client, store):
    add(client, *numbers(0, 2))
    viking.task_end = "failed"
    client.commit(KEY).wait(10)
    viking.task_end = "completed"
    with Client(viking.url, store=store, background=False) as other:
        [one], [two] = client.retry_commits(), other.retry_commits()
        assert one.id == two.id
        assert one.wait(10).state == "completed" == two.report().state
    assert viking.archives(KEY)[1:] == [numbers(0, 2)]


def test_a_commit_that_failed_while_its_answer_was_lost_is_reported_as_failed(viking, client):
    viking.task_end = "failed"
    add(client, *numbers(0, 3))
    assert client.flush()
    viking.next("drop")
    assert client.commit(KEY).wait(10).state == "failed"
    add(client, "m3")
    assert client.flush()
    assert viking.everything(KEY) == numbers(0, 4) and client.report(KEY).lost == []


def test_a_commit_that_is_accepted_is_not_taken_for_done(viking, client):
    viking.task_end = "running"
    add(client, "m0")
    commit = client.commit(KEY)
    assert client.flush()
    assert commit.report().state == "accepted"
    for task in viking.tasks.values():
        task["status"] = "completed"
    assert commit.wait(10).state == "completed"


def test_a_commit_whose_options_are_refused_is_over(viking, client):
    add(client, "m0")
    assert client.commit(KEY, keep_recent_count=-1).wait(10).state == "failed"
    assert client.commit(KEY).wait(10).state == "completed"
    assert client.commit(KEY).wait(10).state == "skipped"


def test_two_commits_that_were_asked_for_at_once_archive_each_message_once(viking, client):
    add(client, *numbers(0, 3))
    first, second = client.commit(KEY), client.commit(KEY)
    assert (first.wait(10).state, second.wait(10).state) == ("completed", "skipped")
    assert viking.archives(KEY) == [numbers(0, 3)]


def test_the_same_event_is_one_message_and_one_commit(viking, client):
    ids = {client.add_message(KEY, "user", "m0", event_id=7) for _ in range(3)}
    commits = {client.commit(KEY, event_id=8).id for _ in range(3)}
    assert client.flush()
    assert len(ids) == len(commits) == 1 and viking.archives(KEY) == [["m0"]]


def test_what_a_commit_keeps_is_filled_again_and_what_it_archived_is_not(viking, client):
    add(client, *numbers(0, 5))
    assert client.commit(KEY, keep_recent_count=2).wait(10).state == "completed"
    viking.kill()
    viking.wipe(KEY)
    viking.start()
    client.send(KEY)
    assert client.flush()
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == numbers(3, 5)


def test_a_commit_of_somebody_else_is_no_loss(viking, client):
    add(client, *numbers(0, 3))
    assert client.flush()
    viking.answer("POST", f"/api/v1/sessions/{KEY}/commit", {})
    for number in range(3, 6):
        add(client, f"m{number}")
        assert client.flush()
    assert viking.everything(KEY) == numbers(0, 6) and client.report(KEY).lost == []
    log = DeliveryLog(client._logs, client._session(KEY))
    assert log.position().known == ()


# Sessions.


def test_the_turns_of_an_agent_are_sent_with_their_tools(viking, client, store):
    session = store.session(KEY)
    with session.turn("Measure.") as turn:
        call = turn.call("shell", {"a": 1})
        client.send(session)
        assert client.flush() and viking.live(KEY) == ["Measure."]
        turn.result(call, "31 %")
        turn.say("31 %.")
    client.send(session)
    assert client.flush()
    assert viking.live(KEY) == ["Measure.", "shell=31 %", "31 %."]


def test_a_reset_begins_another_session_there(viking, client, store):
    add(client, "m0")
    old = store.session(KEY)
    new = store.reset(KEY)
    client.commit(old)
    add(client, "m1")
    assert client.flush()
    assert viking.archives(KEY) == [["m0"]]
    assert viking.live(f"{KEY}-{new.id}") == ["m1"]


def test_a_key_that_can_be_no_id_there_goes_by_the_id_of_its_session(viking, client, store):
    add(client, "m0", key="a/b")
    assert client.flush()
    assert viking.live(f"holdfast-{store.session('a/b').id}") == ["m0"]


def test_no_two_sessions_are_one_there(viking, client, store):
    """Whatever their keys are: also the names that others of them have there."""
    add(client, "m0", key="a/b")
    add(client, "m1")
    store.reset(KEY)
    add(client, "m2")
    made = [client.report(key).viking_id for key in ("a/b", KEY)]
    plain = "0f8fad5b-d9cb-469f-a165-70867728950e"
    for number, key in enumerate([*made, store.session("a/b").id, plain]):
        add(client, f"m{3 + number}", key=key)
    assert client.flush()
    keys = ["a/b", KEY, *made, store.session("a/b").id, plain]
    names = [client.report(key).viking_id for key in keys]
    assert [viking.live(name) for name in names] == [
        ["m0"],
        ["m2"],
        *[[f"m{n}"] for n in range(3, 7)],
    ]
    assert viking.live(KEY) == ["m1"]
    # A key that OpenViking itself has made keeps its name.
    assert names[-1] == plain


def test_delivery_logs_are_in_no_list_of_sessions(client, store):
    add(client, "m0")
    assert client.flush()
    assert [listed.key for listed in store.sessions()] == [KEY]


def test_a_visit_reads_no_more_of_a_long_history(viking, client, store, monkeypatch):
    client.add_messages(KEY, [{"role": "user", "content": text} for text in numbers(0, 900)])
    read = []
    fitted = reads.fitted

    def counted(query, rows):
        read.append(len(rows))
        return fitted(query, rows)

    # Where all handles read, those for the log of deliveries too.
    monkeypatch.setattr(reads, "fitted", counted)
    visits = []
    for number in range(30):
        add(client, f"visit {number}")
        assert client.flush()
        visits.append(sum(read))
        read.clear()
    assert viking.live(KEY)[-1] == "visit 29"
    assert visits[-1] <= visits[5] < 100


def test_a_commit_waits_for_a_message_that_waits_for_its_tool(viking, client, store):
    session = store.session(KEY)
    with session.turn("Measure.") as turn:
        call = turn.call("shell", {})
        commit = client.commit(session)
        client.send(session)
        assert client.flush() and commit.report().state == "owed"
        turn.result(call, "31 %")
    client.send(session)
    assert commit.wait(10).state == "completed"
    assert viking.archives(KEY) == [["Measure.", "shell=31 %"]]


def test_while_another_process_is_the_sender_nothing_is_sent_here(viking, client):
    ids = add(client, "m0")
    log = DeliveryLog(client._logs, client._session(KEY))
    with log.turn():
        assert not client.flush(0.1)
        assert viking.live(KEY) == []
    assert client.flush()
    assert viking.live(KEY) == ["m0"] and len(ids) == 1


def test_a_session_of_another_store_or_tenant_is_refused(client, store, tmp_path):
    with holdfast.open(tmp_path / "other.db") as other:
        with pytest.raises(BadArgument):
            client.send(other.session(KEY))
    with pytest.raises(BadArgument):
        client.add_message(store.for_tenant("acme").session(KEY), "user", "x")


@pytest.mark.parametrize("error", [RuntimeError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_stops_nothing(viking, store, error):
    told = []

    def on_problem(id, problem):
        told.append(id)
        raise error(problem)

    viking.next("busy")
    with Client(viking.url, store=store, on_problem=on_problem, threads=1) as client:
        add(client, "m0")
        assert client.flush()
        add(client, "m0", key="garden")
        assert client.flush()
    assert told == [KEY] and viking.live(KEY) == viking.live("garden") == ["m0"]


def test_a_flush_that_was_interrupted_can_be_called_again(viking, store):
    def on_problem(id, problem):
        raise KeyboardInterrupt

    viking.next("busy")
    with Client(viking.url, store=store, background=False, on_problem=on_problem) as client:
        add(client, "m0")
        add(client, "m0", key="garden")
        with pytest.raises(KeyboardInterrupt):
            client.flush()
        assert client.flush()
    assert viking.live(KEY) == viking.live("garden") == ["m0"]


@pytest.mark.parametrize("option", [{"api_key": "key\n"}, {"user": "a\r\nX-API-Key: b"}])
def test_what_can_be_no_header_is_refused_where_the_caller_sees_it(store, option):
    with pytest.raises(BadArgument):
        Client(store=store, background=False, **option)


@pytest.mark.parametrize(
    "url", ["", "not a url", "ftp://x", "http://", "http://127.0.0.1:99999", "http://[::1", None, 7]
)
def test_an_address_that_is_none_is_refused_where_the_caller_sees_it(store, url):
    with pytest.raises(BadArgument):
        Client(url, store=store, background=False)


@pytest.mark.parametrize(
    "option",
    [
        {"threads": 0},
        {"threads": "two"},
        {"timeout_s": 0},
        {"timeout_s": None},
        {"grace_s": float("nan")},
        {"grace_s": -1},
        {"background": "no"},
        {"on_problem": 7},
    ],
)
def test_a_setting_that_can_not_work_is_refused_where_the_caller_sees_it(store, option):
    with pytest.raises(BadArgument):
        Client(store=store, **option)


def test_what_is_no_list_of_objects_is_refused(client, store):
    for parts in ([7], {"a": 1}, "x", 7):
        with pytest.raises(BadArgument):
            client.add_message(KEY, "user", parts=parts)
    for messages in (None, 7, [7], ["x"], "xy", {"role": "user"}):
        with pytest.raises(BadArgument):
            client.add_messages(KEY, messages)
    for value in (object(), float("nan"), "\ud800", {1, 2}):
        with pytest.raises(BadArgument):
            client.commit(KEY, metadata=value)
    assert list(store.session(KEY).transcript()) == [] and client.unsent() == []


@pytest.mark.parametrize(
    "wrong",
    [
        lambda client: client.flush("x"),
        lambda client: client.flush(1e300),
        lambda client: client.flush(-1),
        lambda client: client.close("x"),
        lambda client: client.context(KEY, token_budget="x"),
        lambda client: client.context(KEY, token_budget=-1),
        lambda client: client.resume(everywhere="x"),
        lambda client: client.commit(KEY, event_id=[]),
        lambda client: client.add_message(KEY, "user", "x", event_id={}),
        lambda client: client.add_message(KEY, "user", "x", created_at=5),
        lambda client: client.add_message(KEY, "user", "x", turn_id=4),
        lambda client: client.add_message(KEY, "user", "x", peer_id=1),
        lambda client: client.add_message(KEY, "user", "x", peer_id="a b"),
        lambda client: client.add_message(KEY, "user", "x", message_kind="zzz"),
        lambda client: client.add_messages(KEY, [{"role": "user", "content": "x", "peer_id": 1}]),
        lambda client: client.add_messages(KEY, [{"role": "user", "content": "x", "event_id": 1}]),
    ],
)
def test_arguments_that_can_not_be_meant_are_refused_before_anything_is_stored(
    client, store, wrong
):
    with pytest.raises(BadArgument):
        wrong(client)
    assert list(store.sessions()) == [] and client.unsent() == []


def test_a_wait_for_no_time_at_all_is_refused(client):
    commit = client.commit(KEY)
    for timeout_s in ("x", 1e300, -1, True):
        with pytest.raises(BadArgument):
            commit.wait(timeout_s)


def test_options_and_fields_that_nobody_knows_are_refused(client, store):
    with pytest.raises(TypeError, match="tokens"):
        Client(store=store, tokens=3)
    with pytest.raises(TypeError, match="nme"):
        client.add_message(KEY, "user", "m0", nme="x")


def test_what_is_no_message_is_refused_before_it_is_stored(client, store):
    with pytest.raises(BadArgument):
        client.add_message(KEY, "tool", "x")
    with pytest.raises(InvalidMessage):
        client.add_message(KEY, "user")
    with pytest.raises(BadArgument):
        Client("not an address", store=store)
    assert list(store.session(KEY).transcript()) == []


# Threads, tasks, processes.


def test_a_client_in_the_background_sends_by_itself(viking, tmp_path):
    with Client(viking.url, store=tmp_path / "own.db", grace_s=0.3) as client:
        add(client, *numbers(0, 3))
        assert client.commit(KEY).wait(20).state == "completed"
        viking.next("drop")
        add(client, "m3")
        assert client.flush()
        assert client.context(KEY)["messages"][0]["content"] == "m3"
    assert viking.everything(KEY) == numbers(0, 4)


def test_a_client_in_the_background_takes_up_what_the_last_one_left(viking, store):
    viking.kill()
    with Client(viking.url, store=store, background=False) as first:
        add(first, *numbers(0, 3))
        with pytest.raises(StoreUnavailable):
            first.context(KEY)
    viking.start()
    with Client(viking.url, store=store) as second:
        assert second.flush()
    assert viking.live(KEY) == numbers(0, 3)


@pytest.mark.parametrize("one, other", [(Client, AsyncClient), (CommitHandle, AsyncCommitHandle)])
def test_both_faces_have_the_same_names_and_parameters(one, other):
    assert faces.twins(one, other) == []
    assert faces.parameters(one) == faces.parameters(other) or one is CommitHandle


def test_asyncio_has_the_same_names(viking, tmp_path):
    async def main():
        async with AsyncClient(viking.url, store=tmp_path / "own.db") as client:
            await client.add_message(KEY, "user", "m0")
            await client.add_messages(KEY, [{"role": "assistant", "content": "m1"}])
            await client.send(KEY)
            commit = await client.commit(KEY)
            assert (await commit.wait(20)).state == (await commit.report()).state == "completed"
            assert await client.flush()
            assert (await client.context(KEY))["messages"] == []
            assert (await client.report(KEY)).unsent == 0
            assert await client.resume() == 0
            viking.task_end = "failed"
            await client.add_message(KEY, "user", "m2", event_id="e2")
            assert (await (await client.commit(KEY)).wait(20)).state == "failed"
            viking.task_end = "completed"
            [left] = await client.unsent()
            assert left.key == KEY and len(left.failed) == 1
            [again] = await client.retry_commits()
            assert (await again.wait(20)).state == "completed"
            assert await client.resume(everywhere=True) == 0

    asyncio.run(main())
    assert viking.archives(KEY) == [["m0", "m1"], ["m2"], ["m2"]]


def test_an_async_store_is_taken_too(viking, tmp_path):
    async def main():
        async with holdfast.open_async(tmp_path / "a.db") as store:
            session = await store.session(KEY)
            await session.append("m0")
            async with AsyncClient(viking.url, store=store) as client:
                await client.send(session)
                assert await client.flush()

    asyncio.run(main())
    assert viking.live(KEY) == ["m0"]


@pytest.fixture(params=["sqlite", "postgres"])
def where(request, tmp_path):
    """The address of a store of either kind."""
    if request.param == "sqlite":
        return str(tmp_path / "a.db")
    return request.getfixturevalue("databases")(schema=True)


@pytest.mark.slow
def test_two_clients_of_one_session_send_each_message_once(viking, where):
    def work(name):
        with Client(viking.url, store=where, grace_s=0.3) as client:
            for number in range(20):
                client.add_message(KEY, "user", f"{name}{number}")
            assert client.flush(30)

    threads = [threading.Thread(target=work, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with holdfast.open(where) as store:
        stored = [message.text for message in store.session(KEY).transcript()]
    assert viking.live(KEY) == stored and len(stored) == 40


@pytest.mark.slow
def test_either_kind_of_store_keeps_what_was_sent_and_what_is_in_doubt(viking, where):
    with Client(viking.url, store=where, background=False, grace_s=0.3) as first:
        add(first, *numbers(0, 3))
        commit = first.commit(KEY)
        add(first, "m3")
        viking.next("drop", "die")
        first._workers.visit_all()
    with Client(viking.url, store=where, grace_s=0.3) as second:
        assert second.flush()
        assert [each.id for each in second.report(KEY).commits] == [commit.id]
    assert viking.archives(KEY) == [numbers(0, 3)] and viking.live(KEY) == ["m3"]
