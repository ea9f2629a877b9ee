"""An unrelated process that only makes system calls, with and without a recording of another one, as JSON.

usage: unrelated.py STAGELINE CALLS OUT [BLOCKS]
A block holds, in random order, one measurement beside a recording and two without; the first is compared
with the geometric mean of the other two, and those with each other. Medians over the blocks, with their
95 % bootstrap interval.
"""
import json, math, random, statistics, subprocess, sys
from pathlib import Path

stageline, calls, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
blocks = int(sys.argv[4]) if len(sys.argv) > 4 else 10
kinds = ["getppid", "write-null", "eventfd", "unix-socket"]


def measure():
    lines = subprocess.run([calls, *kinds], check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(lines[::2], map(float, lines[1::2])))


def recorded(n):
    target = subprocess.Popen(["sleep", "600"])
    recorder = subprocess.Popen([stageline, "record", "--unsealed", "-p", str(target.pid), "-o", str(out / f"run-{n}")],
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        if not any("recording" in line for line in iter(recorder.stderr.readline, "")):
            sys.exit("unrelated: the recorder did not start")
        return measure()
    finally:
        recorder.send_signal(2)
        recorder.communicate()
        target.kill()
        target.wait()


def median(values):
    rng, n = random.Random(1), len(values)
    again = sorted(statistics.median(rng.choices(values, k=n)) for _ in range(10000))
    enough = n >= 5
    return {"n": n, "at": statistics.median(values), "lo": again[249] if enough else None, "hi": again[9750] if enough else None}


out.mkdir(parents=True, exist_ok=True)
rng, seen = random.Random(1), []
measure()
for n in range(blocks):
    block = {}
    for what in rng.sample(["nothing", "nothing again", "stageline"], 3):
        block[what] = recorded(n) if what == "stageline" else measure()
    seen.append(block)
lines = []
for k in kinds:
    on, off, again = ([b[w][k] for b in seen] for w in ("stageline", "nothing", "nothing again"))
    base = [math.sqrt(x * y) for x, y in zip(off, again)]
    lines.append({"call": k, "nothing_ns": median(base), "recorded_ns": median(on), "added_ns": median([x - y for x, y in zip(on, base)]),
                  "ratio": median([x / y for x, y in zip(on, base)]), "noise_ratio": median([x / y for x, y in zip(again, off)])})
print(json.dumps({"calls": lines, "blocks": seen}, indent=1))
