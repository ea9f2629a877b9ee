package correlate

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// A trace is a small recording in text, one record a line; times are microseconds.
//
//	proc PID COMM [at=T] [start=N] [bound=PATH]     exit PID T      fork PID COMM at=T start=N
//	unix A B | tcp A B | pipe A                     a channel of two endpoints, of one pipe
//	client A                                        a TCP endpoint whose peer is outside
//	send|recv EP PID[.TID] T0-T1 POS+LEN TYPE [id=…] [chunk=N] [from=…] [to=…] [shm=NAME:SIZE] [x=N] [status=N] [flags=…]
//	shm PID[.TID] OP T0-T1 NAME [ino=N] [size=N] [ret=N] [creat]
//	off PID.TID OUT-WAKE-IN by=PID.TID call=N [arg=N] [state=preempted]
//	io send|recv EP PID[.TID] T0-T1 POS+LEN         a call without message
//	base S R N | loss T0-T1 REASON WHAT N | gap EP send|recv T POS+LEN
type trace struct {
	t    *testing.T
	sink run.Sink
}

func feed(t *testing.T, s run.Sink, text string) {
	t.Helper()
	tr := trace{t, s}
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		if f := strings.Fields(line); len(f) > 0 {
			tr.line(f)
		}
	}
}

func (tr trace) line(f []string) {
	tr.t.Helper()
	opt := map[string]string{}
	var a []string
	for _, w := range f {
		if k, v, ok := strings.Cut(w, "="); ok {
			opt[k] = v
		} else {
			a = append(a, w)
		}
	}
	switch a[0] {
	case "proc", "fork", "exit":
		tr.proc(a, opt)
	case "unix", "tcp", "pipe", "client":
		tr.channel(a, opt)
	case "send", "recv":
		tr.message(a, opt)
	case "io":
		t0, t1 := tr.span(a[4])
		pos, n := tr.extent(a[5])
		pid, tid := tr.pid(a[3])
		tr.sink.IO(&run.IO{EP: uint32(tr.n(a[2])), Dir: dirOf(a[1]), TGID: pid, TID: tid, EnterNS: t0, ExitNS: t1, Pos: pos, Ret: int64(n), Queued: -1})
	case "shm":
		tr.shm(a, opt)
	case "off":
		tr.off(a, opt)
	case "base":
		tr.sink.Base(&run.Base{Sender: uint32(tr.n(a[1])), Receiver: uint32(tr.n(a[2])), Base: tr.n(a[3]), Votes: 3})
	case "loss":
		t0, t1 := tr.span(a[1])
		tr.sink.Loss(&run.Loss{FromNS: t0, ToNS: t1, Reason: a[2], What: a[3], N: uint64(tr.n(a[4]))})
	case "gap":
		pos, n := tr.extent(a[4])
		tr.sink.Gap(&run.Gap{EP: uint32(tr.n(a[1])), Dir: dirOf(a[2]), AtNS: tr.us(a[3]), Pos: pos, End: pos + n, Cause: run.GapLost})
	default:
		tr.t.Fatalf("unknown line %q", f)
	}
}

func (tr trace) n(s string) int64 {
	tr.t.Helper()
	v, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		tr.t.Fatal(err)
	}
	return v
}

const baseNS = 1_000_000_000_000

func (tr trace) us(s string) int64 {
	tr.t.Helper()
	if s == "" || s == "?" {
		return 0
	}
	return baseNS + tr.n(s)*1000
}

func (tr trace) span(s string) (int64, int64) {
	a, b, _ := strings.Cut(s, "-")
	return tr.us(a), tr.us(b)
}

func (tr trace) extent(s string) (uint64, uint64) {
	a, b, _ := strings.Cut(s, "+")
	return uint64(tr.n(a)), uint64(tr.n(b))
}

// pid reads PID or PID.TID.
func (tr trace) pid(s string) (uint32, uint32) {
	a, b, ok := strings.Cut(s, ".")
	if !ok {
		b = a
	}
	return uint32(tr.n(a)), uint32(tr.n(b))
}

func dirOf(s string) run.Dir {
	if s == "send" {
		return run.Send
	}
	return run.Recv
}

