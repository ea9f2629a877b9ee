# SPDX-License-Identifier: Apache-2.0
"""Two processes that pass messages through rings in shared memory, as an engine core and its worker
do: one ring there, one back. Each ring has 10 chunks, then per chunk a written flag and a flag for
its one reader. A byte on a socket tells the reader of each message; it spins with sched_yield.

usage: ring.py N        prints {"pids": …}, waits for a line, passes N messages, prints what it knows
                        of each as a line, and ends with its standard input
"""
import json
import os
import pickle
import socket
import subprocess
import sys
import time
from multiprocessing import resource_tracker, shared_memory

CHUNKS = 10
THERE, BACK = 16 << 20, 24 << 20


class Ring:
    def __init__(self, chunk, name=None):
        self.chunk, self.at = chunk, 0
        self.seg = shared_memory.SharedMemory(name=name, create=name is None, size=(chunk + 2) * CHUNKS)
        if name is not None:  # its maker removes it
            resource_tracker.unregister(self.seg._name, "shared_memory")

    def _flags(self):
        at = self.chunk * CHUNKS + 2 * self.at
        self.at, chunk = (self.at + 1) % CHUNKS, self.at
        return at, chunk * self.chunk

    def put(self, obj):
        """Returns the moments before and after the message was there."""
        flag, at = self._flags()
        buf = self.seg.buf
        while buf[flag] and not buf[flag + 1]:
            os.sched_yield()
        buf[flag] = 0
        data = pickle.dumps(obj, protocol=5)
        buf[at:at + 7] = b"\0\0\1" + len(data).to_bytes(4, "big")
        buf[at + 7:at + 7 + len(data)] = data
        buf[flag + 1] = 0
        before = time.monotonic_ns()
        buf[flag] = 1
        return before, time.monotonic_ns()

    def get(self):
        flag, at = self._flags()
        buf = self.seg.buf
        while not buf[flag] or buf[flag + 1]:
            os.sched_yield()
        n = int.from_bytes(buf[at + 3:at + 7], "big")
        obj = pickle.loads(buf[at + 7:at + 7 + n])
        before = time.monotonic_ns()
        buf[flag + 1] = 1
        return obj, (before, time.monotonic_ns())


def worker(name, fd, n):
    notices = socket.socket(fileno=fd)
    there, back = Ring(THERE, name), Ring(BACK)
    print(back.seg.name, flush=True)
    for _ in range(n):
        notices.recv(1)
        (_, args), taken = there.get()
        back.put({"req_id": args["req_id"], "taken": taken})
    sys.stdin.read()
    back.seg.close()
    back.seg.unlink()


def main(n):
    mine, theirs = socket.socketpair()
    there = Ring(THERE)
    child = subprocess.Popen([sys.executable, __file__, "worker", there.seg.name, str(theirs.fileno()), str(n)],
                             pass_fds=[theirs.fileno()], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    back = Ring(BACK, child.stdout.readline().decode().strip())
    print(json.dumps({"pids": [os.getpid(), child.pid]}), flush=True)
    sys.stdin.readline()
    out = []
    for i in range(n):
        args = {"req_id": f"req-ring-{i:04d}", "tokens": list(range(i % 7 * 40))}
        put = there.put(("execute_model", args))
        mine.send(b"x")
        reply, got = back.get()
        out.append({"id": args["req_id"], "put": put, "taken": reply["taken"], "got": got})
        time.sleep(0.001 * (i % 3))
    for line in out:
        print(json.dumps(line), flush=True)
    sys.stdin.read()
    child.stdin.close()
    child.wait()
    back.seg.close()
    there.seg.close()
    there.seg.unlink()


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main(int(sys.argv[1]))
