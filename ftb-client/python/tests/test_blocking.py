"""The blocking client against a real agent."""

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from datetime import datetime, timedelta, timezone

import ftb
from support import LONG, AgentTest


class Publishing(AgentTest):
    def test_an_event_arrives_as_it_was_said(self):
        self.start_agent()
        with ftb.Client("checker", agent=self.socket, job_id="4711") as client:
            events = client.subscribe("event_space=my.space", timeout=LONG)
            moment = datetime(2020, 2, 3, 4, 5, 6, 789, tzinfo=timezone.utc)
            receipt = client.publish(
                "my.space",
                "DISK_FULL",
                severity="error",
                payload="voll \u00e4",
                tags=[("disk", "/scratch"), ("disk", "/tmp"), ("percent", 99)],
                time=moment,
            )
            event = events.next(timeout=LONG)
            self.assertEqual(receipt.wait(timeout=LONG), event.id)
            self.assertEqual(receipt.wait(), event.id)
            self.assertEqual((event.space, event.name), ("my.space", "DISK_FULL"))
            self.assertIs(event.severity, ftb.Severity.ERROR)
            self.assertGreater(event.severity, ftb.Severity.WARNING)
            self.assertEqual((event.text, event.payload), ("voll \u00e4", "voll \u00e4".encode()))
            self.assertEqual(event.tags, {"disk": "/scratch", "percent": "99"})
            self.assertEqual(event.all_tags[1], ("disk", "/tmp"))
            self.assertEqual(event.time, moment)
            self.assertEqual((event.client, event.job_id), ("checker", "4711"))
            self.assertEqual((event.host, event.pid), ("one", os.getpid()))
            self.assertEqual(client.agent.cluster, "python")

            client.publish("my.space", "SEEN", response_to=event).wait(timeout=LONG)
            answer = events.next(timeout=LONG)
            self.assertEqual((answer.is_response, answer.response_to), (True, event.id))
            self.assertEqual(client.stats.confirmed, 2)

    def test_what_is_published_without_an_agent_waits_for_one(self):
        client = ftb.Client("early", agent=self.socket)
        receipt = client.publish("my.space", "EARLY")
        with self.assertRaises(ftb.Timeout):
            receipt.wait(timeout=0.01)
        with self.assertRaises(ftb.NoAgent) as caught:
            client.wait_connected(timeout=0.01)
        self.assertIn(self.socket, str(caught.exception))
        self.start_agent()
        self.assertTrue(receipt.wait(timeout=LONG))
        client.close()
        with self.assertRaises(ftb.Closed):
            client.publish("my.space", "LATE")

    def test_conditions_are_stated_read_as_a_table_and_followed(self):
        self.start_agent()
        with ftb.Client("checker", agent=self.socket) as client:

            def state(**facts):
                condition = ftb.Condition("FANFAIL", component="FAN 1", **facts)
                receipt = client.publish(
                    "ftb.ipmi", "BAD", severity="error", payload="slow", condition=condition
                )
                return receipt.wait(timeout=LONG)

            first = state(host="node07", action="migrate", expires=600, kept=True)
            table = client.subscribe("condition=*", since=ftb.Start.CONDITIONS, timeout=LONG)
            event = table.next(timeout=LONG)
            known = event.condition
            self.assertEqual((known.key, known.host, known.component), ("FANFAIL", "node07", "FAN 1"))
            self.assertEqual((known.state, known.action), (ftb.State.TRUE, "migrate"))
            self.assertEqual((known.severity, known.expires), (ftb.Severity.ERROR, 600))
            self.assertEqual((known.source, known.event), (first, "ftb.ipmi BAD"))
            self.assertTrue(known.kept)
            self.assertEqual(known.onset_ns, event.time_ns)
            state(host="node07", state=False)
            self.assertIs(table.next(timeout=LONG).condition.state, ftb.State.FALSE)
            # What is known can be stated again as it is.
            client.publish("ftb.ipmi", "BAD", condition=known).wait(timeout=LONG)
            again = table.next(timeout=LONG).condition
            self.assertEqual((again.state, again.severity), (known.state, known.severity))
            # An entry of publish_many states a condition too, and the table ends with the past.
            many = [{"space": "ftb.ipmi", "name": "BAD", "condition": ftb.Condition("HEAT", host=h)}
                    for h in ("node01", "node02")]
            client.publish_many(many).wait(timeout=LONG)
            past = client.history("condition=HEAT", since=ftb.Start.CONDITIONS, timeout=LONG)
            self.assertEqual({e.condition.host for e in past}, {"node01", "node02"})
            for mistake, word in [
                ({"host": "no host"}, "no host name"),
                ({"state": "perhaps"}, "perhaps"),
                ({"action": "explode"}, "recommended action"),
                ({"severity": "loud"}, "loud"),
                ({"expires": -1}, "expires=-1"),
            ]:
                with self.assertRaises(ftb.EventError) as caught:
                    state(**mistake)
                self.assertIn(word, str(caught.exception))
            with self.assertRaises(ftb.Refused) as caught:
                other = ftb.Condition("HEAT", host="node02")
                client.publish("my.space", "X", condition=other).wait(timeout=LONG)
            self.assertIn("another host, node02", str(caught.exception))

    def test_mistakes_are_told_with_their_place(self):
        client = ftb.Client("wrong", agent=self.socket)
        for mistake in [
            lambda: client.publish("no space", "X"),
            lambda: client.publish("my.space", "X", severity="loud"),
            lambda: client.publish("my.space", "X", severity=5),
            lambda: client.publish("my.space", "X", payload=b"x" * 2_000_000),
            lambda: client.publish("my.space", "X", tags={"k": "v" * 5000}),
            lambda: client.publish("my.space", "X", response_to="nonsense"),
        ]:
            with self.assertRaises(ftb.EventError):
                mistake()
        with self.assertRaises(ftb.FilterError) as caught:
            client.subscribe("severity>>error")
        self.assertIn("column", str(caught.exception))
        with self.assertRaises(ftb.SubscribeError) as caught:
            client.subscribe("", after="nowhere")
        self.assertEqual(str(caught.exception).count("is no position"), 1)
        with self.assertRaises(ftb.ConfigError):
            ftb.Client("n" * 64)
        with self.assertRaises(TypeError):
            client.publish("my.space", "X", severty="info")
        with self.assertRaises(TypeError):
            client.publish("my.space", "X", payload=5)
        self.assertEqual(client.stats.published, 0)

    def test_a_full_buffer_is_an_error_or_sheds_the_mildest(self):
        client = ftb.Client("full", agent=self.socket, buffer_bytes=4000)
        mild = client.publish("my.space", "MILD", payload=b"x" * 1500)
        client.publish("my.space", "BAD", severity="fatal", payload=b"x" * 3000)
        with self.assertRaises(ftb.Shed):
            mild.wait(timeout=LONG)
        with self.assertRaises(ftb.Shed):
            mild.wait()
        with self.assertRaises(ftb.BufferFull):
            client.publish("my.space", "MILD", payload=b"x" * 3000)
        with self.assertRaises(ftb.Timeout):
            client.publish_wait("my.space", "MILD", payload=b"x" * 3000, timeout=0.01)


    def test_many_events_go_together_in_their_order(self):
        self.start_agent()
        with ftb.Client("many", agent=self.socket, job_id="4711") as client:
            events = client.subscribe("event_space=my.space", timeout=LONG)
            samples = ({"space": "my.space", "name": "N", "payload": str(n)} for n in range(100))
            receipts = client.publish_many(samples)
            last = {"space": "my.space", "name": "LAST", "severity": "error", "tags": {"n": 100}}
            more = client.publish_many_wait([last], timeout=LONG)
            found = [events.next(timeout=LONG) for _ in range(101)]
            self.assertEqual([event.text for event in found[:100]], [str(n) for n in range(100)])
            self.assertEqual({event.job_id for event in found}, {"4711"})
            self.assertEqual((found[100].severity, found[100].tags), (3, {"n": "100"}))
            ids = [event.id for event in found]
            self.assertEqual(receipts.wait(timeout=LONG), ids[:100])
            self.assertEqual(receipts.wait(), ids[:100])
            self.assertEqual([receipt.wait(timeout=LONG) for receipt in receipts], ids[:100])
            self.assertEqual((len(receipts), receipts[-1].wait()), (100, ids[99]))
            self.assertEqual(more.wait(timeout=LONG), [ids[100]])
            self.assertEqual(client.publish_many([]).wait(timeout=LONG), [])

    def test_of_many_events_none_is_published_where_one_is_wrong_or_all_are_too_many(self):
        client = ftb.Client("wrong", agent=self.socket, buffer_bytes=4000)
        good = {"space": "my.space", "name": "X"}
        for wrong in [
            {"space": "my.space", "name": "no name"},
            {"space": "my.space", "name": "X", "severity": "loud"},
            {"space": "my.space", "name": "X", "tags": {"k": "v" * 5000}},
        ]:
            for publish in (client.publish_many, client.publish_many_wait):
                with self.assertRaisesRegex(ftb.EventError, "^event 1: "):
                    publish([good, wrong, good])
        with self.assertRaises(TypeError):
            client.publish_many([good, {"space": "my.space"}])
        with self.assertRaisesRegex(ftb.BufferFull, "^event [0-9]+: .*buffer_bytes"):
            client.publish_many([dict(good, payload=b"x" * 1000)] * 4)
        self.assertEqual(client.stats.published, 0)
        client.publish_many([dict(good, payload=b"x" * 1000)] * 3)
        with self.assertRaises(ftb.Timeout):
            client.publish_many_wait([dict(good, payload=b"x" * 1000)] * 3, timeout=0.01)
        self.assertEqual((client.stats.published, client.stats.shed), (3, 0))
        worse = client.publish_many([dict(good, severity="fatal", payload=b"x" * 1000)] * 3)
        self.assertEqual((client.stats.published, client.stats.shed), (6, 3))
        with self.assertRaises(ftb.NoAgent):
            client.close(timeout=0)
        with self.assertRaises(ftb.Closed):
            worse.wait(timeout=LONG)
        with self.assertRaises(ftb.Closed):
            client.publish_many([good])


    def test_who_gave_up_waiting_for_room_keeps_nobody_waiting(self):
        with ftb.Client("full", agent=self.socket, buffer_bytes=4000) as client:
            event = {"space": "my.space", "name": "X", "payload": b"x" * 1000}
            client.publish_many([event])
            try:
                client.publish_many_wait([event] * 3, timeout=0.01)
            except ftb.Timeout as error:
                kept = error  # with its traceback, and all that this holds
            self.start_agent()
            for _ in range(10):
                client.publish_wait(**event, timeout=LONG).wait(timeout=LONG)
            self.assertEqual((kept.args, client.stats.published), (("nothing happened in time",), 11))


