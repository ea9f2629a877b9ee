#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes, PUSH to PULL over ipc. Prints one JSON line with both pids and
waits for a line on standard input; then sends a burst of small messages, each
with an id of its own, and prints what was sent and received as a second line."""
import argparse
import json
import multiprocessing
import os
import tempfile
import time
import uuid

import msgpack
import zmq


def receive(path, count, conn):
    sock = zmq.Context().socket(zmq.PULL)
    sock.rcvhwm = 0
    sock.bind("ipc://" + path)
    conn.send(os.getpid())
    got = []
    sock.rcvtimeo = 10000
    try:
        while len(got) < count:
            body = sock.recv()
            got.append((msgpack.unpackb(body)["request_id"], len(body), time.monotonic_ns()))
    except zmq.Again:
        pass  # the parent compares the counts
    conn.send(got)


def message(rid, size):
    body = msgpack.packb({"type": "stream", "request_id": rid, "from_stage": "a", "to_stage": "b", "data": b""})
    return msgpack.packb({"type": "stream", "request_id": rid, "from_stage": "a", "to_stage": "b", "data": bytes(size - len(body))})


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--count", type=int, default=1000)
    ap.add_argument("--size", type=int, default=200)
    args = ap.parse_args()
    ids = [str(uuid.uuid4()) for _ in range(args.count)]
    bodies = [message(r, args.size) for r in ids]
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "burst.sock")
        ours, theirs = multiprocessing.Pipe()
        child = multiprocessing.get_context("spawn").Process(target=receive, args=(path, args.count, theirs))
        child.start()
        peer = ours.recv()
        sock = zmq.Context().socket(zmq.PUSH)
        sock.sndhwm = 0
        sock.connect("ipc://" + path)
        print(json.dumps({"sender": os.getpid(), "receiver": peer, "path": path}), flush=True)
        input()
        sent = []
        for rid, body in zip(ids, bodies):
            sent.append((rid, len(body), time.monotonic_ns()))
            sock.send(body, copy=True)
        got = ours.recv()
        child.join()
        names = ("request_id", "bytes", "mono_ns")
        print(json.dumps({"in_order": [g[0] for g in got] == ids, "sent": [dict(zip(names, s)) for s in sent],
                          "received": [dict(zip(names, g)) for g in got]}), flush=True)


if __name__ == "__main__":
    main()
