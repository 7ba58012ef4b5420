"""What the blocking and the asyncio client have in common."""

from __future__ import annotations

import atexit
import math
import os
import select
import time
import weakref
from typing import Any, Callable, Optional

from . import _native
from ._types import Agent, Closed, FtbError, Stats, Timeout, call

#: How long the end of the program may wait, in all, for agents to take what clients have accepted.
EXIT_S = 2.0
#: How much of that for an agent that is not attached yet.
EXIT_ATTACH_S = 0.5
#: Most clients that are kept after they were let go; the oldest gives way.
LEAVING_MAX = 256
_POLL_MS_MAX = 2**31 - 1

_clients: "weakref.WeakSet[Base]" = weakref.WeakSet()
#: Rust halves of clients that were let go while agents had yet to confirm something, with their
#: processes. They go by themselves when that is done; here they are for the end of the program.
_leaving: "list[tuple[int, _native.Client]]" = []


class Base:
    """A client; made and asked alike in both worlds."""

    def __init__(
        self,
        name: str,
        *,
        job_id: str = "",
        agent: Optional[str] = None,
        buffer_bytes: Optional[int] = None,
        queue_bytes: Optional[int] = None,
        retry_max: Optional[float] = None,
    ) -> None:
        """A client of that name. It attaches in the background, and again whenever it must.

        `agent`: the socket of the agent (default: FTB_AGENT_SOCKET, else /run/ftb/agent.sock).
        `buffer_bytes`: bound of what is not confirmed (16 MiB). `queue_bytes`: bound of what one
        subscription holds for its reader (4 MiB). `retry_max`: longest pause between two attempts
        to reach an agent, in seconds (2).
        """
        self._native = call(
            _native.Client, name, job_id, agent, buffer_bytes, queue_bytes, retry_max
        )
        self._pid = os.getpid()
        _clients.add(self)
        weakref.finalize(self, _let_go, self._pid, self._native).atexit = False

    @property
    def connected(self) -> bool:
        """Whether an agent is attached now."""
        return call(self._native.connected)

    @property
    def agent(self) -> Optional[Agent]:
        """The agent that is attached now."""
        parts = call(self._native.agent)
        return None if parts is None else Agent(*parts)

    @property
    def stats(self) -> Stats:
        """What the client has done so far, and what it holds."""
        return Stats(*call(self._native.stats))


def wait(source: Any, poll: Callable[[], Optional[Any]], timeout: Optional[float]) -> Any:
    """What `poll` gives once it gives something. Other threads run meanwhile, and signals are heard."""
    deadline = None if timeout is None else time.monotonic() + timeout
    poller: Optional[select.poll] = None
    while True:
        done = call(poll)
        if done is not None:
            return done
        if poller is None:
            poller = select.poll()
            poller.register(source.fileno(), select.POLLIN)
        left_ms = None
        if deadline is not None:
            left_ms = min(max(0, math.ceil((deadline - time.monotonic()) * 1000)), _POLL_MS_MAX)
        if not poller.poll(left_ms):
            raise Timeout("nothing happened in time")


def result(pending: _native.Pending, timeout: Optional[float]) -> Any:
    """What comes of it in time. Else it is taken back at once, also while the error is kept, and with it all that
    was at work: others may wait for it."""
    try:
        (found,) = wait(pending, pending.poll, timeout)
    except BaseException:
        pending.give_up()
        raise
    return found


def _let_go(pid: int, native: _native.Client) -> None:
    """A client without references still hands over what it has accepted, and goes when that is
    confirmed. Waits for nothing: the collector of garbage calls it."""
    if _unconfirmed(pid, native):
        call(native.let_go)
        _leaving.append((pid, native))
    # In place: the collector may come in here again.
    for entry in list(_leaving):
        if not _unconfirmed(*entry):
            try:
                _leaving.remove(entry)
            except ValueError:
                pass
    del _leaving[:-LEAVING_MAX]


def _unconfirmed(pid: int, native: _native.Client) -> bool:
    if pid != os.getpid():
        return False
    try:
        return Stats(*call(native.stats)).unconfirmed_bytes > 0
    except Closed:
        return False  # it has gone


@atexit.register
def _hand_over() -> None:
    """What was published just before the program ends still reaches the agent, if one is there."""
    deadline = time.monotonic() + EXIT_S
    for pid, native in [*((client._pid, client._native) for client in _clients), *_leaving]:
        try:
            if not _unconfirmed(pid, native):
                continue
            for begin, most in ((native.wait_connected, EXIT_ATTACH_S), (native.flush, EXIT_S)):
                pending = call(begin, min(most, max(0.0, deadline - time.monotonic())))
                wait(pending, pending.poll, None)
        except FtbError:
            pass
