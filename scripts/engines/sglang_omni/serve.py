"""Start SGLang-Omni's own server on a pipeline with mock compute and say where it runs.

Prints one JSON line on stdout when the server answers, and runs until SIGTERM; the engine's log
goes to DIR/server.log. Started by ../sglang-omni.sh.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from pathlib import Path

READY_TIMEOUT_S = 300.0
POLL_S = 0.1


def clock() -> dict[str, int]:
    """CLOCK_REALTIME − CLOCK_MONOTONIC, and half the bracket it was read in; the tightest of many reads."""
    best: tuple[int, int, int] | None = None
    for _ in range(1000):
        before, real, after = time.clock_gettime_ns(time.CLOCK_MONOTONIC), time.clock_gettime_ns(time.CLOCK_REALTIME), time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if best is None or after - before < best[0]:
            best = (after - before, real - (before + after) // 2, (before + after) // 2)
    assert best is not None
    return {"mono_ns": best[2], "realtime_minus_mono_ns": best[1], "error_ns": best[0] // 2}


def call(url: str, body: dict[str, object] | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as reply:
        return reply.read()


def wait_until_ready(url: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        try:
            call(f"{url}/health")
            return
        except (urllib.error.URLError, OSError) as problem:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the server does not answer {url}/health after {READY_TIMEOUT_S:.0f} s: {problem}") from problem
            time.sleep(POLL_S)


def stage_pids(pid_dir: Path, names: list[str]) -> list[dict[str, object]]:
    return [json.loads((pid_dir / f"{name}.json").read_text()) for name in names]


def announce(options: argparse.Namespace, names: list[str], pid_dir: Path, out: int) -> None:
    """Wait for the server, switch its recorder on when asked to, print the ready line."""
    url = f"http://127.0.0.1:{options.port}"
    recorder = Path(options.dir, "recorder")
    try:
        wait_until_ready(url)
        stages = stage_pids(pid_dir, names)
        if options.record:
            recorder.mkdir(parents=True, exist_ok=True)
            started = {"t": "start", "clock": clock(), "api_pid": os.getpid(), "stages": stages, "graph": options.graph,
                       "compute": options.compute, "scale": options.scale}
            call(f"{url}/start_request_profile", {"run_id": "stageline", "event_dir": str(recorder)})
            with open(recorder / "harness.jsonl", "w") as harness:
                harness.write(json.dumps(started) + "\n")
        line = {"url": url, "pids": [os.getpid()] + [s["pid"] for s in stages], "api_pid": os.getpid(), "stages": stages,
                "recorder_dir": str(recorder) if options.record else None}
        os.write(out, (json.dumps(line) + "\n").encode())
    except Exception:
        traceback.print_exc()
        os.kill(os.getpid(), signal.SIGTERM)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compute", choices=["sleep", "gil"], required=True)
    parser.add_argument("--dir", required=True, help="where logs and recorder files go")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on every compute time")
    parser.add_argument("--graph", choices=["aggregate", "speech"], default="aggregate")
    parser.add_argument("--record", action="store_true", help="switch the engine's own event recorder on")
    options = parser.parse_args()
    options.dir = str(Path(options.dir).resolve())
    return options


def redirect_log(path: Path) -> int:
    """Send stdout and stderr, also those of the stage processes, to path; returns the real stdout."""
    out = os.dup(1)
    os.set_inheritable(out, False)
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return out


def main() -> int:
    options = parse()
    pid_dir = Path(options.dir, "pids")
    pid_dir.mkdir(parents=True, exist_ok=True)
    for stale in pid_dir.glob("*.json"):
        stale.unlink()
    log = Path(options.dir, "server.log")
    notes = os.dup(2)
    out = redirect_log(log)

    from graph import pipeline
    from sglang_omni.serve.launcher import launch_server

    os.environ["SGLANG_OMNI_STRICT_PORT"] = "1"  # another port than the one printed would be a lie
    config = pipeline(options.graph, compute=options.compute, scale=options.scale, pid_dir=str(pid_dir))
    names = [stage.name for stage in config.stages]
    announced = threading.Thread(target=announce, args=(options, names, pid_dir, out), daemon=True)
    announced.start()
    try:
        launch_server(config, host="127.0.0.1", port=options.port, log_level="warning")
    except BaseException as problem:
        os.write(notes, f"sglang-omni: the server ended: {problem!r}; see {log}\n".encode())
        return 1
    finally:
        harness = Path(options.dir, "recorder", "harness.jsonl")
        if options.record and harness.exists():
            with open(harness, "a") as file:
                file.write(json.dumps({"t": "end", "clock": clock()}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
