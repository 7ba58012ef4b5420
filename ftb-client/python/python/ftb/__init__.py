"""Publish and subscribe fault events of a cluster, through the ftb agent of this node.

    import ftb

    with ftb.Client("my-script") as client:
        client.publish("my.health.check", "DISK_FULL", severity=ftb.Severity.ERROR,
                       tags={"disk": "/scratch"}).wait(timeout=5)
        for event in client.subscribe("severity>=warning", since=timedelta(hours=1)):
            print(event)

`AsyncClient` is the same for asyncio. See docs/python.md.
"""

from ._aio import AsyncClient, AsyncReceipt, AsyncReceipts, AsyncSubscription
from ._client import Client, Receipt, Receipts, Subscription
from ._progress import progress
from ._types import (
    Agent,
    BufferFull,
    Closed,
    Condition,
    ConfigError,
    Event,
    EventError,
    FilterError,
    Forked,
    FtbError,
    Gap,
    NoAgent,
    Refused,
    Severity,
    Shed,
    Start,
    State,
    Stats,
    SubscribeError,
    Timeout,
)

__all__ = [
    "Agent",
    "AsyncClient",
    "AsyncReceipt",
    "AsyncReceipts",
    "AsyncSubscription",
    "BufferFull",
    "Client",
    "Closed",
    "Condition",
    "ConfigError",
    "Event",
    "EventError",
    "FilterError",
    "Forked",
    "FtbError",
    "Gap",
    "NoAgent",
    "Receipt",
    "Receipts",
    "Refused",
    "Severity",
    "Shed",
    "Start",
    "State",
    "Stats",
    "SubscribeError",
    "Subscription",
    "Timeout",
    "progress",
]
