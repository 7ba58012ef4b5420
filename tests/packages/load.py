"""Publishes numbered events until /tmp/stop exists, and receives each of them once, in order."""

import os
import time

import ftb

PATIENCE_S = 120
last = number = 0

with ftb.Client("load") as client:
    subscription = client.subscribe("event_space=site.load", timeout=PATIENCE_S)
    print("ready", flush=True)
    while not os.path.exists("/tmp/stop"):
        number += 1
        client.publish_wait("site.load", "NUMBER", payload=str(number), timeout=PATIENCE_S)
        time.sleep(0.002)
    client.flush(timeout=PATIENCE_S)
    while last < number:
        event = subscription.next(timeout=PATIENCE_S)
        assert isinstance(event, ftb.Event) and int(event.text) == last + 1, (last, event)
        last += 1
print(f"{number} events, each received once")