func (tr trace) proc(a []string, opt map[string]string) {
	pid := uint32(tr.n(a[1]))
	p := run.Proc{TGID: pid, TID: pid, Event: run.ProcSeen, AtNS: baseNS}
	switch a[0] {
	case "exit":
		p.Event, p.AtNS = run.ProcExit, tr.us(a[2])
		tr.sink.Proc(&p)
		return
	case "fork":
		p.Event = run.ProcFork
	}
	p.Comm = a[2]
	if opt["at"] != "" {
		p.AtNS = tr.us(opt["at"])
	}
	if opt["start"] != "" {
		p.StartNS = tr.n(opt["start"])
	}
	if opt["bound"] != "" {
		p.Bound = []string{opt["bound"]}
	}
	tr.sink.Proc(&p)
}

func (tr trace) channel(a []string, opt map[string]string) {
	x := uint32(tr.n(a[1]))
	e := run.Endpoint{ID: x, FirstNS: baseNS}
	switch a[0] {
	case "pipe":
		e.Transport, e.Inode = run.TransportPipe, uint64(x)
		tr.sink.Endpoint(&e)
		return
	case "client":
		e.Transport, e.NetNS, e.PosAbsolute = run.TransportTCP, 1, true
		e.Local, e.Remote = "127.0.0.1:8000", fmt.Sprintf("127.0.0.1:%d", 40000+x)
		tr.sink.Endpoint(&e)
		return
	}
	y := uint32(tr.n(a[2]))
	p := e
	p.ID = y
	if a[0] == "unix" {
		e.Transport, p.Transport = run.TransportUnix, run.TransportUnix
		e.Inode, e.PeerInode = uint64(x)+1000, uint64(y)+1000
		p.Inode, p.PeerInode = e.PeerInode, e.Inode
	} else {
		e.Transport, p.Transport = run.TransportTCP, run.TransportTCP
		e.NetNS, p.NetNS, e.PosAbsolute, p.PosAbsolute = 1, 1, true, true
		e.Local, e.Remote = fmt.Sprintf("127.0.0.1:%d", 50000+x), "127.0.0.1:9000"
		p.Local, p.Remote = e.Remote, e.Local
	}
	tr.sink.Endpoint(&e)
	tr.sink.Endpoint(&p)
}

var flagNames = map[string]run.MsgFlags{
	"first": run.MsgFirst, "last": run.MsgLast, "trunc": run.MsgTruncated, "guess": run.MsgGuessed,
	"batch": run.MsgDuplicateID, "resync": run.MsgResynced, "coalesced": run.MsgCoalesced,
}

func (tr trace) message(a []string, opt map[string]string) {
	m := run.Message{EP: uint32(tr.n(a[1])), Dir: dirOf(a[0]), Chunk: -1, Proto: "zmtp", Type: strings.ReplaceAll(a[5], "_/", " /")}
	m.TGID, m.TID = tr.pid(a[2])
	m.FirstEnterNS, m.LastExitNS = tr.span(a[3])
	m.FirstExitNS, m.LastEnterNS = m.LastExitNS, m.FirstEnterNS
	pos, n := tr.extent(a[4])
	m.Pos, m.End, m.Bytes = pos, pos+n, int64(n)
	for i, id := range strings.Split(opt["id"], ",") {
		if id != "" {
			m.IDs = append(m.IDs, run.IDRef{Field: []string{"request_id", "object_id", "other"}[min(i, 2)], Value: id})
		}
	}
	for _, id := range strings.Split(opt["batch"], ",") {
		if id != "" {
			m.IDs = append(m.IDs, run.IDRef{Field: "[0]", Value: id})
			m.Flags |= run.MsgDuplicateID
		}
	}
	if opt["chunk"] != "" {
		m.Chunk = tr.n(opt["chunk"])
	}
	m.From, m.To = opt["from"], opt["to"]
	if s := opt["shm"]; s != "" {
		name, size, _ := strings.Cut(s, ":")
		m.Shm = []run.ShmRef{{Name: name, Size: tr.n(size)}}
	}
	if opt["x"] != "" {
		m.Exchange, m.Proto = uint32(tr.n(opt["x"])), "http1"
	}
	if opt["status"] != "" {
		m.Status = int32(tr.n(opt["status"]))
	}
	for _, f := range strings.Split(opt["flags"], ",") {
		m.Flags |= flagNames[f]
	}
	tr.sink.Message(&m)
}

var shmOps = map[string]run.ShmOp{"open": run.ShmOpen, "trunc": run.ShmTruncate, "map": run.ShmMap, "unmap": run.ShmUnmap, "unlink": run.ShmUnlink, "flock": run.ShmFlock,
	"unlock": run.ShmFlock, "rename": run.ShmRename, "seen": run.ShmSeen}

