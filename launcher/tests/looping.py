"""A program in Python that keeps its state in memory: as looping.c.

Usage: looping.py STEPS PAUSE_S [GATE].
"""

import array
import os
import sys
import time

from ftb import job

STEPS, PAUSE_S = int(sys.argv[1]), float(sys.argv[2])
GATE = sys.argv[3] if len(sys.argv) > 3 else None
MASK = (1 << 64) - 1

state = job.protect("state", array.array("Q", [0, job.rank()]))
cells = job.protect("cells", bytearray(300_000))
first = True
for here in job.loop():
    if first and here > 0:
        print("goes on at", here, flush=True)
    first = False
    step, total = state
    if step == STEPS:
        break
    if step == STEPS // 2 and GATE and not os.path.exists(GATE):
        time.sleep(0.002)
        continue
    at = step * 7919 % len(cells)
    cells[at] = (cells[at] + (total ^ step)) & 0xFF
    state[0], state[1] = step + 1, (total * 31 + cells[at] + step) & MASK
    time.sleep(PAUSE_S)
print(f"result {job.rank()} {state[1]:016x} {sum(cells)}")
