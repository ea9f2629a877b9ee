"""How each load generator is asked for the same load, and where its times are read.

Every client keeps connections alive, may have as many of them as are in flight, and is asked for the
same number of streamed chat completions. What else a client needs to do its best is said beside it.
A function here takes the server's address, a Load and a folder for its files.
"""

import glob
import json
import os
import resource
import signal
import subprocess
from typing import NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "bin", "stageline")
PEERS = os.path.join(ROOT, ".tools", "peers")
BODY = '{"model":"mock","stream":true,"messages":[{"role":"user","content":"river"}]}'
# Of clients that share connections among workers: well above what is in flight at any rate asked here,
# so that none waits for a worker or starts one while it sends.
WORKERS = 256
timeout_s = 120


class Load(NamedTuple):
    count: int
    streams: int = 0  # closed loop; 0: open loop
    rate: int = 0     # requests per second with equal gaps; 0: closed loop


class Result(NamedTuple):
    ttft_ms: list
    gaps_ms: dict  # request id -> gaps; empty where the client does not give them
    cpu_s: float


class NoResult(Exception):
    """A client that did not do the load; says why."""


def have(name):
    return name == "stageline" or any(os.path.exists(os.path.join(PEERS, p)) for p in (
        f"{name}/bin/python", f"bin/{name}"))


def python(name, *what):
    """Runs a peer by its interpreter: the first lines of installed scripts name the folder they were
    installed to, so those would not survive a move."""
    return [os.path.join(PEERS, name, "bin", "python"), *what]


