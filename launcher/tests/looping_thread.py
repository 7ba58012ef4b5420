"""One thread waits in its first loop; the others go on meanwhile."""

import os
import socket
import threading
import time

agent, rank = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
steps = os.eventfd(0)
os.environ.update(FTB_LOOP="1", FTB_RANK_FD=str(rank.detach()), FTB_PROGRESS_FD=str(steps))
os.environ.update(FTB_MEMORY_FIRST="1", FTB_RANK="2", FTB_SIZE="3")

from ftb import job  # noqa: E402

ended = []


def in_the_loop():
    try:
        next(job.loop())
    except job.JobError as error:
        ended.append(str(error))


def protect_late():
    try:
        job.protect("late", bytearray(8))
    except job.JobError:
        pass


begun = time.monotonic()
thread = threading.Thread(target=in_the_loop)
thread.start()
# The loop counts as a step: then it is there, and waits.
os.eventfd_read(steps)
late = threading.Thread(target=protect_late)
late.start()
assert (job.rank(), job.size(), job.progress()) == (2, 3, True)
assert time.monotonic() - begun < 30, "it would wait for a minute"
agent.close()
thread.join()
late.join()
assert "launch agent" in ended[0], ended
