"""The asyncio client against a real agent."""

import asyncio
import unittest
from datetime import timedelta

import ftb
from support import LONG, AgentTest


class Turns:
    """Counts how often the loop lets another task run."""

    def __init__(self):
        self.count = 0
        self.task = asyncio.ensure_future(self.run())

    async def run(self):
        while True:
            self.count += 1
            await asyncio.sleep(0)


class Async(AgentTest):
    def run_async(self, coroutine):
        return asyncio.run(asyncio.wait_for(coroutine, LONG))

    def test_publish_confirm_and_iterate(self):
        self.start_agent()

        async def work():
            async with ftb.AsyncClient("async", agent=self.socket) as client:
                events = await client.subscribe("event_space=my.space")
                receipts = [client.publish("my.space", f"E{n}", payload=b"x") for n in range(100)]
                ids = await asyncio.gather(*receipts)
                self.assertEqual(await receipts[0], ids[0])
                got = []
                async for event in events:
                    got.append(event)
                    if len(got) == 100:
                        break
                self.assertEqual([event.id for event in got], ids)
                past = await client.history(since=timedelta(hours=1))
                self.assertEqual([event.id async for event in past], ids)
                receipt = await client.publish_wait("my.space", "WAITED")
                self.assertTrue(await receipt)
                self.assertEqual((await events.next()).name, "WAITED")
                events.close()
                self.assertIsNone(await events.next())

        self.run_async(work())

    def test_many_events_go_together(self):
        self.start_agent()

        async def work():
            async with ftb.AsyncClient("async", agent=self.socket) as client:
                many = [{"space": "my.space", "name": f"E{n}"} for n in range(100)]
                receipts = client.publish_many(many[:50])
                more = await client.publish_many_wait(many[50:])
                ids = [*await receipts, *await more]
                self.assertEqual(ids, await asyncio.gather(*receipts, *more))
                past = await client.history(since=timedelta(hours=1))
                found = [(event.name, event.id) async for event in past]
                self.assertEqual(found, [(f"E{n}", ids[n]) for n in range(100)])
                self.assertEqual((len(receipts), await receipts[-1]), (50, ids[49]))

        self.run_async(work())

    def test_a_cancelled_wait_loses_nothing(self):
        self.start_agent()

        async def work():
            client = ftb.AsyncClient("async", agent=self.socket)
            events = await client.subscribe("event_space=my.space")
            for _ in range(3):
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(events.next(), 0.01)
            waiting = asyncio.ensure_future(events.next())
            await asyncio.sleep(0)
            # It waits by now, and nothing lets it run between these two.
            receipt = client.publish("my.space", "ONE")
            waiting.cancel()
            second = asyncio.ensure_future(events.next())
            event = await second
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            self.assertEqual((event.name, event.id), ("ONE", await receipt))
            await client.close()
            self.assertIsNone(await events.next())
            with self.assertRaises(ftb.Closed):
                await client.subscribe()

        self.run_async(work())

    def test_many_subscriptions_at_once_and_the_loop_stays_free(self):
        self.start_agent()

        async def work():
            async with ftb.AsyncClient("async", agent=self.socket) as client:
                subscriptions = await asyncio.gather(
                    *(client.subscribe(f"event_name=E{n}") for n in range(20))
                )
                turns = Turns()
                readers = [asyncio.ensure_future(s.next()) for s in subscriptions]
                for n in range(20):
                    client.publish("my.space", f"E{n}")
                events = await asyncio.gather(*readers)
                turns.task.cancel()
                self.assertEqual([event.name for event in events], [f"E{n}" for n in range(20)])
                self.assertGreater(turns.count, 1)

        self.run_async(work())

    def test_closing_wakes_who_waits_and_a_burst_lets_others_run(self):
        self.start_agent()

        async def work():
            async with ftb.AsyncClient("async", agent=self.socket) as client:
                events = await client.subscribe("event_space=my.space")
                waiting = asyncio.ensure_future(events.next())
                await asyncio.sleep(0)
                self.assertIsNone(events.try_next())
                events.close()
                self.assertIsNone(await waiting)
                for n in range(1000):
                    client.publish("my.space", "N")
                await client.flush()
                past = await client.history(since=timedelta(hours=1))
                turns = Turns()
                self.assertEqual(len([event async for event in past]), 1000)
                self.assertGreaterEqual(turns.count, 1000 // ftb._aio.BURST)
                turns.task.cancel()

        self.run_async(work())

    def test_errors_are_the_same(self):
        async def work():
            client = ftb.AsyncClient("async", agent=self.socket)
            with self.assertRaises(ftb.FilterError):
                await client.subscribe("severity>>error")
            with self.assertRaises(ftb.NoAgent):
                await client.wait_connected(0.01)
            client.publish("my.space", "X")
            with self.assertRaises(ftb.NoAgent):
                await client.flush(0.01)

        self.run_async(work())


if __name__ == "__main__":
    unittest.main()
