import array
import weakref

import ftb
from ftb import job


def refused(words, name, buffer):
    try:
        job.protect(name, buffer)
    except job.JobError as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{name} is protected")


class Storage:
    def __init__(self, values):
        self.memory = array.array("d", values)


class Tensor:
    """As one of PyTorch."""

    def __init__(self, device, contiguous=True):
        self.device = type("device", (), {"type": device})
        self.storage = Storage([1.0, 2.0])
        self.contiguous = contiguous

    def untyped_storage(self):
        return self.storage

    def is_contiguous(self):
        return self.contiguous

    def data_ptr(self):
        return self.storage.memory.buffer_info()[0]

    def numel(self):
        return len(self.storage.memory)

    def element_size(self):
        return self.storage.memory.itemsize


state = job.protect("state", bytearray(8))
tensor = job.protect("tensor", Tensor("cpu"))
refused("protected already", "state", bytearray(8))
refused("0 bytes", "empty", bytearray())
refused("not writable", "fixed", b"constant")
refused("not writable", "strided", memoryview(bytearray(8))[::2])
refused("is no buffer", "number", 7)
refused("1 to 63 bytes", "", bytearray(8))
refused("copy on the CPU", "gpu", Tensor("cuda"))
refused("not contiguous", "columns", Tensor("cpu", contiguous=False))
assert list(job.loop(3)) == [0, 1, 2]
refused("before the first ftb_loop", "late", bytearray(8))
assert (job.rank(), job.size(), job.progress()) == (0, 1, False)
assert issubclass(job.JobError, ftb.FtbError)
try:
    state.extend(b"more")
except BufferError:
    pass
else:
    raise AssertionError("a protected buffer moves")


def moved(change):
    change()
    try:
        next(job.loop())
    except job.JobError as error:
        assert "'tensor': its memory has moved" in str(error), error
    else:
        raise AssertionError("a tensor is saved from where it was")


first, device = tensor.storage, tensor.device
kept = weakref.ref(first)
moved(lambda: setattr(tensor, "storage", Storage([3.0, 4.0])))
moved(lambda: setattr(tensor, "storage", Storage([1.0])))
del first
assert kept() is not None, "memory that is still protected is freed"
tensor.storage = kept()
moved(lambda: setattr(tensor, "device", type("device", (), {"type": "cuda"})))
tensor.device = device
tensor.storage.memory[0] = 5.0
assert next(job.loop()) == 4
