"""Prints faults as they come: python watch.py ['severity>=warning']"""

import sys

import ftb

with ftb.Client("watch.py") as client:
    client.wait_connected(timeout=5)
    for event in client.subscribe(sys.argv[1] if len(sys.argv) > 1 else "severity>=warning"):
        if isinstance(event, ftb.Gap):
            print(f"-- {event.count or 'some'} events are missing here ({event.reason})")
        else:
            print(event.time.isoformat(), event.severity.name, event.host, event.name, event.text)
