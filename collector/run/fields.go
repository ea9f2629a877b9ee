package run

// The fields of each record kind, in the order they are written.

func (c *codec) header(schema, runID *string, segment *uint32, base *int64) {
	c.text(schema)
	c.text(runID)
	u(c, segment)
	i(c, base)
}

func (c *codec) endpoint(r *Endpoint) {
	u(c, &r.ID)
	u(c, &r.Transport)
	u(c, &r.Inode)
	near(c, &r.PeerInode, r.Inode)
	u(c, &r.NetNS)
	c.text(&r.Local)
	c.text(&r.Remote)
	c.text(&r.Path)
	c.text(&r.PeerPath)
	c.time(&r.FirstNS, 0)
	c.flag(&r.PosAbsolute)
}

func (c *codec) io(r *IO) {
	c.time(&r.EnterNS, 0)
	c.time(&r.ExitNS, r.EnterNS)
	u(c, &r.TGID)
	near(c, &r.TID, r.TGID)
	i(c, &r.FD)
	u(c, &r.Call)
	u(c, &r.Dir)
	u(c, &r.EP)
	i(c, &r.Ret)
	u(c, &r.Pos)
	captured := int64(r.Captured)
	near(c, &captured, r.Ret)
	if c.decode {
		r.Captured = uint32(captured)
		c.bad = c.bad || int64(r.Captured) != captured
	}
	i(c, &r.Queued)
}

func (c *codec) message(r *Message) {
	u(c, &r.EP)
	u(c, &r.Dir)
	u(c, &r.Pos)
	near(c, &r.End, r.Pos)
	c.time(&r.LastExitNS, 0)
	c.time(&r.LastEnterNS, r.LastExitNS)
	c.time(&r.FirstExitNS, r.LastExitNS)
	c.time(&r.FirstEnterNS, r.LastExitNS)
	u(c, &r.TGID)
	near(c, &r.TID, r.TGID)
	c.symbol(&r.Proto)
	c.symbol(&r.Type)
	u(c, &r.Exchange)
	c.symbol(&r.From)
	c.symbol(&r.To)
	i(c, &r.Chunk)
	c.refs(r)
	i(c, &r.Bytes)
	i(c, &r.Status)
	u(c, &r.Flags)
	c.symbol(&r.Decoder)
}

// refs codes what a message names: ids and shared-memory objects.
func (c *codec) refs(r *Message) {
	n := c.count(len(r.IDs), 2)
	if c.decode {
		r.IDs = cut(&c.idSlab, n)
	}
	for k := range r.IDs {
		c.symbol(&r.IDs[k].Field)
		c.symbol(&r.IDs[k].Value)
	}
	n = c.count(len(r.Shm), 2)
	if c.decode {
		r.Shm = cut(&c.shmSlab, n)
	}
	for k := range r.Shm {
		c.symbol(&r.Shm[k].Name)
		i(c, &r.Shm[k].Size)
	}
}

func (c *codec) gap(r *Gap) {
	u(c, &r.EP)
	u(c, &r.Dir)
	u(c, &r.Pos)
	near(c, &r.End, r.Pos)
	c.time(&r.AtNS, 0)
	u(c, &r.Cause)
}

func (c *codec) baseOf(r *Base) {
	u(c, &r.Sender)
	u(c, &r.Receiver)
	i(c, &r.Base)
	u(c, &r.Votes)
	u(c, &r.Against)
	c.time(&r.FirstNS, 0)
	c.time(&r.LastNS, r.FirstNS)
}

func (c *codec) shm(r *Shm) {
	c.time(&r.EnterNS, 0)
	c.time(&r.ExitNS, r.EnterNS)
	u(c, &r.TGID)
	near(c, &r.TID, r.TGID)
	u(c, &r.Op)
	i(c, &r.Ret)
	u(c, &r.Dev)
	u(c, &r.Inode)
	c.symbol(&r.Name)
	u(c, &r.Addr)
	i(c, &r.Size)
	u(c, &r.Flags)
}

func (c *codec) offCPU(r *OffCPU) {
	c.time(&r.OutNS, 0)
	c.time(&r.WakeNS, r.OutNS)
	c.time(&r.InNS, r.OutNS)
	u(c, &r.TGID)
	near(c, &r.TID, r.TGID)
	u(c, &r.State)
	u(c, &r.WakerTGID)
	near(c, &r.WakerTID, r.WakerTGID)
	i(c, &r.Call)
	u(c, &r.Arg0)
	u(c, &r.Arg1)
}

func (c *codec) proc(r *Proc) {
	c.time(&r.AtNS, 0)
	u(c, &r.Event)
	u(c, &r.TGID)
	near(c, &r.TID, r.TGID)
	u(c, &r.PPID)
	i(c, &r.StartNS)
	i(c, &r.ExitCode)
	c.text(&r.Comm)
	c.text(&r.Exe)
	c.texts(&r.Cmdline)
	c.texts(&r.Bound)
	u(c, &r.NSPID)
	c.flag(&r.Target)
}

func (c *codec) net(r *Net) {
	c.time(&r.AtNS, 0)
	u(c, &r.Event)
	u(c, &r.EP)
	u(c, &r.Old)
	u(c, &r.New)
	i(c, &r.Bytes)
}

func (c *codec) loss(r *Loss) {
	c.time(&r.FromNS, 0)
	c.time(&r.ToNS, r.FromNS)
	c.symbol(&r.Reason)
	c.symbol(&r.What)
	u(c, &r.N)
	u(c, &r.Bytes)
}

func (c *codec) note(r *Note) {
	c.time(&r.AtNS, 0)
	c.text(&r.Level)
	c.text(&r.Code)
	c.text(&r.Text)
}
