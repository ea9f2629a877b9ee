package correlate

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// ProcInfo is what is known of a process when its stage is named.
type ProcInfo struct {
	TGID, PPID, NSPID uint32
	Comm, Exe         string
	Cmdline           []string
	Bound             []string // unix paths and "tcp:ip:port" it has bound or listens on
	Target            bool
}

// process is one life of a process id.
type process struct {
	ProcInfo
	startNS   int64
	fromNS    int64
	toNS      int64 // exit; 0 alive
	exitCode  int32
	threads   map[uint32]*thread
	handOuts  []int64              // CPU time of the loop from being switched in to waking another thread, ns
	perSignal map[string]perSignal // by message type
	takeN     int                  // samples that takeNS was computed from
	takeNS    int64
	roles     roleStats
	steps     stepStats
	inHand    inHandStats
	stated    map[string]int // stage names that its own messages give it
	entry     bool           // received a request over HTTP from outside
	nEntry    int
	named     *stageName
	arrivals  []arrival          // data messages it received, by time
	sends     []arrival          // data messages it sent, by the time they were begun
	locks     map[uint64]lockUse // futex address → threads that waited on it
	conds     []uint64           // condition variables that several threads wait on
}

// sentBetween counts the data messages that left from since on and before m; those that left in
// the same call are in the order of their stream.
func (x *process) sentBetween(since int64, m *run.Message) (n int) {
	at := cmp.Or(m.FirstEnterNS, messageNS(m))
	for _, a := range x.sentIn(since, at) {
		if a.ns < at || a.ep == m.EP && a.pos < m.Pos {
			n++
		}
	}
	return n
}

// sentIn are the data messages that left in [since, until].
func (x *process) sentIn(since, until int64) []arrival {
	to := len(x.sends) // most ask for the last few of thousands
	for to > 0 && x.sends[to-1].ns > until {
		to--
	}
	from := to
	for from > 0 && x.sends[from-1].ns >= since {
		from--
	}
	return x.sends[from:to]
}

// insertArrival keeps a list in order. Messages come in that of their last byte, so that most find
// their place at the end or a few steps before it.
func insertArrival(l []arrival, a arrival) []arrival {
	l = append(l, a)
	for i := len(l) - 1; i > 0 && l[i-1].ns > a.ns; i-- {
		l[i], l[i-1] = l[i-1], a
	}
	return l
}

// arrival is a data message with ids coming into a process, or leaving it.
type arrival struct {
	ns  int64
	ep  uint32
	pos uint64
	typ string
}

// arrivedSince counts the data messages that came in from since on and before m; those that came in
// the same call are in the order of their stream.
func (x *process) arrivedSince(since int64, m *run.Message) (n int) {
	for i := len(x.arrivals) - 1; i >= 0 && x.arrivals[i].ns >= since; i-- {
		a := x.arrivals[i]
		if a.ns < m.LastExitNS || a.ns == m.LastExitNS && (a.ep < m.EP || a.ep == m.EP && a.pos < m.Pos) {
			n++
		}
	}
	return n
}

// arrivedBetween counts the data messages that came in from since on and before ns.
func (x *process) arrivedBetween(since, ns int64) (n int) {
	for i := len(x.arrivals) - 1; i >= 0 && x.arrivals[i].ns >= since; i-- {
		if x.arrivals[i].ns < ns {
			n++
		}
	}
	return n
}

// procTable finds the process that had an id at a moment.
type procTable struct {
	byTGID map[uint32][]*process
	// inside counts calls on eventfds and self-pipes by endpoint, to learn who signals whom.
}

// at returns the process that had tgid at ns, making one when none was announced. The process of
// tgid 0 stands for an unknown one and is in no table.
func (p *procTable) at(tgid uint32, ns int64) *process {
	if tgid == 0 {
		x := newProcess(0)
		x.Comm = "unknown"
		return x
	}
	l := p.byTGID[tgid]
	for i := len(l) - 1; i >= 0; i-- {
		if l[i].fromNS <= ns || i == 0 {
			return l[i]
		}
	}
	return p.add(tgid, 0)
}

func (p *procTable) add(tgid uint32, from int64) *process {
	x := newProcess(from)
	x.TGID = tgid
	p.byTGID[tgid] = append(p.byTGID[tgid], x)
	return x
}

func newProcess(from int64) *process {
	x := &process{fromNS: from, threads: map[uint32]*thread{}, stated: map[string]int{}}
	x.roles.init()
	return x
}

// event applies a life-cycle record. Records come in time order.
func (p *procTable) event(r *run.Proc) {
	l := p.byTGID[r.TGID]
	var x *process
	if len(l) > 0 {
		x = l[len(l)-1]
	}
	switch r.Event {
	case run.ProcSeen, run.ProcFork:
		if x == nil || x.toNS != 0 || reused(x, r) {
			x = p.add(r.TGID, r.AtNS)
			if len(l) == 0 {
				x.fromNS = 0 // records of the snapshot may trail the first calls
			}
		}
		x.learn(r)
	case run.ProcExec, run.ProcRename:
		if x == nil {
			x = p.add(r.TGID, 0)
		}
		if r.Event == run.ProcExec || r.TID == r.TGID {
			x.learn(r)
		}
	case run.ProcExit:
		if x != nil && r.TID == r.TGID && x.toNS == 0 {
			x.toNS, x.exitCode = r.AtNS, r.ExitCode
		}
	}
}

