"""An unrelated process that only makes system calls, with and without a recording of another one.

usage: unrelated.py STAGELINE CALLS OUT [PAIRS]
Pairs alternate in order; printed is the median time of a call and the median ratio of the pairs.
"""
import random, statistics, subprocess, sys, time
from pathlib import Path

stageline, calls, out = sys.argv[1], sys.argv[2], Path(sys.argv[3])
pairs = int(sys.argv[4]) if len(sys.argv) > 4 else 8
kinds = ["getppid", "write-null", "eventfd", "unix-socket"]


def measure():
    lines = subprocess.run([calls, *kinds], check=True, capture_output=True, text=True).stdout.split()
    return dict(zip(lines[::2], map(float, lines[1::2])))


def recorded(n):
    target = subprocess.Popen(["sleep", "60"])
    recorder = subprocess.Popen([stageline, "record", "--unsealed", "-p", str(target.pid), "-o", str(out / f"run-{n}")],
                                stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    try:
        if "recording" not in recorder.stderr.readline():
            sys.exit("unrelated: the recorder did not start")
        return measure()
    finally:
        recorder.send_signal(2)
        recorder.wait()
        target.kill()
        target.wait()


out.mkdir(parents=True, exist_ok=True)
rng, on, off, noise = random.Random(1), [], [], []
measure()
for n in range(pairs):
    if rng.random() < 0.5:
        on.append(recorded(n)); off.append(measure())
    else:
        off.append(measure()); on.append(recorded(n))
    noise.append(measure())
print(f"{'system call':12}  {'not recording':>13}  {'recording':>9}  {'added':>8}  {'recording ÷ not':>15}  {'not ÷ not':>9}  n = {pairs} pairs")
for k in kinds:
    a, b = statistics.median(x[k] for x in on), statistics.median(x[k] for x in off)
    ratio = statistics.median(x[k] / y[k] for x, y in zip(on, off))
    same = statistics.median(x[k] / y[k] for x, y in zip(noise, off))
    print(f"{k:12}  {b:10.0f} ns  {a:6.0f} ns  {a - b:+5.0f} ns  {ratio:15.3f}  {same:9.3f}")
