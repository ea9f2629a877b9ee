# SPDX-License-Identifier: Apache-2.0
"""One stage process: asyncio loop over libzmq and pipes, compute in threads."""
import asyncio
import os
import signal
import sys
from collections import deque

import conf as cf
import links
import segments
import truth
import wire
from compute import Compute, draw
from truth import now

TRUTH_FD, STATUS_FD, LIFELINE_FD, TRACKER_FD = 3, 4, 5, 6
CREDITS, CANCELLED, BEAT_S, REPEATED, POLL_S = 2, 1024, 0.5, 555, 0.001
WORDS = ["amber ", "basin ", "cedar ", "delta ", "ember ", "fjord ", "grove ", "heron "]


class Job:
    def __init__(self, m, stage, proc):
        self.id, self.stage, self.chunk, self.last = m.id, stage, m.chunk, m.last
        self.inputs, self.payload, self.route = 0, [], {}
        self.cancelled, self.waits = False, True
        self.tokens = self.chunks = 1
        self.done = 0
        self.announced = False
        self.visit = truth.Visit(m.id, stage, m.chunk, proc)


class StageState:
    def __init__(self, c, index, loop, done):
        self.index, self.spec = index, c.stages[index]
        self.jobs, self.backlog = [], deque()
        self.admitted, self.credits = 0, CREDITS
        self.waiting, self.owed = deque(), {}
        self.compute = Compute(c, index, loop, done)


