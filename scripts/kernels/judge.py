"""Judges what kernels.sh brought back, prints a table, and exits with 1 when something is wrong.

Durations are printed, not judged: an emulated machine has none worth judging. What is judged is what
was recorded: nothing missed, invented or joined wrongly, nothing lost, and no feature missing that the
kernel should have; that a moment lies where the program itself says it was; and that faults are told.
"""

import argparse
import json
import pathlib
import subprocess
import sys

# The optional rows of `stageline doctor` that a series lacks by nature; any other absence is a fault.
LACKS = {
    "6.1": {"hook sk_data_ready", "queued bytes of unix sockets", "uprobe multi"},
    "6.12": {"queued bytes of unix sockets"},
}
TOO_OLD = {"5.10"}  # series of which the tool must say that they are too old
# Faults, made in the machine or there from the start: a row of `stageline doctor` that must be missing
# then, and what `stageline record` must say.
REFUSED = {
    "namespace": ("permission", "this process is in a user namespace", "run as root of the host"),
    "untyped": ("type information (BTF)", "no type information (BTF)", "use a kernel built with CONFIG_DEBUG_INFO_BTF"),
    "locked": ("lockdown", "the kernel is locked down (confidentiality)", "boot without lockdown=confidentiality"),
}
OLD = ("kernel programs", "is older than 6.1", "use Linux 6.1 or newer")
MISSING = 3  # exit code: a privilege or kernel feature
SETTINGS = {"io_uring", "other recorders"}  # rows that are about the host's settings, not its kernel
UNIX, SEND, RECV = 1, 1, 2  # numbers of run.Transport and run.Dir in `stageline dump`
LATE_PART = 20  # one in so many watched ends may lack its exact time: on a busy host a trap is held up for longer than it is waited for
SET_BACK = 7  # s, at least: to a whole second, and by as much more as the machine took to do it
WATCHED = 8  # chunks of 10 of each of two rings, whose flags four debug registers cover


def read(path, default=""):
    return path.read_text().strip() if path.exists() else default


