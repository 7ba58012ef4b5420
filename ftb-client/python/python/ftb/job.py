"""The state of a parallel program in the memory of its nodes, under `ftb-launch run --memory ...`.

    from ftb import job

    grid = job.protect("grid", numpy.zeros(1000))
    for i in job.loop(steps):
        step(grid)

Works beside MPI and PyTorch. Without `ftb-launch` the same program runs, unprotected. See
docs/job.md.
"""

import ctypes
from typing import Any, Iterator, NamedTuple, Optional, TypeVar

from . import _native
from ._progress import progress
from ._types import JobError, StateError, call

__all__ = ["JobError", "StateError", "loop", "progress", "protect", "rank", "size"]

B = TypeVar("B")

#: What is protected stays where it is.
_kept: list[Any] = []


class _Tensor(NamedTuple):
    """A protected tensor of PyTorch. Nothing can lock its memory: it is looked at in each loop."""

    name: str
    tensor: Any
    place: tuple[int, int]
    #: Kept, so that the memory is not freed when the tensor gets another one.
    storage: Any

    def check(self) -> None:
        try:
            is_there = _place(self.name, self.tensor) == self.place
        except JobError:
            is_there = False
        if not is_there:
            raise JobError(
                f"{self.name!r}: its memory has moved since protect(): change the content of the"
                " tensor in place (copy_), not its storage (.data = ..., to(), resize_, set_)"
            )


_tensors: list[_Tensor] = []


def _place(name: str, tensor: Any) -> tuple[int, int]:
    """Address and bytes of a tensor."""
    if tensor.device.type != "cpu":
        raise JobError(f"{name!r}: protect a copy on the CPU, and copy to it before each loop()")
    if not tensor.is_contiguous():
        raise JobError(f"{name!r}: the tensor is not contiguous")
    return tensor.data_ptr(), tensor.numel() * tensor.element_size()


def _buffer(name: str, buffer: Any) -> tuple[int, int]:
    """Address and bytes of any writable buffer, which is locked in its place."""
    try:
        view = memoryview(buffer)
    except TypeError:
        raise JobError(f"{name!r}: {type(buffer).__name__} is no buffer") from None
    if view.readonly or not view.c_contiguous:
        raise JobError(f"{name!r}: the buffer is not writable and contiguous")
    if view.nbytes == 0:
        return ctypes.addressof(ctypes.c_char(0)), 0
    place = (ctypes.c_char * view.nbytes).from_buffer(view)
    _kept.append(place)
    return ctypes.addressof(place), view.nbytes


def protect(name: str, buffer: B) -> B:
    """Protects a writable, contiguous buffer: bytearray, array, NumPy array, CPU tensor of PyTorch.

    Call it before the first `loop`: after a restart in the same order, with the same names and
    sizes. Change its content in place: after a tensor got other memory `loop` raises `JobError`.
    Returns the buffer.
    """
    is_tensor = hasattr(buffer, "data_ptr")
    address, size = (_place if is_tensor else _buffer)(name, buffer)
    call(_native.job_protect, name, address, size)
    _kept.append(buffer)
    if is_tensor:
        storage = getattr(buffer, "untyped_storage", lambda: None)()
        _tensors.append(_Tensor(name, buffer, (address, size), storage))
    return buffer


def loop(stop: Optional[int] = None) -> Iterator[int]:
    """The loop ids below `stop`: 0, 1, 2, ...; in a process that starts again first the id of the
    saved state, which is then in the protected buffers.

    All ranks loop equally often, and no message crosses the beginning of an iteration.
    `StateError`: the saved state does not fit. `JobError`: a protected tensor has other memory now.
    """
    while True:
        for tensor in _tensors:
            tensor.check()
        here = call(_native.job_loop)
        if stop is not None and here >= stop:
            return
        yield here


def rank() -> int:
    """The number of this process, from 0."""
    return call(_native.job_place)[0]


def size() -> int:
    """How many processes there are."""
    return call(_native.job_place)[1]