// reused reports that the record speaks of another process than x under the same id.
func reused(x *process, r *run.Proc) bool {
	if r.Event == run.ProcFork && x.startNS != 0 {
		return true
	}
	return x.startNS != 0 && r.StartNS != 0 && x.startNS != r.StartNS
}

func (x *process) learn(r *run.Proc) {
	if r.PPID != 0 {
		x.PPID = r.PPID
	}
	if r.StartNS != 0 {
		x.startNS = r.StartNS
	}
	if r.NSPID != 0 {
		x.NSPID = r.NSPID
	}
	if r.Comm != "" {
		x.Comm = r.Comm
	}
	if r.Exe != "" {
		x.Exe = r.Exe
	}
	if len(r.Cmdline) > 0 {
		x.Cmdline = r.Cmdline
	}
	for _, b := range r.Bound {
		x.bind(b)
	}
	x.Target = x.Target || r.Target
	x.named = nil
}

// bind notes an address that the process owns.
func (x *process) bind(b string) {
	if b != "" && len(x.Bound) < 64 && !slices.Contains(x.Bound, b) {
		x.Bound = append(x.Bound, b)
		x.named = nil
	}
}

// stageName is the resolved name of a process's main stage.
type stageName struct{ name, rule, engine string }

// entryWords are names by which engines call their front in message fields: they speak of the
// entry process, not of a stage beside it.
var entryWords = map[string]bool{
	"api": true, "coordinator": true, "client": true, "frontend": true, "router": true,
	"orchestrator": true, "server": true, "entry": true, "main": true,
}

// stage names the main stage of a process: the user's rule, the engine's rule, the one name its
// messages give it, else the process itself.
func (t *Timeline) stage(x *process) stageName {
	if x.named != nil {
		return *x.named
	}
	n := t.nameStage(x)
	x.named = &n
	return n
}

func (t *Timeline) nameStage(x *process) stageName {
	for _, o := range t.opt.Overrides {
		if o.Match != nil && o.Match(x.ProcInfo) {
			return stageName{o.Name, "user", ""}
		}
	}
	var engine string
	if t.opt.StageOf != nil {
		name, rule, eng := t.opt.StageOf(x.ProcInfo)
		if name != "" && rule != "process" {
			return stageName{withoutReplica(name), rule, eng}
		}
		engine = eng
	}
	if x.entry {
		return stageName{"api", "listening HTTP socket", engine}
	}
	if name := mainName(x.stated); name != "" {
		return stageName{name, "message field", engine}
	}
	return stageName{processName(x), "process", engine}
}

// withoutReplica cuts the number of a replica off a name ("vocoder@r1"): replicas are one stage.
func withoutReplica(name string) string {
	if i := strings.LastIndex(name, "@r"); i > 0 && digits(name[i+2:]) {
		return name[:i]
	}
	return name
}

// mainName is the name stated most often; ties go to the first in the alphabet.
func mainName(stated map[string]int) string {
	best, n := "", 0
	for name, k := range stated {
		if k > n || (k == n && name < best) {
			best, n = name, k
		}
	}
	return best
}

func processName(x *process) string {
	name := x.Comm
	if name == "" && x.Exe != "" {
		name = path.Base(x.Exe)
	}
	if name == "" {
		name = "process"
	}
	return fmt.Sprintf("%s[%d]", name, x.TGID)
}

// hosts lists the stages of a process: its main stage and others that its messages name.
func (t *Timeline) hosts(x *process) []string {
	main := t.stage(x)
	out := []string{main.name}
	for name := range x.stated {
		if name != main.name && t.mayHost(x, main, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out[1:])
	return out
}

// mayHost rejects names that a process only passes on for another, or calls its own front by.
func (t *Timeline) mayHost(x *process, main stageName, name string) bool {
	if x.entry && entryWords[strings.ToLower(name)] {
		return false
	}
	if x.stated[name]*50 < x.stated[main.name] {
		return false
	}
	for _, l := range t.procs.byTGID {
		for _, y := range l {
			if y == x {
				continue
			}
			if n := t.stage(y); n.name == name && n.rule != "process" {
				return false
			}
		}
	}
	return true
}

// stageAt resolves the stage of one end of a message: the stated name where that process may host
// it, else the process's main stage.
func (t *Timeline) stageAt(x *process, stated string) string {
	main := t.stage(x)
	stated = withoutReplica(stated)
	if stated != "" && stated != main.name && x.stated[stated] > 0 && t.mayHost(x, main, stated) {
		return stated
	}
	return main.name
}

// sorted lists all processes in a fixed order.
func (p *procTable) sorted() []*process {
	var out []*process
	for _, l := range p.byTGID {
		out = append(out, l...)
	}
	slices.SortFunc(out, func(a, b *process) int {
		if a.TGID != b.TGID {
			return int(int64(a.TGID) - int64(b.TGID))
		}
		return int(min(max(a.fromNS-b.fromNS, -1), 1))
	})
	return out
}