class Machine:
    """One kernel: its figures for the table, and what is wrong with it."""

    def __init__(self, where, tool, requests, ring_messages):
        self.where, self.tool, self.requests, self.ring_messages = where, tool, requests, ring_messages
        self.wrong, self.row, self.lacks = [], {}, "not known"
        self.release = read(where / "release", where.name)
        self.series = ".".join(self.release.split(".")[:2])

    def want(self, ok, text):
        if not ok:
            self.wrong.append(text)
        return ok

    def judge(self):
        self.row["boot s"] = read(self.where / "boot_s", "-")
        ended = any((self.where / f"{last}-record.rc").exists() for last in ("plain", "locked"))
        if not self.want(ended, "the machine did not come to its end"):
            self.wrong.append("console: " + read(self.where / "console.log")[-1500:])
            return
        parts = (self.features, self.fresh, self.midstream, self.clock, self.ring, self.drain, self.faults)
        if self.series in TOO_OLD:
            parts = (self.old,)
        elif self.finished("doctor"):
            for step in ("fresh", "mid", "ring", "drain"):
                self.finished(step)
        else:
            parts = (self.features,)
        for part in parts:
            try:
                part()
            except subprocess.CalledProcessError as e:
                self.wrong.append(f"{part.__name__}: {' '.join(e.cmd)}: exit code {e.returncode}: {e.stderr[-800:]}")
            except (ValueError, LookupError, OSError) as e:
                self.wrong.append(f"{part.__name__}: its result cannot be read: {e!r}")

    def finished(self, step):
        code = read(self.where / f"{step}.rc")
        return self.want(code == "0", f"{step}: exit code {code}: {read(self.where / f'{step}.err')[-800:]}")

    def drain(self):
        tests = read(self.where / "drain.out").splitlines()
        passed = sum(t.startswith("--- PASS") for t in tests)
        self.row["drain tests"] = f"{passed} ok"
        self.want(passed > 0, "no test of the drain ran")
        self.wrong += [t for t in tests if "--- FAIL" in t or "--- SKIP" in t]

    def faults(self):
        told = sum(self.refused(fault, *want) for fault, want in REFUSED.items())
        self.row["faults told"] = f"{told} of {len(REFUSED)}"

    def old(self):
        self.row["faults told"] = f"{self.refused('plain', *OLD):d} of 1"

    def refused(self, fault, row, what, remedy):
        """Both commands end with the exit code for it; doctor has a row with a remedy, and record says in
        one line what and what to do."""
        rows = {r["name"]: r for r in json.loads(read(self.where / f"{fault}-doctor.out", "[]"))}
        got = rows.get(row, {"ok": True, "required": False})
        said = read(self.where / f"{fault}-record.err")
        codes = [read(self.where / f"{fault}-{command}.rc") for command in ("doctor", "record")]
        return all([
            self.want(codes == [str(MISSING)] * 2, f"{fault}: exit codes of doctor and record {codes}, want {MISSING}"),
            self.want(got["required"] and not got["ok"] and got.get("fix"), f"{fault}: doctor's row {row} is {got}, want it missing, with a remedy"),
            self.want(what in said and remedy in said and "\n" not in said, f"{fault}: record says {said!r}, want one line with {what!r} and {remedy!r}"),
        ])

    def features(self):
        rows = json.loads(read(self.where / "doctor.out", "[]"))
        self.want(rows, "doctor printed no row")
        absent = {r["name"]: r for r in rows if not r["ok"] and r["name"] not in SETTINGS}
        required = [n for n, r in absent.items() if r["required"]]
        self.row["required rows"] = f"{sum(r['required'] for r in rows) - len(required)} of {sum(r['required'] for r in rows)}"
        self.lacks = ", ".join(sorted(absent)) or "nothing"
        self.want(not required, f"required and missing: {required}")
        lacks = LACKS.get(self.series)
        if lacks is not None:
            extra, there = set(absent) - lacks, lacks - set(absent)
            self.want(not extra, "kernel %s should have %s" % (self.series, [f"{n}: {absent[n]['detail']}" for n in sorted(extra)]))
            self.want(not there, f"kernel {self.series} has {sorted(there)}: the list of what it lacks is wrong")

    def accuracy(self, name, figures):
        hops = f"{figures['hops_missed']}/{figures['hops_invented']}"
        self.row[f"{name}: hops missed/invented"] = hops
        self.row[f"{name}: joins wrong/not known"] = f"{figures['joins_wrong']}/{figures['joins_unknown']}"
        covered = figures["interval_coverage"]
        self.row[f"{name}: coverage"] = "-" if covered is None else f"{100 * covered:.1f} %"
        self.want(hops == "0/0", f"{name}: hops missed/invented {hops}")
        self.want(figures["joins_wrong"] == 0, f"{name}: {figures['joins_wrong']} joins are wrong")

    def fresh(self):
        text = read(self.where / "fresh.out")
        if not self.want(text.startswith("{"), "fresh: the demo printed no result"):
            return
        demo = json.loads(text)
        n = demo["requests"]
        self.want(set(n.values()) == {self.requests}, f"fresh: requests {n}, want {self.requests}")
        self.want(demo["loss"]["events"] == 0, f"fresh: {demo['loss']['events']} records lost")
        self.accuracy("fresh", demo["accuracy"])

    def midstream(self):
        run, truth = self.where / "mid/run", self.where / "mid/truth.jsonl"
        if not self.want(run.exists() and truth.exists(), "mid: no run or no truth"):
            return
        got = json.loads(self.call("accuracy", run, "--truth", truth, "--within", "--json"))
        counts = got["counts"]
        self.accuracy("mid", got["accuracy"])
        self.row["mid: hops judged"] = str(counts["hops"])
        self.want(counts["hops"] > 10 * self.requests, f"mid: {counts['hops']} hops judged, too few to say anything")
        self.want(counts["outside_span"] > 0, "mid: nothing happened before the attach: it was not mid-stream")
        # Visits of a request that was under way at the attach cannot all be known: counted, not judged.
        self.row["mid: visits missed/invented"] = f"{counts['visits_missed']}/{counts['visits_invented']}"
        self.want(counts["visits_invented"] == 0, f"mid: {counts['visits_invented']} visits invented")
        self.wrong += [f"mid: {e}" for e in got["examples"] if "unknown" not in e and not e.startswith("visits missed")]
        found, channels, moved = self.bases(run)
        self.row["mid: unix bases found"] = f"{found} of {channels}, {moved} not 0"
        self.want(channels > 0 and found == channels, f"mid: {found} of {channels} unix channels are aligned by their queue")

    def clock(self):
        """The wall clock was set back while the pipeline was recorded: that is noted, every time of day
        is of the clock before, and no duration is negative."""
        run = self.where / "mid/run"
        (up, wall), (later, after) = (map(float, line.split()) for line in read(self.where / "mid/clock").splitlines())
        least, most = max(SET_BACK, wall - after - 1), wall - after + 1 + later - up
        self.want(least < most, f"clock: it was set back by {wall - after:.0f} s, says the machine")
        report = json.loads(self.call("report", "--json", "--accept-inconclusive", run))
        moved = [float(n["text"].split(" moved by ")[1].split()[0]) for n in report["notes"] if n["code"] == "wall-clock-step"]
        self.row["mid: wall clock moved by, s"] = ", ".join(map(str, moved)) or "not noted"
        self.want(len(moved) == 1 and least - 0.1 <= -moved[0] <= most + 0.1, f"clock: noted as moved by {moved} s, want once, back by {least:.2f} to {most:.2f}")
        with (run / "events.jsonl").open() as f:
            offsets = {e["wall_ns"] - e["mono_ns"] for e in map(json.loads, f) if e["wall_ns"] is not None}
        self.want(len(offsets) == 1, f"clock: times of day lie {len(offsets)} differences from the monotonic ones, want one")
        self.want(all(wall - later - 0.1 <= o / 1e9 <= wall + 1 - up + 0.1 for o in offsets), f"clock: times of day are not those of the clock before, {wall - up:.2f}: {sorted(offsets)[:3]}")
        self.want(any(q["visits"] for q in report["requests"]), "clock: no visit to judge")
        back = [what for q in report["requests"] for what in self.backwards(q)]
        self.want(not back, f"clock: {len(back)} visits and hops go backwards: {back[:3]}")

    @staticmethod
    def backwards(request):
        """The visits and hops of a request in which something is before what it comes after."""
        parts = [("arrival", "ready", "start", "finish", "departure"), ("send", "recv")]
        for names, of in zip(parts, (request["visits"], request["hops"])):
            for one in of:
                at = [one[n]["ns"] for n in names if one[n]["ns"] is not None]
                if at != sorted(at):
                    yield f"{request['request_id']}: {names}: {at}"

    def bases(self, run):
        """Counts the unix streams that were sent on, those whose position at the reader the collector
        found without looking at the content, and those for which that is not 0."""
        base, unix, senders = {}, set(), set()
        for line in self.call("dump", run).splitlines():
            d = json.loads(line)
            r = d["record"]
            if d["kind"] == "endpoint" and r["Transport"] == UNIX and (r["Path"] or r["PeerPath"]):
                unix.add(r["ID"])
            elif d["kind"] == "base" and r["Votes"] > r["Against"]:
                base[r["Sender"]] = r["Base"]
            elif d["kind"] == "io" and r["Dir"] == SEND and r["Ret"] > 0:
                senders.add(r["EP"])
        sent = unix & senders
        return len(sent & base.keys()), len(sent), sum(base.get(e, 0) != 0 for e in sent)

    def ring(self):
        """Compares each end of each message with what the program says. An exact time is taken in the
        trap that follows the write, before the thread goes on, so it needs no tolerance."""
        run, truth = self.where / "ring/run", read(self.where / "ring/truth.jsonl").splitlines()
        if not self.want(run.exists() and len(truth) == self.ring_messages + 1, "ring: no run or no truth"):
            return
        there, back = json.loads(truth[0])["pids"]
        ends = {("put", there, SEND), ("taken", back, RECV), ("put_back", back, SEND), ("got", there, RECV)}
        found, other = {}, 0
        for line in self.call("dump", run).splitlines():
            d = json.loads(line)
            r = d["record"]
            if d["kind"] == "message" and r["Proto"] == "shm-ring":
                ids = r["IDs"] or []
                other += len(ids) != 1
                for i in ids:
                    found.setdefault((r["TGID"], r["Dir"], i["Value"]), []).append((r["FirstEnterNS"], r["LastExitNS"]))
        exact = missed = outside = watched = 0
        late = []
        for i, line in enumerate(truth[1:]):
            t = json.loads(line)
            for name, pid, way in ends:
                got = found.get((pid, way, t["id"]), [])
                if not got:
                    missed += 1
                    continue
                (lo, hi), (before, after) = got[0], t[name]
                exact += lo == hi
                outside += lo > after or hi < before
                watched += i % 10 < WATCHED
                if lo != hi and i % 10 < WATCHED:
                    late.append(f"{name} of message {i}: {hi - lo} ns")
        invented = other + sum(map(len, found.values())) - (4 * self.ring_messages - missed)
        self.row["ring: ends missed/invented"] = f"{missed}/{invented}"
        self.row["ring: exact, outside"] = f"{exact} of {4 * self.ring_messages}, {outside}"
        self.want(missed == 0 and invented == 0, f"ring: {missed} ends missed, {invented} invented")
        self.want(len(late) * LATE_PART <= watched, f"ring: {len(late)} of {watched} watched ends have no exact time: {late[:5]}")
        self.want(outside == 0, f"ring: {outside} times lie outside those before and after the write")

    def call(self, *args):
        return subprocess.run([self.tool, *map(str, args)], check=True, capture_output=True, text=True).stdout


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--stageline", required=True)
    p.add_argument("--requests", type=int, required=True)
    p.add_argument("--ring-messages", type=int, required=True)
    p.add_argument("results", nargs="+", type=pathlib.Path)
    a = p.parse_args()
    machines = [Machine(r, a.stageline, a.requests, a.ring_messages) for r in a.results]
    for m in machines:
        m.judge()
    names = list(dict.fromkeys(k for m in machines for k in m.row))
    width = max(map(len, names))
    print(f"{'kernel':{width}}  " + "  ".join(f"{m.release:26}" for m in machines))
    for name in names:
        print(f"{name:{width}}  " + "  ".join(f"{m.row.get(name, '-'):26}" for m in machines).rstrip())
    for m in machines:
        print(f"{m.release} lacks: {m.lacks}")
    for m in machines:
        for w in m.wrong:
            print(f"WRONG  {m.release}: {w}")
    failed = sum(bool(m.wrong) for m in machines)
    print(f"{len(machines) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
