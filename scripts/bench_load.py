"""Side by side: what load generators report of a server whose times are known.

The server (`stageline mock`) stamps each write just before it makes it, and by the kernel the
arrival of each request. An error is what the client reports minus what the server did:

TTFT    time to first token as reported, against arrival of the request -> write of the first token;
        mean of the differences, and the difference of the 99th percentiles
ITL s   standard deviation of (reported gap - the server's gap), where the client reports gaps
cpu     processor time of the client per 10,000 events (tokens), its start included
lag     of each request's arrival behind a grid of 1/rate that begins with the earliest, for rates

A line "no result" says why a client has none. The whole takes about 15 minutes on 2 cores; parts of
it: --streams 1,100 --rates "" --only stageline,vllm
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

import bench_load_clients as clients
from bench_load_clients import Load, NoResult


class Mock:
    """The server, in a process that ends with this one."""

    def __init__(self, ttft, itl, tokens):
        self.p = subprocess.Popen(
            [clients.BIN, "mock", "--until-eof", "--ttft", ttft, "--itl", itl, "--tokens", str(tokens)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.p.stdout.readline().strip()

    def stamps(self):
        with urllib.request.urlopen(self.url + "/stamps") as r:
            return [json.loads(l) for l in r if l.strip()]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.p.stdin.close()
        self.p.wait()


def p99(v):
    v = sorted(v)
    return v[(len(v) * 99 + 99) // 100 - 1]


def measure(client, load, *server):
    """(what the client reports, what the server did), or NoResult."""
    tmp = tempfile.mkdtemp()
    try:
        with Mock(*server) as m:
            result, recs = client(m.url, load, tmp), m.stamps()
    except (OSError, LookupError, ValueError) as e:
        raise NoResult(f"its results cannot be read: {e!r}") from e
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    if len(recs) < 2:
        raise NoResult(f"the server saw {len(recs)} of {load.count} requests to their end")
    return result, recs


def no_result(label, client, why):
    text = " ".join("".join(c if c.isascii() and c.isprintable() else " " for c in str(why)).split())
    print(f"{label:>7} {client.__name__:<10} no result: {text[:40]} … {text[-150:]}" if len(text) > 200 else
          f"{label:>7} {client.__name__:<10} no result: {text}", flush=True)


def own(result, recs):
    """Without requests that the client does not report, such as the one vllm tries before the load."""
    return [s for s in recs if s["request_id"] in result.gaps_ms] or recs


def gap_errors(gaps_ms, recs):
    """Reported gap - the server's, of each gap of the requests whose gaps are all there."""
    errs = []
    for r in recs:
        g, w = gaps_ms.get(r["request_id"], []), r["write_ns"]
        if len(g) == len(w) - 1:
            errs += [x - (b - a) / 1e6 for x, a, b in zip(g, w, w[1:])]
    return errs


def streams(which, levels, tokens):
    print(f"TTFT of 50 ms, ITL of 10 ms, {tokens} tokens a reply; errors in ms\n")
    print(f"{'streams':>7} {'client':<10} {'n':>6} {'TTFT mean':>10} {'TTFT p99':>10} {'ITL s':>8} {'gaps':>7} "
          f"{'cpu ms/10k':>10} {'server late p99':>15}")
    for n in levels:
        for f in which:
            try:
                r, recs = measure(f, Load(max(20, 2 * n), streams=n), "50ms", "10ms", tokens)
                if not r.ttft_ms:
                    raise NoResult("it reports no request as done")
            except NoResult as e:
                no_result(n, f, e)
                continue
            true = [(s["write_ns"][0] - s["arrived_ns"]) / 1e6 for s in own(r, recs)]
            late = p99([(w - s["due_ns"]) / 1e6 - 10 * i for s in recs for i, w in enumerate(s["write_ns"])])
            errs = gap_errors(r.gaps_ms, recs)
            sigma = f"{statistics.pstdev(errs):.3f}" if errs else "-"
            per = r.cpu_s * 1e3 / (sum(len(s["write_ns"]) for s in recs) / 1e4)
            print(f"{n:>7} {f.__name__:<10} {len(r.ttft_ms):>6} {statistics.mean(r.ttft_ms) - statistics.mean(true):>10.3f} "
                  f"{p99(r.ttft_ms) - p99(true):>10.3f} {sigma:>8} {len(errs):>7} {per:>10.0f} {late:>15.3f}", flush=True)


def rates(which, levels, seconds):
    print(f"\nequal gaps for {seconds} s, replies of one token after 5 ms; lag in us\n")
    print(f"{'asked/s':>7} {'client':<10} {'n':>6} {'achieved/s':>11} {'lag p50':>9} {'lag p99':>9} {'lag max':>9} {'cpu ms/10k':>10}")
    for rate in levels:
        for f in which:
            try:
                r, recs = measure(f, Load(rate * seconds, rate=rate), "5ms", "1ms", 1)
            except NoResult as e:
                no_result(rate, f, e)
                continue
            at = sorted(s["arrived_ns"] for s in own(r, recs))
            off = [t - i * 1e9 / rate for i, t in enumerate(at)]
            lag = sorted((o - min(off)) / 1e3 for o in off)
            got = (len(at) - 1) / ((at[-1] - at[0]) / 1e9)
            print(f"{rate:>7} {f.__name__:<10} {len(at):>6} {got:>11.2f} {lag[len(lag) // 2]:>9.1f} {p99(lag):>9.1f} "
                  f"{lag[-1]:>9.1f} {r.cpu_s * 1e3 / (len(at) / 1e4):>10.0f}", flush=True)


def present(which, only):
    """The clients to run, and a note of each that is not installed here."""
    chosen = [f for f in which if not only or f.__name__ in only]
    for f in chosen:
        if not clients.have(f.__name__):
            print(f"{f.__name__}: not in .tools/peers; scripts/bench-load-peers.sh installs it or says why not", file=sys.stderr)
    return [f for f in chosen if clients.have(f.__name__)]


def main():
    ints = lambda s: [int(x) for x in s.split(",") if x]
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--streams", type=ints, default=[1, 100, 500, 1000, 2000])
    a.add_argument("--rates", type=ints, default=[100, 1000, 5000])
    a.add_argument("--tokens", type=int, default=50)
    a.add_argument("--seconds", type=int, default=5, help="of each rate")
    a.add_argument("--only", type=lambda s: s.split(","), help="clients, as in stageline,vllm")
    a.add_argument("--timeout", type=int, default=clients.timeout_s, help="seconds of one client at one level")
    o = a.parse_args()
    clients.timeout_s = o.timeout
    if o.streams:
        streams(present(clients.STREAMS, o.only), o.streams, o.tokens)
    if o.rates:
        rates(present(clients.RATES, o.only), o.rates, o.seconds)


main()
