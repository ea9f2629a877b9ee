# SPDX-License-Identifier: Apache-2.0
"""Truth records in memory shared with the parent; layout of struct trec in
stage/stage.h. Stamps are time.monotonic_ns, which the vDSO answers."""
import itertools
import mmap
import os
import struct
from time import monotonic_ns as now

SIZE = 192
VISIT, SEND, RECV = 1, 2, 3
READY, START, FINISH, DEPARTURE, ARRIVAL = range(5)
MAX_INPUTS = 4

_HEAD = struct.Struct("<QQ")
_REC = struct.Struct("<xBBBhhhhiI")
_mem = None
_capacity = 0
_next = itertools.count()


def open_memory(fd):
    global _mem, _capacity
    size = os.fstat(fd).st_size
    if size >= 2 * SIZE:
        _mem = mmap.mmap(fd, size)
        _capacity = size // SIZE - 1


def _slot():
    if _mem is None:
        return None
    i = next(_next)
    used, dropped = _HEAD.unpack_from(_mem, 0)
    if i >= _capacity:
        _HEAD.pack_into(_mem, 0, used, dropped + 1)
        return None
    _HEAD.pack_into(_mem, 0, max(used, i + 1), dropped)
    return (i + 1) * SIZE


def message(kind, typ, carrier, src, dst, proc, peer, chunk, size, rid, ns):
    at = _slot()
    if at is None:
        return
    _REC.pack_into(_mem, at, typ, carrier, 0, src, dst, proc, peer, chunk, size)
    struct.pack_into("<q", _mem, at + 24, ns)
    _mem[at + 96:at + 96 + len(rid)] = rid.encode()
    _mem[at] = kind


class Visit:
    """One visit of a request at a stage; stamps may come from any thread."""

    __slots__ = ("at", "n")

    def __init__(self, rid, stage, chunk, proc):
        self.at, self.n = _slot(), 0
        if self.at is None:
            return
        _REC.pack_into(_mem, self.at, 0, 0, 0, stage, stage, proc, -1, chunk, 0)
        _mem[self.at + 96:self.at + 96 + len(rid)] = rid.encode()
        _mem[self.at] = VISIT

    def stamp(self, which, ns):
        if self.at is not None:
            struct.pack_into("<q", _mem, self.at + 24 + 8 * which, ns)

    def arrival(self, src, ns):
        if self.at is None or self.n >= MAX_INPUTS:
            return
        struct.pack_into("<h", _mem, self.at + 88 + 2 * self.n, src)
        self.stamp(ARRIVAL + self.n, ns)
        self.n += 1
        _mem[self.at + 3] = self.n
