"""A program with the Python package of the previous release: as program.c."""

import os
import sys
import time

import ftb

SPACE = "ftb.upgrade.python"
PAUSE_S = 0.01
PATIENCE_S = 180

agent, stop = sys.argv[1:]
last = doubled = lost = number = 0


def receive(subscription):
    global last, doubled, lost
    while (event := subscription.try_next()) is not None:
        if isinstance(event, ftb.Gap):
            print("gap", event)
            continue
        found = int(event.text)
        doubled += found <= last
        lost += max(found - last - 1, 0)
        last = max(found, last)


with ftb.Client("old", agent=agent) as client:
    subscription = client.subscribe(f"event_space={SPACE}", timeout=PATIENCE_S)
    print("ready", flush=True)
    while not os.path.exists(stop):
        number += 1
        client.publish_wait(SPACE, "NUMBER", payload=str(number), timeout=PATIENCE_S)
        receive(subscription)
        time.sleep(PAUSE_S)
    client.flush(timeout=PATIENCE_S)
    heard = time.monotonic()
    while last < number and time.monotonic() - heard < PATIENCE_S:
        seen = last
        receive(subscription)
        heard = time.monotonic() if last > seen else heard
        time.sleep(PAUSE_S)
print(f"published {number}, last {last}, doubled {doubled}, lost {lost}")
