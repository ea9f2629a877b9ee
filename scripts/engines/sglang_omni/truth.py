"""Turn the engine's own event recorder into a truth file, one JSON object a line on stdout.

Usage: python truth.py RECORDER_DIR > truth.jsonl

Reads events_<stage>_<pid>.jsonl (the engine's) and harness.jsonl (clock and processes, written by
serve.py). Which event gives which stamp, and what no event can tell, is in ../README.md.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

API = "api"
COMPUTE_START = {"preprocess_start", "encoder_start", "code2wav_decode_start", "mock_compute_start"}
COMPUTE_END = {"preprocess_end", "encoder_end", "code2wav_decode_end", "mock_compute_end"}
# How a stamp lies to the system call it stands for, where it is not the instant itself.
BOUNDS = {
    "submit": ("before", "after"),
    "data_ready": ("after", "after"),
    "data_ready_chunk": ("before", "after"),
    "stream": ("before", "after"),
    "complete": ("before", "after"),
}
# Messages one request makes on the wire. n = tokens (= chunks of thinker and of talker_ar), s = 1 for a streaming request.
EXPECTED = {
    "aggregate": {"submit": "1", "data_ready": "9 + 3 (stream done) + 3n", "data_ack": "9 + n", "stream": "2ns", "complete": "2"},
    "speech": {"submit": "1", "data_ready": "10 + 3 (stream done) + 3n", "data_ack": "10 + n", "stream": "2ns", "complete": "2"},
}
PAYLOADS = {"aggregate": 9, "speech": 10}
STREAM_DONE = 3


@dataclass
class Clock:
    """CLOCK_REALTIME to CLOCK_MONOTONIC, straight between the two measured offsets."""

    start: dict[str, int]
    end: dict[str, int] | None

    def mono(self, real_ns: int) -> int:
        first = self.start["realtime_minus_mono_ns"]
        if self.end is None:
            return real_ns - first
        span = self.end["mono_ns"] - self.start["mono_ns"]
        drift = self.end["realtime_minus_mono_ns"] - first
        elapsed = real_ns - first - self.start["mono_ns"]
        return real_ns - first - (drift * elapsed // span if span > 0 else 0)

    def summary(self) -> dict[str, object]:
        drift = None if self.end is None else self.end["realtime_minus_mono_ns"] - self.start["realtime_minus_mono_ns"]
        return {"realtime_minus_mono_ns": self.start["realtime_minus_mono_ns"], "drift_ns": drift,
                "error_ns": max(self.start["error_ns"], self.end["error_ns"] if self.end else 0)}


@dataclass
class Event:
    ns: int
    request: str
    stage: str
    pid: int
    name: str
    meta: dict[str, object]

    @property
    def chunk(self) -> int | None:
        value = self.meta.get("chunk_id")
        return value if isinstance(value, int) else None


def room(stage: object) -> str:
    return API if stage == "coordinator" else str(stage)


def lines(path: Path) -> Iterator[dict[str, object]]:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                yield json.loads(line)
            except json.JSONDecodeError as problem:
                raise SystemExit(f"truth: {path}:{number} is not a whole JSON line ({problem}); was the run ended by kill -9?")


def load(recorder: Path) -> tuple[dict[str, object], Clock, list[Event]]:
    harness = recorder / "harness.jsonl"
    if not harness.exists():
        raise SystemExit(f"truth: {harness} is missing: was the pipeline started with --record, and stopped with SIGTERM?")
    marks = {line["t"]: line for line in lines(harness)}
    clock = Clock(marks["start"]["clock"], marks["end"]["clock"] if "end" in marks else None)
    events = [
        Event(clock.mono(raw["timestamp_ns"]), raw["request_id"], room(raw["stage"]), raw["pid"], raw["event_name"], raw["metadata"])
        for path in sorted(recorder.glob("events_*.jsonl"))
        for raw in lines(path)
    ]
    events.sort(key=lambda e: e.ns)
    return marks["start"], clock, events


def first(events: list[Event], *names: str) -> int | None:
    return next((e.ns for e in events if e.name in names), None)


def last(events: list[Event], *names: str) -> int | None:
    return next((e.ns for e in reversed(events) if e.name in names), None)


def visit(request: str, stage: str, pid: int, chunk: int | None, **stamps: object) -> dict[str, object]:
    kept = {key: value for key, value in stamps.items() if value is not None}
    return {"t": "visit", "request": request, "stage": stage, "pid": pid, "chunk": chunk, **kept}


def visits_of(request: str, stage: str, events: list[Event]) -> Iterator[dict[str, object]]:
    """All activations of one stage for one request: one for its payload, one for each chunk it computes."""
    pid = events[0].pid
    by_chunk: dict[int, list[Event]] = defaultdict(list)
    whole: list[Event] = []
    for event in events:
        computed = event.name in COMPUTE_START or event.name in COMPUTE_END
        received = event.name == "stage_stream_chunk_received"
        if (computed or received) and event.chunk is not None:
            by_chunk[event.chunk].append(event)
        else:
            whole.append(event)
    sent = {e.chunk: e.ns for e in events if e.name == "stage_stream_chunk_sent"}
    for chunk, own in sorted(by_chunk.items()):
        arrived = next((e for e in own if e.name == "stage_stream_chunk_received"), None)
        arrivals = [] if arrived is None else [{"from": room(arrived.meta["from_stage"]), "ns": arrived.ns}]
        yield visit(request, stage, pid, chunk, arrivals=arrivals, ready_ns=arrived.ns if arrived else None,
                    start_ns=first(own, *COMPUTE_START), finish_ns=last(own, *COMPUTE_END), departure_ns=sent.get(chunk))
    if first(whole, *COMPUTE_START) is None:
        # It only passes on the end of its stream: no event tells when it had all it needs, or computes.
        if by_chunk and (left := last(whole, "stage_hop_sent")) is not None:
            yield visit(request, stage, pid, None, arrivals=[], departure_ns=left)
        return
    arrivals = [{"from": room(e.meta["from_stage"]), "ns": e.ns} for e in whole if e.name == "stage_input_received"]
    terminal = next((e.ns for e in whole if e.name == "stage_complete" and e.meta.get("terminal")), None)
    yield visit(request, stage, pid, None, arrivals=arrivals, ready_ns=last(whole, "stage_dispatch"),
                start_ns=first(whole, *COMPUTE_START), finish_ns=last(whole, *COMPUTE_END),
                departure_ns=terminal if terminal is not None else last(whole, "stage_hop_sent"))


def sends_of(event: Event) -> tuple[str, str, str, int | None, str, str] | None:
    """(from, to, type, chunk, transport, bound key) of the message this event is about to send or has sent."""
    if event.name == "request_admission":
        return event.stage, room(event.meta["entry_stage"]), "submit", None, "unix", "submit"
    if event.name == "stage_hop_sent":
        transport = {"local_object": "memory"}.get(str(event.meta["transport"]), str(event.meta["transport"]))
        return event.stage, room(event.meta["to_stage"]), "data_ready", None, transport, "data_ready"
    if event.name == "stage_stream_chunk_sent":
        to = room(event.meta["to_stage"])
        if to == API:
            return event.stage, API, "stream", event.chunk, "unix", "stream"
        transport = {"inline": "unix", "local_object": "memory"}.get(str(event.meta.get("transport")), str(event.meta.get("transport")))
        return event.stage, to, "data_ready", event.chunk, transport, "data_ready_chunk"
    if event.name == "stage_complete" and event.meta.get("terminal"):
        return event.stage, API, "complete", None, "unix", "complete"
    return None


def receipts_of(event: Event) -> tuple[str, str, str, int | None] | None:
    """(from, to, type, chunk) of the message whose receipt this event tells."""
    if event.name == "stage_input_received":
        kind = "submit" if event.meta.get("kind") == "submit" else "data_ready"
        return room(event.meta["from_stage"]), event.stage, kind, None
    if event.name == "stage_stream_chunk_received" and event.stage != API:
        return room(event.meta["from_stage"]), event.stage, "data_ready", event.chunk
    if event.name == "coordinator_stream_received":
        return room(event.meta["from_stage"]), API, "stream", event.chunk
    if event.name == "terminal_response":
        return room(event.meta["from_stage"]), API, "complete", None
    return None


def hops_of(request: str, events: list[Event]) -> tuple[list[dict[str, object]], list[str]]:
    """Every message the recorder stamps; and the ends that lack their other end."""
    sends = {key[:4]: (e.ns, key[4], key[5]) for e in events if (key := sends_of(e)) is not None}
    receipts = {key: e.ns for e in events if (key := receipts_of(e)) is not None}
    hops, loose = [], []
    for seq, key in enumerate(sorted(sends.keys() | receipts.keys(), key=lambda k: (sends[k][0] if k in sends else receipts[k]))):
        source, target, kind, chunk = key
        hop: dict[str, object] = {"t": "hop", "request": request, "from": source, "to": target, "type": kind, "seq": seq, "chunk": chunk}
        if key in sends:
            ns, transport, bound = sends[key]
            hop.update(send_ns=ns, transport=transport, send_bound=BOUNDS[bound][0])
        if key in receipts:
            hop.update(recv_ns=receipts[key], recv_bound="after")
        if key not in sends or key not in receipts:
            loose.append(f"{request} {source}->{target} {kind} {chunk}")
        hops.append(hop)
    return hops, loose


def counts(graph: str, hops: list[dict[str, object]]) -> dict[str, int]:
    """What the wire must have shown for this request, acknowledgements and end-of-stream signals included."""
    chunks = [h for h in hops if h["type"] == "data_ready" and h["chunk"] is not None]
    in_shm = sum(1 for h in chunks if h.get("transport") == "shm")
    payloads = PAYLOADS[graph]
    return {"submit": 1, "data_ready": payloads + STREAM_DONE + len(chunks), "data_ack": payloads + in_shm,
            "stream": sum(1 for h in hops if h["type"] == "stream"), "complete": 2}


def main(recorder: str) -> int:
    start, clock, events = load(Path(recorder))
    by_request: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_request[event.request].append(event)
    body: list[dict[str, object]] = []
    loose: list[str] = []
    incomplete = 0
    for request, own in by_request.items():
        hops, missing = hops_of(request, own)
        loose += missing
        answers = [e for e in own if e.name == "terminal_response"]
        state = "error" if any(not e.meta["success"] for e in answers) else "success" if len(answers) == 2 else "cancelled"
        payloads = sum(1 for h in hops if h["type"] == "data_ready" and h["chunk"] is None)
        incomplete += state == "success" and payloads != PAYLOADS[start["graph"]]
        for stage in sorted({e.stage for e in own} - {API}):
            body += visits_of(request, stage, [e for e in own if e.stage == stage])
        body += hops
        body.append({"t": "request", "request": request, "admission_ns": first(own, "request_admission"), "state": state,
                     "messages": counts(start["graph"], hops)})
    stages = [{"name": s["name"], "pids": [s["pid"]]} for s in start["stages"]]
    meta = {"t": "meta", "source": "sglang-omni recorder", "stages": stages, "api_pid": start["api_pid"], "graph": start["graph"],
            "compute": start["compute"], "scale": start["scale"], "clock": clock.summary(), "expected_messages": EXPECTED[start["graph"]],
            "requests": len(by_request), "one_ended_hops": len(loose), "incomplete_requests": incomplete}
    for line in [meta, *body]:
        print(json.dumps(line, separators=(",", ":")))
    for text in loose[:10]:
        print(f"truth: one end only: {text}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
