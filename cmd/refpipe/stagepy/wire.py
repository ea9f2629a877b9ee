# SPDX-License-Identifier: Apache-2.0
"""Messages and their forms: msgpack maps, multipart msgpack arrays, dicts over
multiprocessing connections, JSON lines."""
import json

import msgpack

TYPES = ["", "submit", "data_ready", "data_ack", "stream", "complete", "abort", "heartbeat", "health_check"]
NONE, SUBMIT, DATA, ACK, STREAM, COMPLETE, ABORT, BEAT, HEALTH = range(9)
ARRAY_LEN = 18  # more than a fixarray holds, as the structs it stands for


class Msg:
    __slots__ = ("type", "id", "src", "replica", "dst", "chunk", "last", "shm", "size", "data", "ns", "bytes", "proc")

    def __init__(self, typ, rid="", src=0, dst=0, chunk=-1, last=False, data=b""):
        self.type, self.id, self.src, self.dst, self.chunk, self.last, self.data = typ, rid, src, dst, chunk, last, data
        self.shm, self.size, self.ns, self.bytes, self.proc, self.replica = "", 0, 0, 0, 0, 0


def _object(c, m):
    return f"{m.id}:{'payload' if m.chunk < 0 else 'stream'}:{c.stages[m.src].name}:{c.stages[m.dst].name}"


def to_map(c, m):
    d = {"type": TYPES[m.type]}
    if m.id:
        d["request_id"] = m.id
    d["from_stage"] = c.wire_name(m.src)
    if m.type == BEAT:
        d["pending"] = m.size
        return msgpack.packb(d)
    if m.type == DATA:
        d["to_stage"] = c.stages[m.dst].name
        ref = {"object_id": _object(c, m), "final": m.last}
        if m.shm:
            ref["buffer"] = {"kind": "shm", "info": {"transfer_info": {"shm_name": m.shm, "size": m.size, "req_id": m.id}}}
        else:
            ref["data"] = m.data
        d["data_ref"] = ref
    elif m.type == ACK:
        d.update(to_stage=c.stages[m.dst].name, object_id=_object(c, m), ok=True)
    else:
        d.update(final=m.last, data=m.data)
    if m.chunk >= 0:
        d["chunk_id"] = m.chunk
    return msgpack.packb(d)


def to_array(c, m):
    kind = {ABORT: b"\x01", COMPLETE: b"\x02", HEALTH: b"\x03"}.get(m.type, b"\x00")
    a = [m.id, c.wire_name(m.src), c.stages[m.dst].name, m.chunk, m.last, m.shm or None, m.size]
    parts = [kind, msgpack.packb(a + [None] * (ARRAY_LEN - len(a)))]
    if m.data and not m.shm:
        parts.append(m.data)
    return parts


def to_dict(c, m):
    return {"type": TYPES[m.type], "request_id": m.id, "from_stage": c.stages[m.src].name, "to_stage": c.stages[m.dst].name,
            "chunk_id": m.chunk, "final": m.last, "data": m.data}


def to_line(c, m):
    return (json.dumps({"type": TYPES[m.type], "request_id": m.id, "from_stage": c.stages[m.src].name, "chunk_id": m.chunk,
                        "final": m.last, "data": m.data.decode()}) + "\n").encode()


def from_dict(c, d):
    m = Msg(TYPES.index(d["type"]), d.get("request_id", ""), chunk=d.get("chunk_id", -1), last=d.get("final", False), data=d.get("data", b""))
    m.src, m.replica = c.find(d.get("from_stage", ""))
    m.dst, _ = c.find(d.get("to_stage", ""))
    ref = d.get("data_ref")
    if ref:
        m.last, m.data = ref.get("final", False), ref.get("data", b"")
        info = ref.get("buffer", {}).get("info", {}).get("transfer_info", {})
        m.shm, m.size = info.get("shm_name", ""), info.get("size", 0)
    return m


def from_parts(c, parts):
    if len(parts) == 1:
        return from_dict(c, msgpack.unpackb(parts[0]))
    a = msgpack.unpackb(parts[1])
    m = Msg([DATA, ABORT, NONE, HEALTH][parts[0][0]], a[0], chunk=a[3], last=a[4], data=parts[2] if len(parts) > 2 else b"")
    m.src, m.replica = c.find(a[1])
    m.dst, _ = c.find(a[2])
    m.shm, m.size = a[5] or "", a[6]
    if m.type == DATA and m.src == 0:
        m.type = SUBMIT
    return m


def zmtp_size(parts):
    return sum(len(p) + (2 if len(p) < 256 else 9) for p in parts)
