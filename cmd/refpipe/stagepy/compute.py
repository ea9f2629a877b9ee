# SPDX-License-Identifier: Apache-2.0
"""Compute threads. Burning holds the GIL, sleeping releases it; work begins and
ends with a spin, never with a system call."""
import os
import queue
import signal
import threading
import time

import conf as cf
import truth
from truth import now

EDGE_SPIN_NS = 30000
STEP_NS = 20000
_M = (1 << 64) - 1


def draw(seed, rid, stage, index):
    """The same numbers as draw() in stage/compute.c."""
    h = 1469598103934665603 ^ seed
    for b in rid.encode():
        h = ((h ^ b) * 1099511628211) & _M
    h ^= ((stage << 32) + (index & 0xFFFFFFFF)) & _M
    h = (h + 0x9E3779B97F4A7C15) & _M
    h = ((h ^ h >> 30) * 0xBF58476D1CE4E5B9) & _M
    h = ((h ^ h >> 27) * 0x94D049BB133111EB) & _M
    return h ^ h >> 31


def _spin(ns):
    """Work is CPU time: a step of the clock beyond STEP_NS passed without the CPU or the GIL."""
    last = now()
    while ns > 0:
        t = now()
        if t - last < STEP_NS:
            ns -= t - last
        last = t


def work(ns, cpu):
    burn = max(ns * cpu // 1000 // 2, EDGE_SPIN_NS)
    nap = ns - 2 * burn
    _spin(burn)
    if nap > 0:
        time.sleep(nap / 1e9)
    _spin(burn)


class Compute:
    """The threads of one stage; done(job, index, final) runs in the loop."""

    def __init__(self, c, stage, loop, done):
        self.c, self.stage, self.loop, self.done = c, stage, loop, done
        self.s = c.stages[stage]
        self.queue = queue.Queue()
        self.activations = 0
        main = self._think if self.s.role == cf.THINK else self._serial
        for _ in range(1 if self.s.role == cf.THINK else self.s.workers):
            threading.Thread(target=main, daemon=True).start()

    def _service(self, rid, index):
        r = draw(self.c.seed, rid, self.stage, index)
        ns = self.s.base_ns * (600 + r % 800) // 1000
        if (r >> 20) % 1000 < self.s.tail:
            ns *= 2 + (r >> 40) % self.s.tail_mult
        return ns

    def _begin(self, job):
        job.visit.stamp(truth.START, now())
        self.activations += 1
        if self.c.kill[0] == self.stage and self.c.replica == 0 and self.activations >= self.c.kill[1]:
            os.kill(os.getpid(), signal.SIGKILL)

    def _hand_over(self, outputs):
        self.loop.call_soon_threadsafe(self.done, outputs)

    def _serial(self):
        while True:
            job = self.queue.get()
            parts = job.chunks if self.s.role == cf.TALK else 1
            for i in range(parts):
                if job.cancelled:
                    break
                if i == 0:
                    self._begin(job)
                work(self._service(job.id, i if self.s.role == cf.TALK else job.chunk), self.s.cpu)
                if i == parts - 1:
                    job.visit.stamp(truth.FINISH, now())
                self._hand_over([(job, i, i == parts - 1)])
            else:
                continue
            self._hand_over([(job, -1, True)])

    def _admit(self, active):
        fresh = []
        if not active:
            fresh.append(self.queue.get())
        while len(active) + len(fresh) < self.s.batch:
            try:
                fresh.append(self.queue.get_nowait())
            except queue.Empty:
                break
        return fresh

    def _think(self):
        active, step = [], 0
        while True:
            fresh = self._admit(active)
            for job in fresh:
                self._begin(job)
            active += fresh
            work(self._service(active[0].id, step) + len(active) * self.s.per_seq_ns, self.s.cpu)
            step += 1
            out, kept = [], []
            for job in active:
                final = job.cancelled or job.done + 1 >= job.tokens
                out.append((job, -1 if job.cancelled else job.done, final))
                job.done += 1
                if final:
                    job.visit.stamp(truth.FINISH, now())
                else:
                    kept.append(job)
            active = kept
            self._hand_over(out)
