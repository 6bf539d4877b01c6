"""OpenViking's client, and another address than before: what is there is looked for, and told."""

import pytest

from viking_clients import KEY, add, client_of, numbers
from viking_server import VikingServer

pytestmark = pytest.mark.usefixtures("impatient")


def test_what_is_missing_at_another_address_is_not_lost_any_more_at_the_first(viking, store):
    def sent_to(server, *texts):
        with client_of(server, store, grace_s=0.3) as client:
            add(client, *texts)
            client.send(KEY)
            assert client.flush()
            return [(lost.messages, lost.why) for lost in client.report(KEY).lost]

    with VikingServer() as other:
        assert sent_to(viking, *numbers(0, 3)) == []
        viking.kill()
        viking.wipe(KEY)
        viking.start()
        its_own = (3, "wiped")
        assert sent_to(viking, "m3") == [its_own]
        assert sent_to(other) == [its_own, (4, "gone")]
        assert sent_to(viking) == [its_own]
        # It was never told of what was said meanwhile at the other one.
        assert sent_to(other, "m4") == [its_own]
        assert sent_to(viking, "m5") == [its_own, (1, "wiped")]
        assert sent_to(other) == [its_own, (1, "wiped")]
        assert sent_to(other) == [its_own, (1, "wiped")]
        assert other.live(KEY) == viking.live(KEY) == numbers(0, 6)


def test_another_address_is_looked_at_though_it_has_as_many_messages(viking, client, store):
    add(client, *numbers(0, 3))
    assert client.flush()
    strangers = [{"content": "of somebody else"}] * 3
    with VikingServer() as other:
        other.sessions[KEY] = {"live": strangers, "archives": []}
        with client_of(other, store, grace_s=0.3) as next:
            next.send(KEY)
            assert next.flush()
        assert other.live(KEY)[3:] == numbers(0, 3)
