package run

var _ Sink = (*Writer)(nil)

// Endpoint writes a record. Like all sink methods it copies what it is given and returns at once;
// when a block is full it passes it to the kernel.
func (w *Writer) Endpoint(r *Endpoint) {
	w.mu.Lock()
	w.spool.begin(kindEndpoint).endpoint(r)
	w.spool.end(r.FirstNS)
	w.mu.Unlock()
}

func (w *Writer) IO(r *IO) {
	w.mu.Lock()
	w.spool.begin(kindIO).io(r)
	w.spool.end(r.ExitNS)
	w.mu.Unlock()
}

func (w *Writer) Message(r *Message) {
	w.mu.Lock()
	w.spool.begin(kindMessage).message(r)
	w.spool.end(r.LastExitNS)
	w.mu.Unlock()
}

func (w *Writer) Gap(r *Gap) {
	w.mu.Lock()
	w.spool.begin(kindGap).gap(r)
	w.spool.end(r.AtNS)
	w.mu.Unlock()
}

func (w *Writer) Base(r *Base) {
	w.mu.Lock()
	w.spool.begin(kindBase).baseOf(r)
	w.spool.end(r.LastNS)
	w.mu.Unlock()
}

func (w *Writer) Shm(r *Shm) {
	w.mu.Lock()
	w.spool.begin(kindShm).shm(r)
	w.spool.end(r.ExitNS)
	w.mu.Unlock()
}

func (w *Writer) OffCPU(r *OffCPU) {
	w.mu.Lock()
	w.spool.begin(kindOffCPU).offCPU(r)
	w.spool.end(r.InNS)
	w.mu.Unlock()
}

// Proc redacts the command line once more: the schema promises it, whoever filled the record.
func (w *Writer) Proc(r *Proc) {
	clean := *r
	clean.Cmdline = clip(Redact(r.Cmdline))
	w.mu.Lock()
	w.spool.begin(kindProc).proc(&clean)
	w.spool.end(r.AtNS)
	w.mu.Unlock()
}

func (w *Writer) Net(r *Net) {
	w.mu.Lock()
	w.spool.begin(kindNet).net(r)
	w.spool.end(r.AtNS)
	w.mu.Unlock()
}

func (w *Writer) Loss(r *Loss) {
	w.mu.Lock()
	w.spool.begin(kindLoss).loss(r)
	w.spool.end(r.ToNS)
	w.mu.Unlock()
}

func (w *Writer) Note(r *Note) {
	w.mu.Lock()
	w.spool.begin(kindNote).note(r)
	w.spool.end(r.AtNS)
	w.mu.Unlock()
}