class Process:
    def __init__(self, c):
        self.c = c
        self.loop = asyncio.get_running_loop()
        self.links = links.Links(c, self.on_message, self.on_lost)
        self.st = {i: StageState(c, i, self.loop, self.on_outputs) for i in c.own}
        self.cancelled = deque(maxlen=CANCELLED)
        self.turn = {}
        self.polls = {}

    # -- in
    def on_message(self, m):
        if m.type in (wire.SUBMIT, wire.DATA):
            self.arrive(m)
        elif m.type == wire.ABORT:
            self.abort(m.id)
        elif m.type == wire.ACK:
            st = self.st[m.dst]
            st.credits += 1
            proc = self.c.stages[m.src].procs[m.replica]
            st.owed[proc] = max(st.owed.get(proc, 0) - 1, 0)
            self.pump(st)

    def arrive(self, m):
        st, e = self.st[m.dst], self.c.edge(m.src, m.dst)
        if e.data == cf.POLLED and m.chunk < 0:
            self.polls[m.id] = asyncio.create_task(self.poll(m))
            return
        if m.shm:
            segments.get(m, e.data == cf.NAMED)
        anon = e.data == cf.ANON
        if anon and st.spec.ack_first:
            self.ack(m)
        if m.id not in self.cancelled:
            job = next((j for j in st.jobs if j.waits and j.id == m.id), None)
            if job is None:
                job = Job(m, m.dst, self.c.proc)
                st.jobs.append(job)
            job.visit.arrival(m.src, m.ns)
            job.payload.append(m.data)
            job.inputs += 1
            if job.inputs >= self.c.inputs(m.dst):
                self.ready(st, job)
        if anon and not st.spec.ack_first:
            self.ack(m)

    async def poll(self, add):
        """Looks for the request's chunks, which nobody announces."""
        chunk, last = 0, False
        while not last:
            m = wire.Msg(wire.DATA, add.id, add.src, add.dst, chunk)
            m.shm = segments.name_of(self.c, m, chunk)
            if not segments.get_if_there(m):
                await asyncio.sleep(POLL_S)
                continue
            m.ns, m.shm = now(), ""
            chunks = int(m.data[:64].split(b"\n")[0].split(b"chunks=")[1])
            chunk += 1
            m.last = last = chunk >= chunks
            truth.message(truth.RECV, m.type, cf.SHM, m.src, m.dst, self.c.proc, -1, m.chunk, len(m.data), m.id, m.ns)
            self.arrive(m)
        self.polls.pop(add.id, None)

    def ready(self, st, job):
        job.waits = False
        head = bytes(job.payload[0][:64]).split(b"\n")[0].decode()
        job.tokens, job.chunks = (int(x.split("=")[1]) for x in head.split())
        job.visit.stamp(truth.READY, now())
        st.backlog.append(job)
        self.admit(st)

    def admit(self, st):
        while st.backlog and st.admitted < st.spec.backlog:
            st.admitted += 1
            st.compute.queue.put(st.backlog.popleft())

    def ack(self, m):
        a = wire.Msg(wire.ACK, m.id, m.dst, m.src, m.chunk)
        self.links.send(a, self.c.stages[m.src].procs[m.replica], cf.UNIX, cf.F_MAP)

    def abort(self, rid):
        if rid in self.cancelled:
            return
        self.cancelled.append(rid)
        if rid in self.polls:
            self.polls.pop(rid).cancel()
        for st in self.st.values():
            for job in st.jobs:
                job.cancelled = job.cancelled or job.id == rid
            st.jobs = [j for j in st.jobs if not (j.cancelled and j.waits)]

    def on_lost(self, proc):
        for st in self.st.values():
            st.credits += st.owed.pop(proc, 0)
            self.pump(st)

    # -- out
    def on_outputs(self, outputs):
        for job, index, final in outputs:
            st = self.st[job.stage]
            if not job.cancelled and index >= 0:
                self.output(st, job, index, final)
            if final:
                st.admitted -= 1
                st.jobs.remove(job)
                self.admit(st)

    def output(self, st, job, index, final):
        role = st.spec.role
        if role == cf.THINK:
            self.token(st, job, index, final)
        elif role == cf.TALK:
            if index != self.c.drop or final:
                self.fan_out(st, job, index, final, self.filler(st, job))
        elif role == cf.VOCODE:
            self.audio(st, job)
        else:
            self.fan_out(st, job, -1, True, b"".join(job.payload) + bytes(st.spec.filler))

    def filler(self, st, job):
        return b"tokens=%d chunks=%d\n" % (job.tokens, job.chunks) + bytes(st.spec.filler)

    def token(self, st, job, index, final):
        word = WORDS[draw(self.c.seed, job.id, st.index, index + 1000) % 8]
        self.to_api(st, job, wire.STREAM, index, final, word.encode())
        if not final:
            return
        if job.chunks > 0:
            self.fan_out(st, job, -1, True, self.filler(st, job))
        self.to_api(st, job, wire.COMPLETE, -1, True, b"")

    def audio(self, st, job):
        samples = st.spec.filler // 2
        first = job.chunk * samples
        span = list(range(first, first + samples))
        if self.c.repeat and job.chunk > 0:
            span = list(range(first - REPEATED, first)) + span
        pcm = b"".join((min(k % 200, 200 - k % 200) * 200 - 10000).to_bytes(2, "little", signed=True) for k in span)
        self.to_api(st, job, wire.STREAM, job.chunk, job.last, pcm)
        if job.last:
            self.to_api(st, job, wire.COMPLETE, -1, True, b"")

    def to_api(self, st, job, typ, chunk, last, data):
        e = self.c.edge(st.index, 0) or cf.Edge(st.index, 0, cf.UNIX, cf.F_MAP, cf.INLINE)
        framing = e.framing
        self.links.send(wire.Msg(typ, job.id, st.index, 0, chunk, last, data), 0, e.carrier, framing, job.visit)

    def fan_out(self, st, job, chunk, last, data):
        for e in self.c.edges:
            if e.src != st.index or e.dst == 0:
                continue
            m = wire.Msg(wire.DATA, job.id, st.index, e.dst, chunk, last, data)
            if e.carrier == cf.MEMORY:
                self.memory_hop(m, job)
                continue
            m.proc = self.choose(job, e.dst)
            if e.data == cf.POLLED:
                self.put_polled(m, e, job)
            elif e.data == cf.ANON and st.credits == 0:
                st.waiting.append((m, e, job))
            else:
                self.deliver(st, m, e, job)

    def put_polled(self, m, e, job):
        if not job.announced:
            job.announced = True
            self.links.send(wire.Msg(wire.DATA, m.id, m.src, m.dst), m.proc, e.carrier, e.framing)
        ns = now()
        job.visit.stamp(truth.DEPARTURE, ns)
        truth.message(truth.SEND, m.type, cf.SHM, m.src, m.dst, self.c.proc, m.proc, m.chunk, len(m.data), m.id, ns)
        segments.put_named(self.c, m)

    def choose(self, job, dst):
        procs = self.c.stages[dst].procs
        r = job.route.get(dst)
        if r is None or procs[r] in self.links.lost:
            r = self.turn.get(dst, 0) % len(procs)
            self.turn[dst] = r + 1
            if procs[r] in self.links.lost:
                r = (r + 1) % len(procs)
            job.route[dst] = r
        return procs[r]

    def deliver(self, st, m, e, job):
        if m.proc in self.links.lost:
            return
        if e.data == cf.ANON:
            st.credits -= 1
            st.owed[m.proc] = st.owed.get(m.proc, 0) + 1
            segments.put_anon(m)
        elif e.data == cf.NAMED:
            segments.put_named(self.c, m)
        self.links.send(m, m.proc, e.carrier, e.framing, job.visit)

    def pump(self, st):
        while st.waiting and st.credits > 0:
            m, e, job = st.waiting.popleft()
            if m.id not in self.cancelled:
                self.deliver(st, m, e, job)

    def memory_hop(self, m, job):
        m.ns = now()
        for kind in (truth.SEND, truth.RECV):
            truth.message(kind, m.type, cf.MEMORY, m.src, m.dst, self.c.proc, self.c.proc, m.chunk, len(m.data), m.id, m.ns)
        job.visit.stamp(truth.DEPARTURE, m.ns)
        self.arrive(m)

    async def beats(self):
        first = next(iter(self.c.own))
        while True:
            m = wire.Msg(wire.BEAT, "", first)
            m.size = self.st[first].admitted
            self.links.send(m, 0, cf.UNIX, cf.F_MAP)
            await asyncio.sleep(BEAT_S)


async def main(path):
    c = cf.read(path)
    truth.open_memory(TRUTH_FD)
    segments.use_tracker(TRACKER_FD)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    loop.add_reader(LIFELINE_FD, stop.set)
    p = Process(c)
    await p.links.open()
    links.say_ready(STATUS_FD)
    beats = asyncio.create_task(p.beats()) if c.noise else None
    await stop.wait()
    if beats:
        beats.cancel()
    segments.unlink_left()
    sys.stderr.flush()
    os._exit(0)


asyncio.run(main(sys.argv[1]))
