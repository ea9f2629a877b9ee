"""Compare the hops of a report with the messages the engine is known to send for each request.

Usage: python complete.py REPORT.json TRUTH.jsonl
Prints one JSON line; exit code 1 when a message is missing, invented, or was not seen at both ends.
"""

from __future__ import annotations

import json
import sys
from collections import Counter


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    expected: dict[str, dict[str, int]] = {}
    with open(sys.argv[2], encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["t"] == "request" and "messages" in row:
                expected[row["request"]] = row["messages"]
    missed: Counter[str] = Counter()
    invented: Counter[str] = Counter()
    one_ended = total = 0
    seen = {request["request_id"]: request for request in report["requests"]}
    for rid, messages in expected.items():
        hops = seen.get(rid, {"hops": []})["hops"]
        got = Counter(hop["type"] for hop in hops)
        total += sum(got.values())
        one_ended += sum(1 for hop in hops if hop["send"]["timing"] != "seen" or hop["recv"]["timing"] != "seen")
        missed += Counter(messages) - got
        invented += got - Counter(messages)
    unknown = sorted(set(seen) - set(expected))
    print(json.dumps({"requests": len(expected), "not_in_truth": len(unknown), "messages": total, "missed": missed, "invented": invented,
                      "not_seen_at_both_ends": one_ended}))
    return 1 if missed or invented or one_ended or not expected else 0


if __name__ == "__main__":
    sys.exit(main())
