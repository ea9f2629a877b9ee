# SPDX-License-Identifier: Apache-2.0
"""The configuration file of one stage process, as conf.go writes it."""
from dataclasses import dataclass, field

API, PREPROCESS, ENCODE, JOIN, THINK, TALK, VOCODE = range(7)
UNIX, TCP, PIPE, MEMORY, SHM, TEXT = range(6)
F_MAP, F_ARRAY, F_PICKLE, F_NDJSON = range(4)
INLINE, ANON, NAMED, POLLED = range(4)


@dataclass
class Edge:
    src: int
    dst: int
    carrier: int
    framing: int
    data: int


@dataclass
class Stage:
    name: str
    role: int
    procs: list
    cpu: int = 0
    base_ns: int = 0
    tail: int = 0
    tail_mult: int = 1
    per_seq_ns: int = 0
    workers: int = 1
    backlog: int = 1
    batch: int = 1
    filler: int = 0
    ack_first: int = 0
    self_pipe: int = 0


@dataclass
class Conf:
    seed: int = 0
    proc: int = 0
    noise: int = 0
    replica: int = 0
    tcp: int = 0
    text: str = ""
    tag: str = ""                                 # in the names of this run's segments
    stall: int = 0
    repeat: int = 0
    drop: int = -1
    kill: tuple = (-1, 0)
    slow: tuple = (-1, -1, 0)
    stages: dict = field(default_factory=dict)
    edges: list = field(default_factory=list)
    own: dict = field(default_factory=dict)       # stage -> path of its socket
    peers: dict = field(default_factory=dict)     # (proc, carrier) -> address
    pipes_out: dict = field(default_factory=dict) # proc -> fd
    pipes_in: list = field(default_factory=list)

    def edge(self, src, dst):
        return next((e for e in self.edges if e.src == src and e.dst == dst), None)

    def inputs(self, stage):
        return sum(e.dst == stage for e in self.edges)

    def wire_name(self, stage):
        s = self.stages[stage]
        return f"{s.name}@r{self.replica}" if len(s.procs) > 1 else s.name

    def find(self, name):
        """Stage index and replica of a name on the wire; the API without one."""
        base, _, rep = name.partition("@r")
        for i, s in self.stages.items():
            if s.name == base:
                return i, int(rep or 0)
        return 0, 0


def _stage(c, a):
    c.stages[int(a[0])] = Stage(a[1], int(a[2]), [int(p) for p in a[3:5] if p != "-1"])


def _service(c, a):
    s = c.stages[int(a[0])]
    v = [int(x) for x in a[1:]]
    s.cpu, s.base_ns, s.tail, s.tail_mult, s.per_seq_ns = v[0], v[1] * 1000, v[2], v[3], v[4] * 1000
    s.workers, s.backlog, s.batch, s.filler, s.ack_first, s.self_pipe = v[5:11]


def _own(c, a):
    c.own[int(a[0])] = a[2]
    c.replica = int(a[1])


def read(path):
    c = Conf()
    scalars = {"seed", "proc", "noise", "tcp", "stall", "repeat", "drop"}
    for line in open(path):
        key, *a = line.split()
        if key in scalars:
            setattr(c, key, int(a[0]))
        elif key in ("kill", "slow"):
            setattr(c, key, tuple(int(x) for x in a))
        elif key in ("text", "tag"):
            setattr(c, key, a[0])
        elif key == "stage":
            _stage(c, a)
        elif key == "service":
            _service(c, a)
        elif key == "edge":
            c.edges.append(Edge(*(int(x) for x in a)))
        elif key == "own":
            _own(c, a)
        elif key == "peer":
            c.peers[int(a[0]), UNIX] = "ipc://" + a[1]
        elif key == "peertcp":
            c.peers[int(a[0]), TCP] = "tcp://127.0.0.1:" + a[1]
        elif key == "pipeout":
            c.pipes_out[int(a[0])] = int(a[1])
        elif key == "pipein":
            c.pipes_in.append(int(a[0]))
    return c