class Subscribing(AgentTest):
    def test_filters_history_and_positions(self):
        self.start_agent()
        with ftb.Client("reader", agent=self.socket) as client:
            for number in range(5):
                severity = "error" if number % 2 else "info"
                client.publish("my.space", f"E{number}", severity=severity)
            client.flush(timeout=LONG)
            names = [event.name for event in client.history("severity>=error", timeout=LONG)]
            self.assertEqual(names, ["E1", "E3"])
            names = [event.name for event in client.history(since=timedelta(hours=1))]
            self.assertEqual(names, [f"E{number}" for number in range(5)])
            far = datetime.now(timezone.utc) + timedelta(hours=1)
            self.assertEqual(list(client.history(since=far)), [])

            reader = client.subscribe(since=timedelta(hours=1), timeout=LONG)
            self.assertEqual([reader.next(timeout=LONG).name for _ in range(2)], ["E0", "E1"])
            place = None
            for event in reader:
                place = event.position
                if event.name == "E3":
                    break
            reader.close()
            with self.assertRaises(ftb.Closed):
                reader.position
            rest = client.subscribe(after=place, timeout=LONG)
            self.assertEqual(rest.next(timeout=LONG).name, "E4")
            with self.assertRaises(ftb.Timeout):
                rest.next(timeout=0.01)
            self.assertIsNone(rest.try_next())

    def test_a_subscription_goes_on_with_a_restarted_agent_and_ends_with_its_client(self):
        self.start_agent()
        client = ftb.Client("steady", agent=self.socket)
        events = client.subscribe("event_space=my.space", timeout=LONG)
        self.stop_agent()
        client.publish("my.space", "BETWEEN")
        self.start_agent()
        found = events.next(timeout=LONG)
        while isinstance(found, ftb.Gap):  # the only log died with its agent
            self.assertIn(found.reason, ("log-lost", "retention", "shed"))
            found = events.next(timeout=LONG)
        self.assertEqual(found.name, "BETWEEN")
        client.close()
        self.assertIsNone(events.next(timeout=LONG))
        self.assertEqual(list(events), [])

    def test_a_gap_says_what_is_missing_and_where(self):
        rule = '\n[[storm]]\nspace = "my.loud"\nevents_per_s = 1\nburst = 1\n'
        self.config.write_text(self.config.read_text() + rule)
        self.start_agent()
        with ftb.Client("loud", agent=self.socket) as client:
            events = client.subscribe("event_space=my.loud", timeout=LONG)
            for number in range(50):
                client.publish("my.loud", f"E{number}", severity="warning")
            found = events.next(timeout=LONG)
            while isinstance(found, ftb.Event):
                found = events.next(timeout=LONG)
            self.assertEqual(found.reason, "shed")
            self.assertGreater(found.count, 0)
            self.assertEqual(found.severity_max, ftb.Severity.WARNING)
            self.assertEqual(found.spaces, ("my.loud",))
            self.assertNotEqual(found.after, found.until)

    def test_threads_share_a_client_and_a_subscription(self):
        self.start_agent()
        each, readers = 50, 4
        with ftb.Client("many", agent=self.socket) as client:
            events = client.subscribe("event_space=my.space", timeout=LONG)
            got, lock = [], threading.Lock()

            def read():
                while True:
                    event = events.next(timeout=LONG)
                    if event is None or event.name == "END":
                        return
                    with lock:
                        got.append(event.payload)

            def write(writer):
                for number in range(each):
                    client.publish("my.space", "N", payload=f"{writer} {number}")

            reading = [threading.Thread(target=read) for _ in range(readers)]
            writing = [threading.Thread(target=write, args=(n,)) for n in range(4)]
            for thread in reading + writing:
                thread.start()
            for thread in writing:
                thread.join()
            for _ in reading:
                client.publish("my.space", "END")
            for thread in reading:
                thread.join()
            self.assertEqual(len(got), 4 * each)
            self.assertEqual(len(set(got)), 4 * each)


    def test_closing_wakes_who_waits(self):
        self.start_agent()
        with ftb.Client("closer", agent=self.socket) as client:
            events = client.subscribe("event_space=my.space", timeout=LONG)
            found = []
            reading = threading.Thread(target=lambda: found.append(events.next(timeout=LONG)))
            reading.start()
            while not events._reading.locked():
                time.sleep(0.001)
            events.close()
            reading.join()
            self.assertEqual(found, [None])
            self.assertIsNone(events.try_next())

    def test_threads_share_a_receipt(self):
        client = ftb.Client("sharer", agent=self.socket)
        receipt = client.publish("my.space", "SHARED")
        ids = []
        asking = [
            threading.Thread(target=lambda: ids.append(receipt.wait(timeout=LONG))) for _ in range(4)
        ]
        for thread in asking:
            thread.start()
        self.start_agent()
        for thread in asking:
            thread.join()
        self.assertEqual(ids, [receipt.wait()] * 4)
        client.close()


