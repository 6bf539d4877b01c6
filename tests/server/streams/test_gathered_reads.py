"""Reads that are gathered: while one batch is read the next one comes together, and each has its own answer."""

import asyncio
import threading

import pytest

from holdfast.server.streams.gathered_reads import GatheredReads


def test_what_comes_while_a_batch_is_read_is_read_together_on_one_thread():
    begun, go_on, threads = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        assert go_on.wait(60)
        return 0

    def later(number):
        threads.append(threading.get_ident())
        return number

    async def live():
        reads = GatheredReads()
        waiting = [asyncio.create_task(reads.read(first))]
        await asyncio.to_thread(begun.wait, 60)
        for number in range(1, 6):
            waiting.append(asyncio.create_task(reads.read(lambda own=number: later(own))))
        await asyncio.sleep(0)
        go_on.set()
        return await asyncio.gather(*waiting)

    assert asyncio.run(live()) == [0, 1, 2, 3, 4, 5]
    assert len(set(threads)) == 1


def test_one_that_fails_fails_alone_and_one_that_is_given_up_is_not_read():
    begun, go_on, seen = threading.Event(), threading.Event(), []

    def first():
        begun.set()
        assert go_on.wait(60)

    def broken():
        raise KeyError("broken")

    async def live():
        reads = GatheredReads()
        blocking = asyncio.create_task(reads.read(first))
        await asyncio.to_thread(begun.wait, 60)
        given_up = asyncio.create_task(reads.read(lambda: seen.append("given up")))
        failing = asyncio.create_task(reads.read(broken))
        well = asyncio.create_task(reads.read(lambda: "well"))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(KeyError):
            await failing
        assert await well == "well"
        await blocking
        # After a failure, too.
        return await reads.read(lambda: "again")

    assert asyncio.run(live()) == "again"
    assert seen == []
