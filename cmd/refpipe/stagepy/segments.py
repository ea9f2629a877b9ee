# SPDX-License-Identifier: Apache-2.0
"""Payloads in /dev/shm: anonymous segments, or named ones under a lock file."""
import fcntl
import os
from multiprocessing import resource_tracker, shared_memory

import conf as cf

_mine = []  # named segments are never acknowledged: what is left is removed at the end


def use_tracker(fd):
    """Share the parent's resource tracker, as spawned children do."""
    resource_tracker._resource_tracker._fd = fd


def _fill(seg, data):
    seg.buf[:len(data)] = data
    seg.close()


def put_anon(m):
    seg = shared_memory.SharedMemory(create=True, size=max(len(m.data), 1))
    m.shm, m.size = seg.name, seg.size
    _fill(seg, m.data)
    _mine.append(m.shm)
    del _mine[:-256]


def _lock(name):
    fd = os.open(f"/dev/shm/shm_{name}_lockfile.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    return fd


def name_of(c, m, part):
    return f"{m.id}_{c.stages[m.src].name}_{c.tag}_{part}"


def put_named(c, m):
    part = m.dst if c.stages[m.src].role == cf.PREPROCESS else max(m.chunk, 0)
    m.shm = name_of(c, m, part)
    lock = _lock(m.shm)
    seg = shared_memory.SharedMemory(name=m.shm, create=True, size=max(len(m.data), 1))
    m.size = seg.size
    _fill(seg, m.data)
    _mine.append(m.shm)
    del _mine[:-256]
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def get_if_there(m):
    try:
        shared_memory.SharedMemory(name=m.shm).close()
    except (FileNotFoundError, ValueError):  # not there, or still empty
        return False
    get(m, True)
    return True


def get(m, named):
    lock = _lock(m.shm) if named else None
    seg = shared_memory.SharedMemory(name=m.shm)
    m.data = bytes(seg.buf)
    seg.close()
    seg.unlink()
    if lock is not None:
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.unlink(f"/dev/shm/shm_{m.shm}_lockfile.lock")
        os.close(lock)


def unlink_left():
    for name in _mine:
        for path in (f"/dev/shm/{name}", f"/dev/shm/shm_{name}_lockfile.lock"):
            try:
                os.unlink(path)
            except FileNotFoundError:
                pass
