"""Ctrl-C while the first loop waits for the first save."""

import os
import signal
import socket
import threading
import time

agent, rank = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
steps = os.eventfd(0)
os.environ.update(FTB_LOOP="1", FTB_RANK_FD=str(rank.detach()), FTB_PROGRESS_FD=str(steps))
os.environ.update(FTB_MEMORY_FIRST="1", FTB_RANK="0", FTB_SIZE="1")

from ftb import job  # noqa: E402


def interrupt():
    os.eventfd_read(steps)
    os.kill(os.getpid(), signal.SIGINT)


# Whoever starts this in the background may have it ignore the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
begun = time.monotonic()
threading.Thread(target=interrupt).start()
try:
    next(job.loop())
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("it waits for a minute")
assert time.monotonic() - begun < 30
