"""Progress of this process for `ftb-launch`."""

import os
import sys
from typing import Optional

_STEP = (1).to_bytes(8, sys.byteorder)
_LINK = "anon_inode:[eventfd]"


def _find() -> Optional[int]:
    """The eventfd that `ftb-launch` hands over, if this process has it."""
    try:
        number = int(os.environ["FTB_PROGRESS_FD"])
        return number if os.readlink(f"/proc/self/fd/{number}") == _LINK else None
    except (KeyError, OSError, ValueError):
        return None


_counter = _find()


def progress() -> bool:
    """This process has made progress: call it after each step of the work.

    Once it was called, `ftb-launch` counts the rank as hung if no call follows within its
    `--stall-after` (10 minutes), or 4 times the longest time between two calls. It never waits.
    False: the process was not started by `ftb-launch`, so nothing counts.
    """
    if _counter is None:
        return False
    try:
        os.write(_counter, _STEP)
    except OSError:
        # A full counter is one that grows.
        pass
    return True
