package run

import "github.com/stageline/stageline/collector/run/table"

// columns reads or writes the columns of one record in a table. Each kind has one method that names
// its columns in order and serves all directions, so that writer, reader and schema cannot disagree.
// A field that is added with a new minor version of the schema is a column behind a call of later;
// where a file lacks it, it is 0 or "".
//
// All numbers are 64-bit integers; unsigned ones keep their bits. Unknown is stated as in the record
// (0 for a time, -1 for a count).
type columns struct {
	declared []table.Column // filled when neither w nor r is set
	w        *table.Writer
	r        *table.Reader
	added    bool // the columns declared now are of a later version than 1.2
	k        int  // next column
	bad      bool // read: a value that no writer can have produced
}

// later says that the following columns were added after schema 1.2.
func (c *columns) later() { c.added = true }

// How a column is stored.
const (
	varied = false
	few    = true // few different values
)

func num[T ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~int32 | ~int64](c *columns, name string, repeats bool, p *T) {
	switch {
	case c.w != nil:
		c.w.Int(c.k, int64(*p))
	case c.r != nil:
		v := c.r.Int(c.k)
		*p = T(v)
		if int64(*p) != v {
			c.bad = true
		}
	default:
		c.declared = append(c.declared, table.Column{Name: name, Repeats: repeats, Later: c.added})
	}
	c.k++
}

func (c *columns) text(name string, repeats bool, p *string) {
	switch {
	case c.w != nil:
		c.w.Text(c.k, *p)
	case c.r != nil:
		*p = c.r.Text(c.k)
	default:
		c.declared = append(c.declared, table.Column{Name: name, Text: true, Repeats: repeats, Later: c.added})
	}
	c.k++
}

func (c *columns) flag(name string, p *bool) {
	var v uint8
	if *p {
		v = 1
	}
	num(c, name, few, &v)
	*p = v != 0
	c.bad = c.bad || v > 1
}

func (c *columns) endpoint(r *Endpoint) {
	num(c, "endpoint", varied, &r.ID)
	num(c, "transport", few, &r.Transport)
	num(c, "inode", varied, &r.Inode)
	num(c, "peer_inode", varied, &r.PeerInode)
	num(c, "netns", few, &r.NetNS)
	c.text("local", few, &r.Local)
	c.text("remote", few, &r.Remote)
	c.text("path", few, &r.Path)
	c.text("peer_path", few, &r.PeerPath)
	num(c, "first_ns", varied, &r.FirstNS)
	c.flag("pos_absolute", &r.PosAbsolute)
}

func (c *columns) io(r *IO) {
	num(c, "enter_ns", varied, &r.EnterNS)
	num(c, "exit_ns", varied, &r.ExitNS)
	num(c, "tgid", few, &r.TGID)
	num(c, "tid", few, &r.TID)
	num(c, "fd", few, &r.FD)
	num(c, "call", few, &r.Call)
	num(c, "dir", few, &r.Dir)
	num(c, "endpoint", few, &r.EP)
	num(c, "ret", few, &r.Ret)
	num(c, "pos", varied, &r.Pos)
	num(c, "captured", few, &r.Captured)
	num(c, "queued", few, &r.Queued)
}

func (c *columns) message(r *Message) {
	num(c, "endpoint", few, &r.EP)
	num(c, "dir", few, &r.Dir)
	num(c, "pos", varied, &r.Pos)
	num(c, "end_pos", varied, &r.End)
	num(c, "first_enter_ns", varied, &r.FirstEnterNS)
	num(c, "first_exit_ns", varied, &r.FirstExitNS)
	num(c, "last_enter_ns", varied, &r.LastEnterNS)
	num(c, "last_exit_ns", varied, &r.LastExitNS)
	num(c, "tgid", few, &r.TGID)
	num(c, "tid", few, &r.TID)
	c.text("proto", few, &r.Proto)
	c.text("type", few, &r.Type)
	num(c, "exchange", few, &r.Exchange)
	c.text("from_stage", few, &r.From)
	c.text("to_stage", few, &r.To)
	num(c, "chunk", few, &r.Chunk)
	num(c, "bytes", few, &r.Bytes)
	num(c, "status", few, &r.Status)
	num(c, "flags", few, &r.Flags)
	c.text("decoder", few, &r.Decoder)
}

