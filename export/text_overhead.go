package export

import (
	"fmt"
	"io"
	"strconv"

	"github.com/stageline/stageline/collector/run"
)

// textOverhead shows what the recording took, beside what the recorded processes took.
func textOverhead(w io.Writer, r *Report, detail bool) {
	o := r.Meta.Overhead
	if o == nil {
		if len(r.Meta.Targets) > 0 {
			section(w, "OVERHEAD  not known: the run does not say what recording it took")
		}
		return
	}
	span := o.ToNS - o.FromNS
	section(w, "OVERHEAD  CPU time over the %.3f s of recording; %d processes recorded, %d of them ended before", float64(span)/1e9, o.Targets, o.TargetsEnded)
	t := table{left: 1}
	t.add("", "ms", "ms per request", "of the processes'", "of a core")
	row := func(what string, lo, hi int64, known bool) {
		if !known {
			t.add(what, "-", "-", "-", "-")
			return
		}
		t.add(what, spread(lo, hi, 1e6, 1), spread(lo, hi, 1e6*int64(r.Summary.Requests.N), 1),
			spread(lo, hi, o.TargetCPUNS, 100), spread(lo, hi, span, 100))
	}
	kernel, known := o.KernelNS()
	lo, hi := o.RecorderNS()
	row("kernel programs, whole host", kernel, kernel, known)
	recorder := "recorder, whole process"
	if o.SharesProcess {
		recorder = "recorder and load generator, whole process"
	}
	row(recorder, hi, hi, true)
	row("  of it, emptying the ring, decoding, writing", o.DrainCPUNS, o.DrainCPUNS, true)
	row("programs and recorder", kernel+lo, kernel+hi, known)
	row("recorded processes", o.TargetCPUNS, o.TargetCPUNS, true)
	t.write(w)
	for _, line := range overheadNotes(o) {
		fmt.Fprintf(w, "  %s\n", line)
	}
	if detail {
		textPrograms(w, o)
	}
}

// spread prints lo/of, or both ends where they differ; scale 100 makes it a percentage.
func spread(lo, hi, of int64, scale float64) string {
	if of <= 0 {
		return "-"
	}
	unit := ""
	if scale == 100 {
		unit = " %"
	}
	a := fmt.Sprintf("%.2f", float64(lo)/float64(of)*scale)
	if b := fmt.Sprintf("%.2f", float64(hi)/float64(of)*scale); lo != hi {
		a += "–" + b
	}
	return a + unit
}

func overheadNotes(o *run.Overhead) (lines []string) {
	if len(o.Programs) > 0 {
		lines = append(lines, fmt.Sprintf("The programs' time was kept for %.3f s and is scaled to the whole, %.0f ns a run for the keeping taken off; it", float64(o.CountedNS)/1e9, o.KeepingNS),
			"contains runs in processes that are not recorded. What ran in a recorded process is part of its time.")
	}
	if o.SharesProcess {
		lines = append(lines, "The load generator ran in the recorder's process: the recorder took between that part of it and all of it.")
	}
	if o.AttachCPUNS != nil && o.EndCPUNS != nil {
		lines = append(lines, fmt.Sprintf("Attaching took the recorder %.1f ms of CPU time before that, and ending %.1f ms after, without sealing.", float64(*o.AttachCPUNS)/1e6, float64(*o.EndCPUNS)/1e6))
	} else {
		lines = append(lines, "The snapshot at the attach and the ending are in the recorder's time: this run does not tell them apart.")
	}
	return lines
}

func textPrograms(w io.Writer, o *run.Overhead) {
	if len(o.Programs) == 0 {
		return
	}
	section(w, "PROGRAMS  while their time was kept, with the keeping")
	t := table{left: 1}
	t.add("program", "runs", "ns per run", "ms")
	for _, p := range o.Programs {
		mean := "-"
		if p.Runs > 0 {
			mean = strconv.FormatInt(p.RunNS/int64(p.Runs), 10)
		}
		t.add(printable(p.Name), strconv.FormatUint(p.Runs, 10), mean, fmt.Sprintf("%.2f", float64(p.RunNS)/1e6))
	}
	t.write(w)
}
