"""Parses each line of a file as a CloudEvent, with the SDK's two interfaces."""

import sys
from collections import Counter

from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from cloudevents.v1.http import from_json

kinds = Counter()
for line in open(sys.argv[1], "rb"):
    event = JSONFormat().read(CloudEvent, line)
    assert event.get_specversion() == "1.0" and event.get_id() and event.get_source(), line
    assert event.get_extension("ftbposition") and isinstance(event.get_data(), dict), line
    assert from_json(line)["id"] == event.get_id()
    kinds[event.get_type()] += 1
print(" ".join(f"{kind}={kinds[kind]}" for kind in sorted(kinds)))