func (c *columns) idRef(r *IDRef) {
	c.text("field", few, &r.Field)
	c.text("value", few, &r.Value)
}

func (c *columns) shmRef(r *ShmRef) {
	c.text("name", few, &r.Name)
	num(c, "size", few, &r.Size)
}

func (c *columns) gap(r *Gap) {
	num(c, "endpoint", few, &r.EP)
	num(c, "dir", few, &r.Dir)
	num(c, "pos", varied, &r.Pos)
	num(c, "end_pos", varied, &r.End)
	num(c, "at_ns", varied, &r.AtNS)
	num(c, "cause", few, &r.Cause)
}

func (c *columns) baseOf(r *Base) {
	num(c, "sender", varied, &r.Sender)
	num(c, "receiver", varied, &r.Receiver)
	num(c, "base", varied, &r.Base)
	num(c, "votes", varied, &r.Votes)
	num(c, "against", varied, &r.Against)
	num(c, "first_ns", varied, &r.FirstNS)
	num(c, "last_ns", varied, &r.LastNS)
}

func (c *columns) shm(r *Shm) {
	num(c, "enter_ns", varied, &r.EnterNS)
	num(c, "exit_ns", varied, &r.ExitNS)
	num(c, "tgid", few, &r.TGID)
	num(c, "tid", few, &r.TID)
	num(c, "op", few, &r.Op)
	num(c, "ret", few, &r.Ret)
	num(c, "dev", few, &r.Dev)
	num(c, "inode", few, &r.Inode)
	c.text("name", few, &r.Name)
	num(c, "addr", few, &r.Addr)
	num(c, "size", few, &r.Size)
	num(c, "flags", few, &r.Flags)
}

func (c *columns) offCPU(r *OffCPU) {
	num(c, "out_ns", varied, &r.OutNS)
	num(c, "wake_ns", varied, &r.WakeNS)
	num(c, "in_ns", varied, &r.InNS)
	num(c, "tgid", few, &r.TGID)
	num(c, "tid", few, &r.TID)
	num(c, "state", few, &r.State)
	num(c, "waker_tgid", few, &r.WakerTGID)
	num(c, "waker_tid", few, &r.WakerTID)
	num(c, "call", few, &r.Call)
	num(c, "arg0", few, &r.Arg0)
	num(c, "arg1", few, &r.Arg1)
}

func (c *columns) proc(r *Proc) {
	num(c, "at_ns", varied, &r.AtNS)
	num(c, "event", few, &r.Event)
	num(c, "tgid", few, &r.TGID)
	num(c, "tid", few, &r.TID)
	num(c, "ppid", few, &r.PPID)
	num(c, "start_boot_ns", few, &r.StartNS)
	num(c, "exit_code", few, &r.ExitCode)
	c.text("comm", few, &r.Comm)
	c.text("exe", few, &r.Exe)
	num(c, "ns_pid", few, &r.NSPID)
	c.flag("target", &r.Target)
}

// procText is one element of a list of a Proc.
type procText struct {
	Field string // "cmdline" | "bound"
	Text  string
}

func (c *columns) procText(r *procText) {
	c.text("field", few, &r.Field)
	c.text("text", varied, &r.Text)
}

func (c *columns) net(r *Net) {
	num(c, "at_ns", varied, &r.AtNS)
	num(c, "event", few, &r.Event)
	num(c, "endpoint", few, &r.EP)
	num(c, "old", few, &r.Old)
	num(c, "new", few, &r.New)
	num(c, "bytes", few, &r.Bytes)
}

func (c *columns) loss(r *Loss) {
	num(c, "from_ns", varied, &r.FromNS)
	num(c, "to_ns", varied, &r.ToNS)
	c.text("reason", few, &r.Reason)
	c.text("what", few, &r.What)
	num(c, "n", varied, &r.N)
	num(c, "bytes", varied, &r.Bytes)
}

func (c *columns) note(r *Note) {
	num(c, "at_ns", varied, &r.AtNS)
	c.text("level", few, &r.Level)
	c.text("code", few, &r.Code)
	c.text("text", varied, &r.Text)
}
