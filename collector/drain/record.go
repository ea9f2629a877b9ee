package drain

import (
	"strings"
	"unsafe"

	"github.com/stageline/stageline/bpf"
	"github.com/stageline/stageline/collector/run"
)

// view lays a generated ABI type over a record; nil when the record is too short for it.
func view[T any](b []byte) *T {
	var t T
	if len(b) < int(unsafe.Sizeof(t)) {
		return nil
	}
	return (*T)(unsafe.Pointer(unsafe.SliceData(b)))
}

// dispatch hands one record to its class. False: not a record this program knows.
func (d *Drain) dispatch(b []byte) bool {
	h := view[bpf.StagelineSlHdr](b)
	if h == nil {
		return false
	}
	switch bpf.StagelineSlKind(h.Kind) {
	case bpf.StagelineSlKindSL_KIND_ENDPOINT:
		return d.onEndpoint(view[bpf.StagelineSlEndpoint](b))
	case bpf.StagelineSlKindSL_KIND_IO:
		return d.onIO(view[bpf.StagelineSlIo](b), b)
	case bpf.StagelineSlKindSL_KIND_SHM:
		return d.onShm(b)
	case bpf.StagelineSlKindSL_KIND_OFFCPU:
		return d.onOffCPU(view[bpf.StagelineSlOffcpu](b))
	case bpf.StagelineSlKindSL_KIND_PROC:
		return d.onProc(view[bpf.StagelineSlProc](b))
	case bpf.StagelineSlKindSL_KIND_NET:
		return d.onNet(view[bpf.StagelineSlNet](b))
	}
	return false
}

// onShm: the record is sent without the unused tail of its name.
func (d *Drain) onShm(b []byte) bool {
	const fixed = unsafe.Offsetof(bpf.StagelineSlShm{}.Name)
	if len(b) < int(fixed) {
		return false
	}
	var full bpf.StagelineSlShm
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&full)), unsafe.Sizeof(full)), b)
	n := min(int(full.NameLen), len(b)-int(fixed), len(full.Name))
	d.shm = run.Shm{
		EnterNS: int64(full.EnterNs), ExitNS: int64(full.ExitNs), TGID: full.H.Tgid, TID: full.H.Tid,
		Op: run.ShmOp(full.Op), Ret: full.Ret, Dev: full.Dev, Inode: full.Ino,
		Name: string(b[fixed : int(fixed)+n]), Addr: full.Addr, Size: full.Size, Flags: full.Flags,
	}
	d.cfg.Sink.Shm(&d.shm)
	return true
}

func (d *Drain) onOffCPU(r *bpf.StagelineSlOffcpu) bool {
	if r == nil {
		return false
	}
	d.off = run.OffCPU{
		OutNS: int64(r.OutNs), WakeNS: int64(r.WakeNs), InNS: int64(r.InNs), TGID: r.H.Tgid, TID: r.H.Tid,
		State: run.OffState(r.State), WakerTGID: r.WakerTgid, WakerTID: r.WakerTid,
		Call: r.Call, Arg0: r.Arg0, Arg1: r.Arg1,
	}
	d.cfg.Sink.OffCPU(&d.off)
	return true
}

func (d *Drain) onProc(r *bpf.StagelineSlProc) bool {
	if r == nil {
		return false
	}
	d.proc = run.Proc{
		AtNS: int64(r.AtNs), Event: run.ProcEvent(r.Event), TGID: r.H.Tgid, TID: r.H.Tid, PPID: r.Parent,
		StartNS: int64(r.StartNs), ExitCode: r.ExitCode, Comm: cstring(r.Comm[:]),
	}
	// The last thread ends the process, whichever thread that is.
	if d.proc.Event == run.ProcExit && r.Last != 0 {
		d.proc.TID = d.proc.TGID
	} else if d.proc.Event == run.ProcExit && d.proc.TID == d.proc.TGID {
		return true // the main thread left, others go on: the process lives
	}
	if d.proc.Event == run.ProcFork || d.proc.Event == run.ProcExec {
		d.born = true
		if d.cfg.Describe != nil {
			d.cfg.Describe(&d.proc)
		}
	}
	d.cfg.Sink.Proc(&d.proc)
	return true
}

func (d *Drain) onNet(r *bpf.StagelineSlNet) bool {
	if r == nil {
		return false
	}
	e, ok := d.eps[r.Ep]
	if !ok {
		return true // an endpoint whose own records are still to come, or lost and counted
	}
	if r.Event == uint32(bpf.StagelineSlNetEventSL_NET_STATE) {
		e.state(r.NewState)
	}
	d.net = run.Net{AtNS: int64(r.AtNs), Event: run.NetEvent(r.Event), EP: e.id, Old: uint8(r.OldState), New: uint8(r.NewState), Bytes: r.Bytes}
	d.cfg.Sink.Net(&d.net)
	return true
}

func cstring(b []uint8) string {
	s := string(b)
	if i := strings.IndexByte(s, 0); i >= 0 {
		s = s[:i]
	}
	return s
}
