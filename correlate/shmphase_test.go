package correlate

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// phaseRows renders what is known of the segments under a result's hops.
func phaseRows(r *Result) string {
	at := func(ns *int64) string {
		if ns == nil {
			return "-"
		}
		return fmt.Sprint((*ns - baseNS) / 1000)
	}
	phase := func(p *Phase) string {
		if p == nil {
			return "-"
		}
		return fmt.Sprintf("%s..%s(%s)", at(&p.FromNS), at(&p.ToNS), p.Rule)
	}
	us := func(v *float64) string {
		if v == nil {
			return "null"
		}
		return fmt.Sprint(*v)
	}
	var b strings.Builder
	for _, q := range r.Requests {
		for _, h := range q.Hops {
			p := h.ShmPhases
			if p == nil {
				continue
			}
			fmt.Fprintf(&b, "%s>%s %s created=%s write=%s opened=%s read=%s unlinked=%s lock=%s/%s", h.From, h.To, h.ShmName,
				at(p.CreatedNS), phase(p.Write), at(p.OpenedNS), phase(p.Read), at(p.UnlinkedNS), us(p.LockWaitUS.Sender), us(p.LockWaitUS.Receiver))
			if s := p.Poll; s != nil {
				fmt.Fprintf(&b, " poll n=%d %s..%s found=%s wait=%v jitter=%v", s.N, at(&s.FromNS), at(&s.LastNS), at(&s.FoundNS), s.WaitUS, s.JitterUS)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func TestShmPhases(t *testing.T) {
	const entry = twoProcs + `
		proc 30 decoder
		recv 1 10 100-110 0+300 POST_/v1/x x=1 id=req-1 flags=first,last
	`
	for _, c := range []struct{ name, trace, want string }{
		{"named, found by polling, with a lock that both ask for", entry + `
			shm 30 open 200-201 req-1_encoder_2 ret=-2
			shm 30 open 1200-1201 req-1_encoder_2 ret=-2
			shm 20 open 1800-1805 shm_req-1_encoder_2_lockfile.lock ino=8 creat
			shm 20 flock 1806-1807 shm_req-1_encoder_2_lockfile.lock ino=8
			shm 20 open 1810-1820 req-1_encoder_2 ino=7 creat
			shm 30 open 1815-1816 req-1_encoder_2 ret=-2
			shm 20 trunc 1822-1824 req-1_encoder_2 ino=7 size=4096
			shm 20 map 1825-1830 req-1_encoder_2 ino=7 size=4096
			shm 30 open 1850-1852 req-1_encoder_2 ino=7
			shm 30 map 1853-1855 req-1_encoder_2 ino=7 size=4096
			shm 30 open 1856-1857 shm_req-1_encoder_2_lockfile.lock ino=8
			shm 30 flock 1860-1955 shm_req-1_encoder_2_lockfile.lock ino=8
			shm 20 unmap 1940-1941 x ino=7
			shm 20 unlock 1950-1951 shm_req-1_encoder_2_lockfile.lock ino=8
			shm 30 open 1960-1962 req-1_encoder_2 ino=7
			shm 30 map 1963-1965 req-1_encoder_2 ino=7 size=4096
			shm 30 unmap 1990-1992 x ino=7
			shm 30 unlink 1995-1999 req-1_encoder_2
			shm 30 unlock 2001-2002 shm_req-1_encoder_2_lockfile.lock ino=8
			shm 30 unlink 2003-2004 shm_req-1_encoder_2_lockfile.lock`, `
			encoder>decoder req-1_encoder_2 created=1810 write=1830..1940(mmap→munmap) opened=1852 read=1965..1990(mmap→munmap) unlinked=1999 lock=1/95 poll n=3 200..1816 found=1852 wait=1652 jitter=36`},
		{"the lock file of a name that only begins alike is another's", entry + `
			shm 20 open 205-206 shm_req-1_encoder_22_lockfile.lock ino=9 creat
			shm 20 flock 207-290 shm_req-1_encoder_22_lockfile.lock ino=9
			shm 20 open 300-301 req-1_encoder_2 ino=7 creat
			shm 20 trunc 302-303 req-1_encoder_2 ino=7 size=4096
			shm 20 map 304-305 req-1_encoder_2 ino=7 size=4096
			shm 20 unmap 310-311 x ino=7
			shm 30 open 320-321 req-1_encoder_2 ino=7
			shm 30 map 322-323 req-1_encoder_2 ino=7 size=4096
			shm 30 unlink 330-331 req-1_encoder_2`, `
			encoder>decoder req-1_encoder_2 created=300 write=305..310(mmap→munmap) opened=321 read=323..330(mmap→unlink) unlinked=331 lock=null/null`},
		{"anonymous, named by the message; the writer keeps it mapped", entry + `
			unix 4 5
			base 4 5 0
			shm 20 open 200-201 psm_ab ino=7 creat
			shm 20 trunc 202-203 psm_ab ino=7 size=4096
			shm 20 map 204-205 psm_ab ino=7 size=4096
			send 4 20 220-225 0+60 data_ready id=req-1 shm=psm_ab:4096
			recv 5 30 222-230 0+60 data_ready id=req-1 shm=psm_ab:4096
			shm 30 open 240-241 psm_ab ino=7
			shm 30 map 242-243 psm_ab ino=7 size=4096
			shm 30 unmap 250-251 x ino=7
			shm 30 unlink 252-253 psm_ab`, `
			encoder>decoder psm_ab created=200 write=- opened=241 read=243..250(mmap→munmap) unlinked=253 lock=null/null`},
		{"written under another name and renamed: that ends the writing", entry + `
			shm 30 open 190-191 req-1_encoder_3 ret=-2
			shm 20 open 200-201 tmp_77 ino=7 creat
			shm 20 trunc 202-203 tmp_77 ino=7 size=4096
			shm 20 map 204-205 tmp_77 ino=7 size=4096
			shm 20 rename 260-262 tmp_77
			shm 30 open 290-291 req-1_encoder_3 ino=7
			shm 30 map 292-293 req-1_encoder_3 ino=7 size=4096
			shm 30 unmap 300-301 x ino=7
			shm 30 unlink 302-303 req-1_encoder_3`, `
			encoder>decoder req-1_encoder_3 created=200 write=205..262(mmap→rename) opened=291 read=293..300(mmap→munmap) unlinked=303 lock=null/null poll n=1 190..191 found=291 wait=101 jitter=100`},
		{"the reader entered its open before the writer and found what that made", entry + `
			shm 30 open 198-203 req-1_encoder_2 ino=7
			shm 20 open 200-201 req-1_encoder_2 ino=7 excl
			shm 20 trunc 202-203 req-1_encoder_2 ino=7 size=4096
			shm 20 map 204-205 req-1_encoder_2 ino=7 size=4096
			shm 20 unmap 210-211 x ino=7
			shm 30 map 222-223 req-1_encoder_2 ino=7 size=4096
			shm 30 unmap 225-226 x ino=7
			shm 30 unlink 230-231 req-1_encoder_2`, `
			encoder>decoder req-1_encoder_2 created=200 write=205..210(mmap→munmap) opened=203 read=223..225(mmap→munmap) unlinked=231 lock=null/null`},
		{"records lost: what was not seen is null", entry + `
			shm 20 open 200-201 req-1_encoder_2 ino=7 creat
			shm 20 trunc 202-203 req-1_encoder_2 ino=7 size=4096
			loss 204-300 debug-drop shm 9
			shm 30 map 310-311 req-1_encoder_2 ino=7 size=4096`, `
			encoder>decoder req-1_encoder_2 created=200 write=- opened=- read=- unlinked=- lock=null/null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			sameRows(t, phaseRows(tl.Finish()), c.want)
		})
	}
}

// creditTrace is n payloads of 20 to 30, each of its own request, of which limit are in flight at
// most; work is the time between a payload and the next one being computed, hold the time from a
// payload to its acknowledgement.
func creditTrace(n, limit, work, hold int) string {
	var b strings.Builder
	b.WriteString("proc 10 api\nproc 20 encoder\nproc 30 decoder\nunix 4 5\nbase 4 5 0\nbase 5 4 0\nunix 2 3\nbase 2 3 0\n")
	ack := make([]int, n)
	sent, ready := 0, 1000
	for i := range n {
		id := fmt.Sprintf("req-%02d", i)
		fmt.Fprintf(&b, "client %d\nrecv %d 10 %d-%d 0+300 POST_/v1/x x=1 id=%s flags=first,last\n", 100+i, 100+i, 100+i, 110+i, id)
		ready += work
		at := max(ready, sent+20)
		if i >= limit && ack[i-limit] > at {
			at = ack[i-limit]
		}
		sent = at + 10
		fmt.Fprintf(&b, "shm 20 open %d-%d psm_%d ino=%d creat\nshm 20 trunc %d-%d psm_%d ino=%d size=64\n", at, at+1, i, 50+i, at+2, at+3, i, 50+i)
		fmt.Fprintf(&b, "send 4 20 %d-%d %d+60 data_ready id=%s shm=psm_%d:64\n", sent, sent+2, 60*i, id, i)
		fmt.Fprintf(&b, "recv 5 30 %d-%d %d+60 data_ready id=%s shm=psm_%d:64\n", sent, sent+5, 60*i, id, i)
		ack[i] = sent + hold
		fmt.Fprintf(&b, "send 5 30 %d-%d %d+30 data_ack id=%s\n", ack[i]-8, ack[i]-5, 30*i, id)
		fmt.Fprintf(&b, "recv 4 20 %d-%d %d+30 data_ack id=%s\n", ack[i]-6, ack[i]-1, 30*i, id)
	}
	return b.String()
}

func TestCreditWait(t *testing.T) {
	waits := func(trace string) (n, waited int, hops []Hop) {
		tl := New(Options{StageOf: byComm})
		feed(t, tl, trace)
		for _, q := range tl.Finish().Requests {
			for _, h := range q.Hops {
				if h.CreditWaitUS != nil {
					n++
					if h.CreditWaitUS.Hi > 0 {
						waited++
					}
					hops = append(hops, h)
				}
			}
		}
		return n, waited, hops
	}
	// 17 payloads, a new one every 1000 µs, each held for 5000: with two credits the third waits.
	n, waited, hops := waits(creditTrace(17, 2, 1000, 5000))
	if n != 17 || waited != 15 {
		t.Errorf("%d payloads have a credit wait and %d of them waited, want 17 and 15", n, waited)
	}
	for i, h := range hops {
		w := h.CreditWaitUS
		if w.Lo > w.Est || w.Est > w.Hi || i < 2 && w.Hi != 0 {
			t.Errorf("payload %d: %+v", i, *w)
		}
		if !strings.HasPrefix(w.Rule, "at most 2 in flight for a stage") {
			t.Errorf("payload %d: rule %q", i, w.Rule)
		}
	}
	// The third was computed at 4000 and its credit came at 7009: it waited 3009 µs.
	if w := hops[2].CreditWaitUS; w.Lo > 3009 || w.Hi < 3009 {
		t.Errorf("the third waited %+v, which excludes 3009 µs", *w)
	}
	// Without a limit nothing follows acknowledgements: nothing is said.
	if n, _, _ := waits(creditTrace(17, 100, 1000, 5300)); n != 0 {
		t.Errorf("%d payloads have a credit wait though nothing limits them", n)
	}
	// Without acknowledgements nothing is said.
	if n, _, _ := waits(strings.ReplaceAll(creditTrace(17, 2, 1000, 5000), "data_ack", "data_note")); n != 0 {
		t.Errorf("%d payloads have a credit wait though nothing acknowledges them", n)
	}
}

func TestRing(t *testing.T) {
	const ring = `
		proc 10 core
		proc 20 worker
		proc 30 worker2
		unix 2 3
		shm 10 seen ?-50 psm_ring ino=7 size=1000
		shm 20 seen ?-51 psm_ring ino=7 size=1000
		recv 3 20 60-61 0+7 READY
	`
	for _, c := range []struct{ name, trace, channels, uncovered string }{
		{"notices count; a longer message is none", ring + `
			send 2 10 100-101 0+3 -
			send 2 10 110-111 3+3 -
			send 2 10 120-121 6+3 -
			send 2 10 130-131 9+9 -
			off 20.20 200-?-230 call=24
			off 20.21 300-?-312 call=24
			off 20.21 400-?-499 call=202`, `
			core>worker shm ring (notices) notices=3 yields=2/42 covered=false`, `
			core>worker 3 ` + whyNotices},
		{"no notice: the segment alone is told", ring, ``, `
			core>worker 1 ` + whyNoNotice},
		{"a reader without notices beside one with them is the same ring", ring + `
			shm 30 seen ?-52 psm_ring ino=7 size=1000
			send 2 10 100-101 0+3 -`, `
			core>worker shm ring (notices) notices=1 covered=false`, `
			core>worker 1 ` + whyNotices},
		{"a semaphore is no ring", strings.ReplaceAll(ring, "psm_ring", "sem.mp-ab"), ``, ``},
		{"unlinked and unmapped since: no ring", ring + `
			shm 10 unlink 90-91 psm_ring`, ``, ``},
	} {
		t.Run(c.name, func(t *testing.T) {
			tl := New(Options{StageOf: byComm})
			feed(t, tl, c.trace)
			r := tl.Finish()
			var channels, uncovered strings.Builder
			for _, ch := range r.Channels {
				if ch.Transport == run.TransportUnix.String() {
					continue
				}
				fmt.Fprintf(&channels, "%s>%s %s notices=%d", ch.From, ch.To, ch.Transport, ch.Notices)
				if ch.Yields != nil {
					fmt.Fprintf(&channels, " yields=%d/%v", ch.Yields.N, ch.Yields.US)
				}
				fmt.Fprintf(&channels, " covered=%v\n", ch.Covered)
			}
			for _, u := range r.Uncovered {
				fmt.Fprintf(&uncovered, "%s>%s %d %s\n", u.From, u.To, u.N, u.Why)
			}
			sameRows(t, channels.String(), c.channels)
			sameRows(t, uncovered.String(), c.uncovered)
		})
	}
}
