package run

// rows has one record of each kind, used again and again, and one element of each list in records.
type rows struct {
	endpoint Endpoint
	io       IO
	message  Message
	gap      Gap
	base     Base
	shm      Shm
	offCPU   OffCPU
	proc     Proc
	net      Net
	loss     Loss
	note     Note

	id     IDRef
	shmRef ShmRef
	text   procText
}

// at is the moment of the record of a kind.
func (r *rows) at(kind uint64) int64 {
	switch kind {
	case kindEndpoint:
		return r.endpoint.FirstNS
	case kindIO:
		return r.io.ExitNS
	case kindMessage:
		return r.message.LastExitNS
	case kindGap:
		return r.gap.AtNS
	case kindBase:
		return r.base.LastNS
	case kindShm:
		return r.shm.ExitNS
	case kindOffCPU:
		return r.offCPU.InNS
	case kindProc:
		return r.proc.AtNS
	case kindNet:
		return r.net.AtNS
	case kindLoss:
		return r.loss.ToNS
	case kindNote:
		return r.note.AtNS
	}
	return 0
}

// pass gives the record of a kind to a sink.
func (r *rows) pass(kind uint64, sink Sink) {
	switch kind {
	case kindEndpoint:
		sink.Endpoint(&r.endpoint)
	case kindIO:
		sink.IO(&r.io)
	case kindMessage:
		sink.Message(&r.message)
	case kindGap:
		sink.Gap(&r.gap)
	case kindBase:
		sink.Base(&r.base)
	case kindShm:
		sink.Shm(&r.shm)
	case kindOffCPU:
		sink.OffCPU(&r.offCPU)
	case kindProc:
		sink.Proc(&r.proc)
	case kindNet:
		sink.Net(&r.net)
	case kindLoss:
		sink.Loss(&r.loss)
	case kindNote:
		sink.Note(&r.note)
	}
}

// taker is a Sink that takes all kinds by one function. The rows it is given hold the record.
type taker struct {
	rows
	take func(kind uint64)
}

func (t *taker) Endpoint(r *Endpoint) { t.endpoint = *r; t.take(kindEndpoint) }
func (t *taker) IO(r *IO)             { t.io = *r; t.take(kindIO) }
func (t *taker) Message(r *Message)   { t.message = *r; t.take(kindMessage) }
func (t *taker) Gap(r *Gap)           { t.gap = *r; t.take(kindGap) }
func (t *taker) Base(r *Base)         { t.base = *r; t.take(kindBase) }
func (t *taker) Shm(r *Shm)           { t.shm = *r; t.take(kindShm) }
func (t *taker) OffCPU(r *OffCPU)     { t.offCPU = *r; t.take(kindOffCPU) }
func (t *taker) Proc(r *Proc)         { t.proc = *r; t.take(kindProc) }
func (t *taker) Net(r *Net)           { t.net = *r; t.take(kindNet) }
func (t *taker) Loss(r *Loss)         { t.loss = *r; t.take(kindLoss) }
func (t *taker) Note(r *Note)         { t.note = *r; t.take(kindNote) }
