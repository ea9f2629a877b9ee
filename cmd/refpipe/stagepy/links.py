# SPDX-License-Identifier: Apache-2.0
"""Connections of one stage process: libzmq sockets, pipes, the text socket."""
import asyncio
import os
import pickle
import socket
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

import conf as cf
import truth
import wire
from truth import now

STALL_PERIOD, STALL = 1500, 300  # ms


class Links:
    def __init__(self, c, on_message, on_lost):
        self.c, self.on_message, self.on_lost = c, on_message, on_lost
        self.ctx = zmq.asyncio.Context()
        self.sync = zmq.Context.shadow(self.ctx.underlying)
        self.lost = set()
        self.push, self.pull, self.tasks = {}, [], []
        self.pipes = {p: Connection(fd, readable=False) for p, fd in c.pipes_out.items()}
        self.pipes_in = [Connection(fd, writable=False) for fd in c.pipes_in]
        self.text = None

    async def open(self):
        addresses = ["ipc://" + p for p in self.c.own.values()]
        if self.c.tcp:
            addresses.append(f"tcp://127.0.0.1:{self.c.tcp}")
        for a in addresses:
            s = self.ctx.socket(zmq.PULL)
            s.bind(a)
            self.pull.append(s)
            self.tasks.append(asyncio.create_task(self._receive(s)))
        up = [self._dial(key, a) for key, a in self.c.peers.items()]
        await asyncio.gather(*up)
        if self.c.text:
            self.text = socket.socket(socket.AF_UNIX)
            self.text.connect(self.c.text)
        loop = asyncio.get_running_loop()
        for p in self.pipes_in:
            loop.add_reader(p.fileno(), self._pipe_readable, p)

    async def _dial(self, key, address):
        s = self.sync.socket(zmq.PUSH)
        s.linger = 0
        mon = self.ctx.socket(zmq.PAIR)
        name = f"inproc://monitor-{key[0]}-{key[1]}"
        s.monitor(name, zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        mon.connect(name)
        s.connect(address)
        self.push[key] = s
        await mon.recv_multipart()
        self.tasks.append(asyncio.create_task(self._watch(key[0], mon)))

    async def _watch(self, proc, mon):
        while True:
            e = parse_monitor_message(await mon.recv_multipart())
            if e["event"] == zmq.EVENT_DISCONNECTED and proc not in self.lost:
                self.lost.add(proc)
                self.on_lost(proc)

    async def _receive(self, s):
        while True:
            if self.c.stall:
                phase = now() // 1000000 % STALL_PERIOD
                if phase < STALL:
                    await asyncio.sleep((STALL - phase) / 1000)
            parts = await s.recv_multipart()
            ns = now()
            m = wire.from_parts(self.c, parts)
            m.bytes = wire.zmtp_size(parts)
            carrier = cf.TCP if self.c.tcp and s is self.pull[-1] else cf.UNIX
            src, dst, ms = self.c.slow
            if ms and m.src == src and (m.dst or next(iter(self.c.own))) == dst:
                asyncio.get_running_loop().call_later(ms / 1000, self._late, m, carrier)
            else:
                self._deliver(m, ns, carrier)

    def _late(self, m, carrier):
        # libzmq has read the bytes already: the delay lies in this process.
        self._deliver(m, now(), carrier)

    def _pipe_readable(self, p):
        try:
            b = p.recv_bytes()
        except (EOFError, OSError):
            asyncio.get_running_loop().remove_reader(p.fileno())
            return
        ns = now()
        m = wire.from_dict(self.c, pickle.loads(b))
        m.bytes = len(b) + 4
        if self.c.slow[2] and m.src == self.c.slow[0] and m.dst == self.c.slow[1]:
            asyncio.get_running_loop().call_later(self.c.slow[2] / 1000, self._late, m, cf.PIPE)
        else:
            self._deliver(m, ns, cf.PIPE)

    def _deliver(self, m, ns, carrier):
        m.ns = ns
        m.dst = m.dst or next(iter(self.c.own))
        if m.id:
            truth.message(truth.RECV, m.type, carrier, m.src, m.dst, self.c.proc, -1, m.chunk, m.bytes, m.id, ns)
        self.on_message(m)

    def send(self, m, proc, carrier, framing, visit=None):
        """Send and stamp: just before the call that hands the message over."""
        if proc in self.lost:
            return
        if framing == cf.F_PICKLE:
            body = ForkingPickler.dumps(wire.to_dict(self.c, m))  # what Connection.send does first
            size = len(body) + 4
            call = lambda: self.pipes[proc].send_bytes(body)
        elif framing == cf.F_NDJSON:
            line = wire.to_line(self.c, m)
            size = len(line)
            call = lambda: self.text.sendall(line)
        else:
            parts = wire.to_array(self.c, m) if framing == cf.F_ARRAY else [wire.to_map(self.c, m)]
            size = wire.zmtp_size(parts)
            call = lambda: self.push[proc, carrier].send_multipart(parts, zmq.NOBLOCK)
        ns = now()
        try:
            call()
        except (zmq.Again, OSError):
            self.lost.add(proc)
            self.on_lost(proc)
            return
        if visit:
            visit.stamp(truth.DEPARTURE, ns)
        if m.id:
            truth.message(truth.SEND, m.type, carrier, m.src, m.dst, self.c.proc, proc, m.chunk, size, m.id, ns)


def say_ready(fd):
    os.write(fd, b"1")
    os.close(fd)