func (tr trace) shm(a []string, opt map[string]string) {
	s := run.Shm{Op: shmOps[a[2]], Name: a[4], Size: -1}
	s.TGID, s.TID = tr.pid(a[1])
	s.EnterNS, s.ExitNS = tr.span(a[3])
	if opt["ino"] != "" {
		s.Inode = uint64(tr.n(opt["ino"]))
	}
	if opt["size"] != "" {
		s.Size = tr.n(opt["size"])
	}
	if opt["ret"] != "" {
		s.Ret = tr.n(opt["ret"])
	}
	if len(a) > 5 && a[5] == "creat" {
		s.Flags = oCreat
	}
	if len(a) > 5 && a[5] == "excl" {
		s.Flags = oCreat | oExcl
	}
	if a[2] == "unlock" {
		s.Flags = lockUn
	}
	tr.sink.Shm(&s)
}

func (tr trace) off(a []string, opt map[string]string) {
	p := strings.Split(a[2], "-")
	o := run.OffCPU{State: run.OffSleep, OutNS: tr.us(p[0]), WakeNS: tr.us(p[1]), InNS: tr.us(p[2]), Call: -1}
	o.TGID, o.TID = tr.pid(a[1])
	if opt["by"] != "" {
		o.WakerTGID, o.WakerTID = tr.pid(opt["by"])
	}
	if opt["state"] == "preempted" {
		o.State = run.OffPreempted
	}
	if opt["call"] != "" {
		o.Call = int32(tr.n(opt["call"]))
	}
	if opt["arg"] != "" {
		o.Arg0 = uint64(tr.n(opt["arg"]))
	}
	tr.sink.OffCPU(&o)
}

// byComm names stages by the comm of the process, as an engine's rules would by its title.
func byComm(p ProcInfo) (string, string, string) {
	if p.Comm == "python" {
		return "", "", ""
	}
	return p.Comm, "title", "test"
}

func pt(p Point) string {
	us := func(v *int64) string {
		if v == nil {
			return "?"
		}
		return strconv.FormatInt((*v-baseNS)/1000, 10)
	}
	switch p.Timing {
	case TimingSeen:
		return us(p.NS)
	case TimingBounded:
		return us(p.LoNS) + ".." + us(p.HiNS)
	}
	return "?"
}

// rows renders a result for comparison, one line a request, hop and visit.
func rows(r *Result) string {
	var b strings.Builder
	for i := range r.Requests {
		q := &r.Requests[i]
		fmt.Fprintf(&b, "request %s %s entry=%s exit=%s", q.ID, q.State, pt(q.Entry), pt(q.Exit))
		for _, a := range q.Aliases {
			fmt.Fprintf(&b, " %s(%s)", a.Value, a.Reason)
		}
		if q.InFlight {
			b.WriteString(" in-flight")
		}
		b.WriteByte('\n')
		for _, h := range q.Hops {
			fmt.Fprintf(&b, "hop %s[%d]>%s[%d] %s%s %s %s>%s %s", h.From, h.FromTGID, h.To, h.ToTGID, h.Type, chunkText(h.Chunk), h.Via, pt(h.Send), pt(h.Recv), h.Identity)
			if h.Reason != "" {
				fmt.Fprintf(&b, " (%s)", h.Reason)
			}
			b.WriteByte('\n')
		}
		for _, v := range q.Visits {
			if v.Stage == "api" {
				continue
			}
			var in []string
			for _, x := range v.Inputs {
				in = append(in, x.From+chunkText(x.Chunk)+"@"+pt(x.At))
			}
			join := ""
			if v.Join {
				join = " join"
			}
			fmt.Fprintf(&b, "visit %s[%d]%s%s in=%s ready=%s start=%s finish=%s dep=%s %s\n", v.Stage, v.TGID, chunkText(v.Chunk), join,
				strings.Join(in, ","), pt(v.Ready), pt(v.Start), pt(v.Finish), pt(v.Departure), v.Identity)
		}
	}
	return b.String()
}

func chunkText(c *int64) string {
	if c == nil {
		return ""
	}
	return fmt.Sprintf("#%d", *c)
}

// same compares rows, ignoring indentation and blank lines.
func sameRows(t *testing.T, got, want string) {
	t.Helper()
	clean := func(s string) string {
		var out []string
		for _, l := range strings.Split(s, "\n") {
			if l = strings.Join(strings.Fields(l), " "); l != "" {
				out = append(out, l)
			}
		}
		return strings.Join(out, "\n")
	}
	if clean(got) != clean(want) {
		t.Errorf("got\n%s\nwant\n%s", clean(got), clean(want))
	}
}