# A shell's background job, and all below it, ignores the signal.
WAITING = """
import ftb, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
client = ftb.Client("waiting")
events = client.subscribe()
try:
    print("waiting", flush=True)
    events.next()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""

#: As `_base` has them, but for a machine that may be slow.
PATIENCE = """
import ftb._base
ftb._base.EXIT_S = ftb._base.EXIT_ATTACH_S = 300
"""

LEAVING = """
import ftb, threading
client = ftb.Client("leaving")
client.wait_connected(300)
events = client.subscribe()
threading.Thread(target=events.next, daemon=True).start()
client.publish("my.space", "LAST_WORDS")
"""

LETTING_GO = """
import ftb

def main():
    ftb.Client("hasty").publish("my.space", "LAST_WORDS")

main()
"""

ALONE = """
import ftb, threading
client = ftb.Client("alone", agent="/nowhere/agent.sock")
client.publish("my.space", "NOBODY_LISTENS")
threading.Thread(target=client.subscribe, daemon=True).start()
"""

HUNG = """
import ftb, os, signal, sys
client = ftb.Client("patient")
client.wait_connected(300)
os.kill(int(sys.argv[1]), signal.SIGSTOP)
client.publish("my.space", "NOBODY_CONFIRMS")
"""

FORKING = """
import asyncio, ftb, os, sys
client = ftb.Client("parent")
client.wait_connected(300)
events = client.subscribe("event_name=FROM_CHILD")
pending = client._native.publish_wait(ftb._types.said("my.space", "X"))
child = os.fork()
if child == 0:
    for touch in (
        lambda: client.publish("my.space", "X"),
        lambda: events.next(),
        lambda: client.connected,
        lambda: ftb._base.result(pending, 300),
        lambda: asyncio.run(ftb._aio.result(pending)),
    ):
        try:
            touch()
            os._exit(1)
        except ftb.Forked:
            pass
    del client, events
    with ftb.Client("child") as own:
        own.publish("my.space", "FROM_CHILD").wait(300)
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert events.next(300).client == "child"
client.publish("my.space", "STILL_HERE").wait(300)
print("both went on")
"""


class Ending(AgentTest):
    def test_ctrl_c_ends_a_wait_at_once(self):
        self.start_agent()
        process = self.script(WAITING)
        self.assertEqual(process.stdout.readline(), "waiting\n")
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=LONG)
        self.assertEqual((out, process.returncode), ("interrupted\n", 0), errors)

    def test_a_program_that_ends_hands_over_what_it_published(self):
        self.start_agent()
        with ftb.Client("watcher", agent=self.socket) as client:
            events = client.subscribe("event_name=LAST_WORDS", timeout=LONG)
            for script, name in ((LEAVING, "leaving"), (LETTING_GO, "hasty")):
                process = self.script(PATIENCE + script)
                _, errors = process.communicate(timeout=LONG)
                self.assertEqual((process.returncode, errors), (0, ""))
                self.assertEqual(events.next(timeout=LONG).client, name)

    def test_without_an_agent_a_program_ends_all_the_same(self):
        process = self.script(ALONE)
        _, errors = process.communicate(timeout=LONG)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_a_client_that_was_let_go_leaves_once_its_last_event_is_confirmed(self):
        # There is room for the next when it has gone.
        self.config.write_text(self.config.read_text() + "\n[limits]\nclients_max = 1\n")
        self.start_agent()
        client = ftb.Client("hasty", agent=self.socket)
        client.wait_connected(timeout=LONG)
        self.agent.send_signal(signal.SIGSTOP)
        client.publish("my.space", "LAST_WORDS")
        del client
        gc.collect()
        self.agent.send_signal(signal.SIGCONT)
        with ftb.Client("next", agent=self.socket, retry_max=0.05) as following:
            following.wait_connected(timeout=LONG)
            self.assertEqual([event.name for event in following.history()], ["LAST_WORDS"])

    def test_a_hung_agent_keeps_no_program_from_ending(self):
        self.start_agent()
        process = self.script(HUNG, str(self.agent.pid))
        _, errors = process.communicate(timeout=LONG)
        self.assertEqual((process.returncode, errors), (0, ""))

    def test_a_forked_child_makes_a_client_of_its_own(self):
        self.start_agent()
        process = self.script(FORKING)
        out, errors = process.communicate(timeout=LONG)
        self.assertEqual((out, process.returncode), ("both went on\n", 0), errors)

    def test_a_step_is_counted_where_the_launcher_counts(self):
        script = "import ftb, sys; sys.exit(3 if ftb.progress() and ftb.progress() else 4)"
        read, write = os.pipe()
        self.addCleanup(os.close, read)
        self.addCleanup(os.close, write)
        # Neither without a counter nor into something else.
        for number in (None, "x", str(write)):
            environment = {key: value for key, value in os.environ.items() if "PROGRESS" not in key}
            environment |= {"FTB_PROGRESS_FD": number} if number else {}
            done = subprocess.run([sys.executable, "-c", script], env=environment, pass_fds=[write])
            self.assertEqual(done.returncode, 4)
        eventfd = ctypes.CDLL(None).eventfd
        counter = eventfd(0, 0)
        self.addCleanup(os.close, counter)
        environment["FTB_PROGRESS_FD"] = str(counter)
        done = subprocess.run([sys.executable, "-c", script], env=environment, pass_fds=[counter])
        self.assertEqual(done.returncode, 3)
        self.assertEqual(int.from_bytes(os.read(counter, 8), sys.byteorder), 2)


if __name__ == "__main__":
    unittest.main()