def run(argv, **kw):
    """Runs a client to its end and returns its processor time in seconds, its start included."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    stdin = kw.pop("input", None)
    # A group of its own, to be ended as one. Not a session of its own: the kernel's autogroups would give
    # it a share of the processors apart from the server's, in place of each thread's.
    p = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                         process_group=0, **kw)
    try:
        out, _ = p.communicate(stdin, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(p.pid, signal.SIGKILL)  # the processes it started as well
        p.communicate()
        raise NoResult(f"not done after {timeout_s} s") from None
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # 5: stageline measured, but outside of the declared bound
    if p.returncode not in (0, 5):
        raise NoResult(f"exit code {p.returncode}: {out.decode(errors='replace')[-400:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


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


def prompts(load, tmp):
    """A file of distinct prompts, for clients that read theirs from one."""
    path = os.path.join(tmp, "prompts.jsonl")
    with open(path, "w") as f:
        for i in range(load.count):
            print(json.dumps({"prompt": f"{i} river stone light morning", "output_tokens": 50}), file=f)
    return path


def stageline(url, load, tmp):
    out = os.path.join(tmp, "run")
    how = ["-c", str(load.streams)] if load.streams else ["--rate", str(load.rate), "--arrival", "constant"]
    cpu = run([BIN, "load", "-u", url, *how, "-n", str(load.count), "-o", out])
    ttft, gaps = [], {}
    for line in open(os.path.join(out, "requests.jsonl")):
        r = json.loads(line)
        if r["state"] != "success":
            continue
        at = [e["mono_ns"] for e in r["events"] if e["kind"] == "content"]
        ttft.append((r["first_content_mono_ns"] - r["sent_mono_ns"]) / 1e6)
        gaps[r["request_id"]] = [(b - a) / 1e6 for a, b in zip(at, at[1:])]
    return Result(ttft, gaps, cpu)


def aiperf(url, load, tmp):
    # Open loop ends by time: a client that is slower than asked would go on for minutes to reach a number.
    how = (["--concurrency", str(load.streams), "--request-count", str(load.count)] if load.streams else
           ["--request-rate", str(load.rate), "--arrival-pattern", "constant",
            "--benchmark-duration", str(load.count // load.rate)])
    # No dashboard, and records without the raw exchange: what it writes is work beside the measurement.
    cpu = run([*python("aiperf", "-m", "aiperf"), "profile", "-m", "mock", "--tokenizer", tokenizer(),
               "--endpoint-type", "chat", "--streaming", "-u", url, *how, "--synthetic-input-tokens-mean", "20",
               "--output-artifact-dir", tmp, "--export-level", "records", "--ui", "none"])
    ttft, gaps = [], {}
    for line in open(os.path.join(tmp, "profile_export.jsonl")):
        r = json.loads(line)
        if r.get("error"):
            continue
        ttft.append(r["metrics"]["time_to_first_token"]["value"])
        gaps[r["metadata"]["x_request_id"]] = r["metrics"].get("inter_chunk_latency", {}).get("value", [])
    return Result(ttft, gaps, cpu)


def guidellm(url, load, tmp):
    out = os.path.join(tmp, "out.json")
    profile, end = f"kind=concurrent,streams={load.streams}", f"kind=max_requests,count={load.count}"
    if load.rate:  # ends by time, as aiperf does
        profile, end = f"kind=constant,rate={load.rate}", f"kind=max_duration,seconds={load.count // load.rate}"
    # Its cap on what is in flight would be below the streams asked for.
    env = {**os.environ, "GUIDELLM__MAX_CONCURRENCY": str(max(512, load.streams))}
    cpu = run([*python("guidellm", "-m", "guidellm"), "run", "--backend", f"kind=openai_http,target={url},model=mock",
               "--profile", profile, "--constraint", end,
               "--tokenizer", f"kind=huggingface_auto,model={tokenizer()}",
               "--data", f"kind=json_file,path={prompts(load, tmp)}",
               "--output", f"kind=json,path={out}", "--disable-console"], env=env, cwd=tmp)
    done = json.load(open(out))["benchmarks"][0]["requests"]["successful"]
    return Result([r["time_to_first_token_ms"] for r in done if r["time_to_first_token_ms"]], {}, cpu)


# `vllm bench serve` itself, without the command line around it: that imports the engine as well.
VLLM_BENCH = """
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
p = FlexibleArgumentParser()
add_cli_args(p)
main(p.parse_args())
"""


def vllm(url, load, tmp):
    # Without a cap on connections (the cap is the streams), a progress bar, or a first try beside the load.
    how = ["--max-concurrency", str(load.streams)] if load.streams else [
        "--request-rate", str(load.rate), "--burstiness", "inf"]
    cpu = run([*python("vllm", "-c", VLLM_BENCH), "--backend", "openai-chat",
               "--base-url", url, "--endpoint", "/v1/chat/completions", "--model", "mock", "--tokenizer", tokenizer(),
               "--dataset-name", "random", "--random-input-len", "20", "--random-output-len", "50", "--num-prompts",
               str(load.count), *how, "--request-id-prefix", "v-", "--disable-tqdm", "--save-result",
               "--save-detailed", "--result-dir", tmp, "--result-filename", "out.json"], cwd=tmp)
    r = json.load(open(os.path.join(tmp, "out.json")))
    ok = [i for i, e in enumerate(r["errors"]) if not e]
    return Result([r["ttfts"][i] * 1e3 for i in ok], {f"v-{i}": [g * 1e3 for g in r["itls"][i]] for i in ok}, cpu)


def vegeta(url, load, tmp):
    body = os.path.join(tmp, "body")
    with open(body, "w") as f:
        f.write(BODY)
    return Result([], {}, run([
        os.path.join(PEERS, "bin", "vegeta"), "attack", f"-rate={load.rate}", f"-duration={load.count / load.rate}s",
        f"-workers={WORKERS}", "-max-body=0", f"-body={body}", "-header=Content-Type: application/json",
        f"-output={os.path.join(tmp, 'out')}"], input=f"POST {url}/v1/chat/completions\n".encode()))


STREAMS = [stageline, aiperf, guidellm, vllm]
RATES = [stageline, vegeta, aiperf, guidellm, vllm]
