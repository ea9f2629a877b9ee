"""Tables in Markdown of what `stageline overhead --json` and unrelated.py wrote.

usage: table.py OUT PART…      (those of OUT/PART.json that exist)
"""
import json, sys
from pathlib import Path

NAMES = {"refpipe-latency": "reference pipeline that sleeps", "refpipe-cpu": "reference pipeline that computes", "refpipe": "reference pipeline that sleeps",
         "engine-latency": "SGLang-Omni, compute that sleeps", "engine-cpu": "SGLang-Omni, compute that burns CPU"}

CALLS = {"getppid": "getppid", "write-null": "write to /dev/null", "eventfd": "write and read of an eventfd, each", "unix-socket": "write and read of a unix socket, each"}


def cell(f, digits):
    if f is None or f["at"] is None:
        return "–"
    if f["lo"] is None:
        return f"{f['at']:.{digits}f}"
    return f"{f['at']:.{digits}f} ({f['lo']:.{digits}f}–{f['hi']:.{digits}f})"


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def loads(parts):
    row("load", "with", "n", "throughput ÷", "JCT, same request ÷", "CPU of the processes ÷", "its processes, ms/request", "its kernel programs, ms/request",
        "both, % of the processes' CPU", "both, % of the host's")
    row(*["---"] * 10)
    for name, c in parts:
        bare = {(f["what"], f["unit"][:1]): f for f in c["bare"]}
        row(f"{NAMES.get(name, name)}, {c['load']}", "nothing", str(len(c["blocks"])), cell(bare["throughput", "r"], 1) + " requests/s", cell(bare["JCT p50", "m"], 0) + " ms p50",
            cell(bare["CPU of the processes", "m"], 1) + " ms/request", "", "", "", cell(bare["CPU of the processes", "%"], 1) + " theirs")
        for a in c["arms"]:
            ratio = {f["what"]: f for f in a["ratios"]}
            cost = [cell(f, 2) for f in a["costs"] or []][:4] or [""] * 4
            row("", a["name"] + (" ¹" if a.get("failed") else ""), str(ratio["throughput"]["n"]), cell(ratio["throughput"], 3), cell(ratio["JCT of the same request"], 3),
                cell(ratio["CPU of the processes per request"], 3), *cost)
    print()
    for name, c in parts:
        for a in c["arms"]:
            if a.get("failed"):
                print(f"¹ {a['name']} is missing from some or all blocks of {name}: {' '.join(a['failed'].split())[:300]}\n")
        attach = ", ".join(f"{a['name']} {cell(a['costs'][4], 0)} ms" for a in c["arms"] if a["costs"])
        others = next(f for f in c["bare"] if f["what"].startswith("CPU of others"))
        print(f"{name}: CPU for attaching and ending, per load and in no other figure: {attach}. Others on the host took {cell(others, 1)} % of its CPU time. {c['sentence']}.\n")


def calls(c):
    row("call", "nobody records", "another process is recorded", "added", "ratio", "nobody ÷ nobody")
    row(*["---"] * 6)
    for k in c["calls"]:
        row(CALLS[k["call"]], *[cell(k[f], 0) + " ns" for f in ("nothing_ns", "recorded_ns", "added_ns")], cell(k["ratio"], 3), cell(k["noise_ratio"], 3))
    print(f"\nn = {len(c['blocks'])} blocks")


out = Path(sys.argv[1])
parts = [(p, json.loads((out / f"{p}.json").read_text())) for p in sys.argv[2:] if (out / f"{p}.json").exists()]
if engines := [(p, c) for p, c in parts if "arms" in c]:
    loads(engines)
for _, c in parts:
    if "calls" in c:
        calls(c)
