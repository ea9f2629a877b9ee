"""Side by side: what load generators report of a server whose times are known.

The server (`stageline mock`) stamps each write just before it makes it, and by the kernel the
arrival of each request. An error is what the client reports minus what the server did:

TTFT    time to first token as reported, against arrival of the request -> write of the first token;
        mean of the differences, and the difference of the 99th percentiles
ITL s   standard deviation of (reported gap - the server's gap), where the client reports gaps
lag     of each request's arrival behind a grid of 1/rate that begins with the earliest
cpu     processor time of the client per 10,000 events, its start included
"""

import argparse
import glob
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "bin", "stageline")
PEERS = os.path.join(ROOT, ".tools", "peers")
TIMEOUT = 180  # seconds, of one client at one level


class Mock:
    """The server, in a process that ends with this one."""

    def __init__(self, ttft, itl, tokens):
        self.p = subprocess.Popen(
            [BIN, "mock", "--until-eof", "--ttft", ttft, "--itl", itl, "--tokens", str(tokens)],
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


def client(argv, **kw):
    """Runs a client to its end and returns its processor time in seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT, **kw)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 5: measured, but outside of the declared bound
    if p.returncode not in (0, 5):
        raise RuntimeError(p.stdout.decode(errors="replace")[-300:])
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def p99(v):
    v = sorted(v)
    return v[(len(v) * 99 + 99) // 100 - 1]


def tokenizer():
    """A tokenizer of whole words, so that no client needs one from elsewhere."""
    path = os.path.join(PEERS, "tokenizer")
    if not os.path.isdir(path):
        py = next(p for p in glob.glob(os.path.join(PEERS, "*", "bin", "python")))
        subprocess.run([py, "-c", """
import sys
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
words = ["[UNK]", "word", "river", "stone", "light", "morning"]
t = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
t.pre_tokenizer = pre_tokenizers.Whitespace()
PreTrainedTokenizerFast(tokenizer_object=t, unk_token="[UNK]").save_pretrained(sys.argv[1])
""", path], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return path


# Each client returns (TTFTs in ms, {request id: gaps in ms} or None, processor seconds).

def stageline(m, n, count, tmp):
    run = os.path.join(tmp, "run")
    cpu = client([BIN, "load", "-u", m.url, "-c", str(n), "-n", str(count), "-o", run])
    ttft, gaps = [], {}
    for line in open(os.path.join(run, "requests.jsonl")):
        r = json.loads(line)
        if r["state"] != "success":
            continue
        at = [e["mono_ns"] for e in r["events"] if e["kind"] == "content"]
        ttft.append((r["first_content_mono_ns"] - r["sent_mono_ns"]) / 1e6)
        gaps[r["request_id"]] = [(b - a) / 1e6 for a, b in zip(at, at[1:])]
    return ttft, gaps, cpu


def aiperf(m, n, count, tmp):
    cpu = client([os.path.join(PEERS, "aiperf/bin/aiperf"), "profile", "-m", "mock", "--tokenizer", tokenizer(),
                  "--endpoint-type", "chat", "--streaming", "-u", m.url, "--concurrency", str(n),
                  "--request-count", str(count), "--synthetic-input-tokens-mean", "20",
                  "--output-artifact-dir", tmp, "--export-level", "records", "--ui", "none"])
    ttft, gaps = [], {}
    for line in open(os.path.join(tmp, "profile_export.jsonl")):
        r = json.loads(line)
        if r.get("error"):
            continue
        ttft.append(r["metrics"]["time_to_first_token"]["value"])
        gaps[r["metadata"]["x_request_id"]] = r["metrics"].get("inter_chunk_latency", {}).get("value", [])
    return ttft, gaps, cpu


def guidellm(m, n, count, tmp):
    data, out = os.path.join(tmp, "data.jsonl"), os.path.join(tmp, "out.json")
    with open(data, "w") as f:
        for i in range(count):
            print(json.dumps({"prompt": f"{i} river stone light morning"}), file=f)
    cpu = client([os.path.join(PEERS, "guidellm/bin/guidellm"), "run",
                  "--backend", f"kind=openai_http,target={m.url},model=mock",
                  "--profile", f"kind=concurrent,streams={n}", "--constraint", f"kind=max_requests,count={count}",
                  "--tokenizer", f"kind=huggingface_auto,model={tokenizer()}", "--data", f"kind=json_file,path={data}",
                  "--output", f"kind=json,path={out}", "--disable-console"],
                 env={**os.environ, "GUIDELLM__MAX_CONCURRENCY": str(max(512, n))})
    done = json.load(open(out))["benchmarks"][0]["requests"]["successful"]
    return [r["time_to_first_token_ms"] for r in done if r["time_to_first_token_ms"]], None, cpu


def streams(clients, levels, tokens):
    print(f"TTFT of 50 ms, ITL of 10 ms, {tokens} tokens a reply; errors in ms\n")
    print(f"{'streams':>7} {'client':<10} {'n':>6} {'TTFT mean':>10} {'TTFT p99':>10} {'ITL s':>8} {'cpu ms/10k':>10} {'server late p99':>15}")
    for n in levels:
        count = max(20, 2 * n)
        for f in clients:
            tmp = tempfile.mkdtemp()
            try:
                with Mock("50ms", "10ms", tokens) as m:
                    ttft, gaps, cpu = f(m, n, count, tmp)
                    recs = m.stamps()
            except (RuntimeError, OSError, KeyError, subprocess.TimeoutExpired) as e:
                print(f"{n:>7} {f.__name__:<10} no result: {' '.join(str(e).split())[-90:]}")
                continue
            finally:
                shutil.rmtree(tmp, ignore_errors=True)
            true = [(r["write_ns"][0] - r["arrived_ns"]) / 1e6 for r in recs]
            late = p99([(w - r["due_ns"]) / 1e6 - 10 * i for r in recs for i, w in enumerate(r["write_ns"])])
            errs = []
            for r in recs if gaps else []:
                g, w = gaps.get(r["request_id"], []), r["write_ns"]
                if len(g) == len(w) - 1:
                    errs += [x - (b - a) / 1e6 for x, a, b in zip(g, w, w[1:])]
            sigma = f"{statistics.pstdev(errs):.3f}" if errs else "-"
            per = cpu * 1e3 / (sum(len(r["write_ns"]) for r in recs) / 1e4)
            print(f"{n:>7} {f.__name__:<10} {len(ttft):>6} {statistics.mean(ttft) - statistics.mean(true):>10.3f} "
                  f"{p99(ttft) - p99(true):>10.3f} {sigma:>8} {per:>10.0f} {late:>15.3f}", flush=True)


def attack(m, rate, seconds, tmp):
    return client([BIN, "load", "-u", m.url, "--rate", str(rate), "--arrival", "constant", "-n", str(rate * seconds)])


def vegeta(m, rate, seconds, tmp):
    body, out = os.path.join(tmp, "body"), os.path.join(tmp, "out")
    open(body, "w").write('{"model":"mock","stream":true,"messages":[{"role":"user","content":"river"}]}')
    return client([os.path.join(PEERS, "vegeta"), "attack", f"-rate={rate}", f"-duration={seconds}s", f"-body={body}",
                   "-header=Content-Type: application/json", f"-output={out}"],
                  input=f"POST {m.url}/v1/chat/completions\n".encode())


def rates(clients, levels, seconds):
    print(f"\nequal gaps for {seconds} s, replies of one token after 5 ms; lag in us\n")
    print(f"{'asked/s':>7} {'client':<10} {'n':>6} {'achieved/s':>11} {'lag p50':>9} {'lag p99':>9} {'lag max':>9}")
    for rate in levels:
        for name, f in clients:
            tmp = tempfile.mkdtemp()
            try:
                with Mock("5ms", "1ms", 1) as m:
                    f(m, rate, seconds, tmp)
                    at = sorted(r["arrived_ns"] for r in m.stamps())
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as e:
                print(f"{rate:>7} {name:<10} no result: {' '.join(str(e).split())[-90:]}")
                continue
            finally:
                shutil.rmtree(tmp, ignore_errors=True)
            gap = 1e9 / rate
            off = [t - i * gap for i, t in enumerate(at)]
            lag = sorted((o - min(off)) / 1e3 for o in off)
            got = (len(at) - 1) / ((at[-1] - at[0]) / 1e9)
            print(f"{rate:>7} {name:<10} {len(at):>6} {got:>11.2f} {lag[len(lag) // 2]:>9.1f} {p99(lag):>9.1f} {lag[-1]:>9.1f}", flush=True)


def main():
    ints = lambda s: [int(x) for x in s.split(",") if x]
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--streams", type=ints, default=[1, 100, 500, 1000, 2000])
    a.add_argument("--rates", type=ints, default=[100, 1000, 5000])
    a.add_argument("--tokens", type=int, default=50)
    a.add_argument("--seconds", type=int, default=5, help="of each rate")
    a.add_argument("--only", help="one client")
    o = a.parse_args()
    here = lambda p: os.path.exists(os.path.join(PEERS, p))
    c = [stageline] + [f for f in (aiperf, guidellm) if here(f"{f.__name__}/bin/{f.__name__}")]
    r = [("stageline", attack)] + ([("vegeta", vegeta)] if here("vegeta") else [])
    if len(c) + len(r) == 2:
        print("no peers in .tools/peers: scripts/bench-load-peers.sh installs them\n", file=sys.stderr)
    if o.only:
        c, r = [f for f in c if f.__name__ == o.only], [x for x in r if x[0] == o.only]
    if o.streams:
        streams(c, o.streams, o.tokens)
    if o.rates:
        rates(r, o.rates, o.seconds)


main()
