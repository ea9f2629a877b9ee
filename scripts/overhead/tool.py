"""One other tool on running processes, for `stageline overhead --with`.

usage: tool.py strace|perf PID[,PID…]
       tool.py own URL DIR PID[,PID…]     (SGLang-Omni's own recorder; PIDs of the processes that write events)

Prints a line once the tool has attached, and ends on SIGINT, once the tool is off again. What strace
and perf print goes to /dev/null: where it is to be kept they cost more.
"""
import itertools, json, os, signal, subprocess, sys, urllib.request
from pathlib import Path
from time import monotonic, sleep

LIMIT_S, LOOK_S = 60, 0.02


def until(true, what, child=None):
    end = monotonic() + LIMIT_S
    while not true():
        if child and child.poll() is not None:
            sys.exit(f"{what}: it ended with {child.returncode}")
        if monotonic() > end:
            if child:  # what it has attached to by now must not stay traced
                child.send_signal(signal.SIGINT)
                child.wait()
            sys.exit(f"{what}: not within {LIMIT_S} s")
        sleep(LOOK_S)


def tracer(status):
    """PID of what traces a thread; None when the thread is gone."""
    try:
        return int(status.read_text().split("TracerPid:")[1].split()[0])
    except OSError:
        return None


def traced(pids, by):
    return all(tracer(s) in (by, None) for p in pids for s in Path(f"/proc/{p}/task").glob("*/status"))


def links(pid):
    for f in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            yield os.readlink(f)
        except OSError:
            pass  # closed meanwhile


def polls(pid):
    """Whether perf has its events and waits for them to come: call 7 is poll on x86-64."""
    try:
        call = Path(f"/proc/{pid}/syscall").read_text().split()[0]
    except OSError:
        return False
    return call == "7" and any("perf_event" in l for l in links(pid))


def ptrace(pids):
    child = subprocess.Popen(["strace", "-f", "-qq", "-e", "trace=network,desc", "-o", "/dev/null", "-p", ",".join(pids)])
    until(lambda: traced(pids, child.pid), "strace on every thread", child)
    return child.wait


def perf(pids):
    child = subprocess.Popen(["perf", "trace", "-p", ",".join(pids), "-o", "/dev/null"])
    until(lambda: polls(child.pid), "perf trace waiting for events", child)
    return child.wait


def own(url, into, pids):
    into = Path(into).resolve()
    directory = next(d for n in itertools.count() if not (d := into / str(n)).exists())
    directory.mkdir(parents=True)

    def call(what, body):
        r = urllib.request.Request(f"{url}/{what}", json.dumps(body).encode(), {"Content-Type": "application/json"})
        urllib.request.urlopen(r, timeout=LIMIT_S).read()

    def holders():
        return sum(any(l.startswith(str(directory)) for l in links(p)) for p in pids)

    call("start_request_profile", {"run_id": directory.name, "event_dir": str(directory)})
    until(lambda: holders() == len(pids), "an events file open in every process")

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def end():
        stopped.append(signal.sigwait({signal.SIGINT}))
        call("stop_request_profile", {})
        until(lambda: holders() == 0, "all events files closed")
        files = list(directory.glob("events_*.jsonl"))
        counts = [f.read_bytes().count(b"\n") for f in files]
        (directory / "count").write_text(f"{sum(counts)} events in {len(files)} files\n")
        if len(files) != len(pids) or not all(counts):
            sys.exit(f"own recorder: {counts} events from {len(pids)} processes: some recorded nothing")

    return end


stopped = []
signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
kind, *rest = sys.argv[1:]
pids = rest[-1].split(",")
wait = {"strace": ptrace, "perf": perf}[kind](pids) if kind != "own" else own(*rest[:2], pids)
print("attached", flush=True)
wait()
if not stopped:
    sys.exit(f"{kind}: it ended by itself")
