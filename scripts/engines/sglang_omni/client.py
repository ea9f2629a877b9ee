"""Smoke test: a few requests against the running pipeline, then a check of the recorder's truth against what was sent.

Usage: python client.py URL -n 20 -c 4 [--image-bytes 300000]        sends; prints one JSON line
       python client.py --check TRUTH.jsonl -n 20                  checks; prints one JSON line
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

VISITS = {"preprocessing", "image_encoder", "audio_encoder", "thinker", "decode", "code2wav"}
STAMPS = ("ready_ns", "start_ns", "finish_ns")


def send(url: str, number: int, image_bytes: int) -> tuple[str, float]:
    """One request; every second one streams. Returns how it ended and the seconds it took."""
    streaming = number % 2 == 1
    body: dict[str, object] = {"model": "mock", "request_id": f"smoke-{number:05d}-00112233-4455-6677-8899", "stream": streaming,
                               "max_tokens": 2 + number % 4, "modalities": ["text", "audio"],
                               "messages": [{"role": "user", "content": f"prompt {number}"}]}
    if image_bytes:
        body["images"] = ["x" * image_bytes]
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            text = reply.read().decode()
    except (urllib.error.URLError, OSError) as problem:
        return f"failed: {problem}", time.perf_counter() - began
    whole = text.rstrip().endswith("data: [DONE]") if streaming else "chatcmpl-smoke-" in text
    return "success" if whole and '"error"' not in text else f"wrong reply: {text[-200:]}", time.perf_counter() - began


def load(url: str, count: int, concurrency: int, image_bytes: int) -> int:
    with ThreadPoolExecutor(concurrency) as pool:
        results = list(pool.map(lambda n: send(url, n, image_bytes), range(count)))
    states = Counter(state for state, _ in results)
    times = sorted(seconds for _, seconds in results)
    print(json.dumps({"requests": count, "concurrency": concurrency, "states": states, "p50_s": round(times[len(times) // 2], 4), "max_s": round(times[-1], 4)}))
    return 0 if states["success"] == count else 1


def check(path: str, count: int) -> int:
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    meta = rows[0]
    wrong: list[str] = []
    stages_seen: dict[str, set[str]] = {}
    for row in rows:
        if row["t"] == "visit":
            stages_seen.setdefault(row["request"], set()).add(row["stage"])
            wrong += [f"{row['request']} {row['stage']} {row['chunk']}: no {key}" for key in STAMPS if key not in row]
            ordered = [row[key] for key in STAMPS if key in row]
            if ordered != sorted(ordered):
                wrong.append(f"{row['request']} {row['stage']} {row['chunk']}: stamps out of order")
        if row["t"] == "hop" and not ("send_ns" in row and "recv_ns" in row):
            wrong.append(f"{row['request']} {row['from']}->{row['to']} {row['type']}: one end only")
    wrong += [f"{request}: visits only {sorted(seen)}" for request, seen in stages_seen.items() if not VISITS <= seen]
    requests = [row for row in rows if row["t"] == "request"]
    if len(requests) != count or any(r["state"] != "success" for r in requests):
        wrong.append(f"{len(requests)} requests in the recorder, {sum(r['state'] == 'success' for r in requests)} successful; {count} sent")
    totals: Counter[str] = Counter()
    for request in requests:
        totals.update(request["messages"])
    summary = {"requests": len(requests), "visits": sum(r["t"] == "visit" for r in rows), "hops": sum(r["t"] == "hop" for r in rows),
               "expected_messages": totals, "clock": meta["clock"], "one_ended_hops": meta["one_ended_hops"],
               "incomplete_requests": meta["incomplete_requests"], "wrong": len(wrong), "first_wrong": wrong[:5]}
    print(json.dumps(summary))
    return 1 if wrong or meta["incomplete_requests"] else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("-n", type=int, default=20)
    parser.add_argument("-c", type=int, default=4)
    parser.add_argument("--image-bytes", type=int, default=0)
    parser.add_argument("--check", metavar="TRUTH")
    options = parser.parse_args()
    if options.check:
        return check(options.check, options.n)
    if not options.url:
        parser.error("give the server's URL, or --check TRUTH")
    return load(options.url, options.n, options.c, options.image_bytes)


if __name__ == "__main__":
    sys.exit(main())
