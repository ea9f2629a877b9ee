package main

import (
	"encoding/json"
	"fmt"
	"slices"
)

// truth is what an engine logged of itself, in CLOCK_MONOTONIC nanoseconds. A null time is one that
// the log does not have.
type truth struct {
	source   string
	stages   []truthStage // the entry included
	requests []string     // ids, by first appearance
	visits   map[string][]*truthVisit
	hops     map[string][]*truthHop
	// messages counts, where the log states it, all messages of a request by type. A log that has no
	// stamps for some of them still says how many there were.
	messages map[string]map[string]int
	inHand   bool            // arrivals are when the application took an input, not when the bytes were read
	early    map[string]bool // requests that may have begun before the recording; null: within was not called
	// owner is the request of each further name, as it stands inside the engine and in replies: an id
	// that the engine mints may be seen in no other form.
	owner map[string]string

	numbers []int // of the requests in the whole log; null: they are all
}

func newTruth() *truth {
	return &truth{visits: map[string][]*truthVisit{}, hops: map[string][]*truthHop{}, messages: map[string]map[string]int{}, owner: map[string]string{}}
}

// number is that of one of the requests in the whole log.
func (t *truth) number(i int) int {
	if t.numbers == nil {
		return i
	}
	return t.numbers[i]
}

// entryName is how a truth log calls the process that takes requests from clients.
const entryName = "api"

type truthStage struct {
	Name string   `json:"name"`
	PIDs []uint32 `json:"pids"`
}

type truthArrival struct {
	From string `json:"from"`
	NS   *int64 `json:"ns"`
}

type truthVisit struct {
	Request   string         `json:"request"`
	Stage     string         `json:"stage"`
	Chunk     *int64         `json:"chunk"`
	Arrivals  []truthArrival `json:"arrivals"`
	Ready     *int64         `json:"ready_ns"`
	Start     *int64         `json:"start_ns"`
	Finish    *int64         `json:"finish_ns"`
	Departure *int64         `json:"departure_ns"`

	outside bool // partly before or after the recording: matched, not judged
}

type truthHop struct {
	Request   string `json:"request"`
	From      string `json:"from"`
	To        string `json:"to"`
	Type      string `json:"type"`
	Seq       int64  `json:"seq"`
	Chunk     *int64 `json:"chunk"`
	Send      *int64 `json:"send_ns"`
	Recv      *int64 `json:"recv_ns"`
	Transport string `json:"transport"`

	outside bool // as of a visit
}

// memory is the transport of a hop inside one process, which no kernel event shows.
func (h *truthHop) memory() bool { return h.Transport == "memory" }

func (t *truth) line(b []byte) (request string, err error) {
	var head struct {
		T       string       `json:"t"`
		Request string       `json:"request"`
		Source  string       `json:"source"`
		Stages  []truthStage `json:"stages"`
		API     uint32       `json:"api_pid"`

		Messages map[string]int `json:"messages"`
		Arrival  string         `json:"arrival_stamp"`
		WireID   string         `json:"wire_id"`
		ReplyID  string         `json:"reply_id"`
	}
	if err := json.Unmarshal(b, &head); err != nil {
		return "", err
	}
	if head.T != "meta" && head.Request == "" {
		return "", fmt.Errorf("a %.20q without a request", head.T)
	}
	switch head.T {
	case "meta":
		t.inHand = t.inHand || head.Arrival == "application"
		t.source, t.stages = head.Source, append(t.stages, head.Stages...)
		if head.API != 0 {
			t.stages = append(t.stages, truthStage{entryName, []uint32{head.API}})
		}
		return "", nil
	case "visit":
		v := new(truthVisit)
		err = json.Unmarshal(b, v)
		t.visits[v.Request] = append(t.visits[v.Request], v)
	case "hop":
		h := new(truthHop)
		err = json.Unmarshal(b, h)
		t.hops[h.Request] = append(t.hops[h.Request], h)
	case "request":
		for _, name := range []string{head.WireID, head.ReplyID} {
			if name != "" {
				t.owner[name] = head.Request
			}
		}
		if head.Messages != nil {
			t.messages[head.Request] = head.Messages
		}
	default:
		return "", fmt.Errorf("unknown kind %.20q", head.T)
	}
	return head.Request, err
}

// logLateNS is how late a log may stamp what has happened: a request whose first stamp is no later
// after the begin of a recording may have begun before it.
const logLateNS = 1_000_000_000

// within marks what did not happen wholly between two moments of a recording. It is still matched, so
// that what the report has of it is no invention, but its absence is not held against the report.
func (t *truth) within(fromNS, toNS int64) {
	t.early = map[string]bool{}
	for id, l := range t.visits {
		for _, v := range l {
			times := []*int64{v.Ready, v.Start, v.Finish, v.Departure}
			for _, a := range v.Arrivals {
				times = append(times, a.NS)
			}
			v.outside = t.outside(id, fromNS, toNS, times...)
		}
	}
	for id, l := range t.hops {
		for _, h := range l {
			h.outside = t.outside(id, fromNS, toNS, h.Send, h.Recv)
		}
	}
}

// outside: one of the times does not lie in the recording. It also notes what they say of when their
// request began.
func (t *truth) outside(request string, fromNS, toNS int64, times ...*int64) (out bool) {
	for _, ns := range times {
		if ns != nil {
			out = out || *ns < fromNS || *ns > toNS
			t.early[request] = t.early[request] || *ns < fromNS+logLateNS
		}
	}
	return out
}

// sort puts visits and hops in order of time, because a log may be written stage by stage.
func (t *truth) sort() {
	for _, v := range t.visits {
		slices.SortStableFunc(v, func(a, b *truthVisit) int {
			return compareNS(firstOf(a.Ready, a.Start, a.Finish), firstOf(b.Ready, b.Start, b.Finish))
		})
	}
	for _, h := range t.hops {
		slices.SortStableFunc(h, func(a, b *truthHop) int {
			if c := compareNS(firstOf(a.Send, a.Recv), firstOf(b.Send, b.Recv)); c != 0 {
				return c
			}
			return int(a.Seq - b.Seq)
		})
	}
}

func firstOf(times ...*int64) *int64 {
	for _, t := range times {
		if t != nil {
			return t
		}
	}
	return nil
}

// compareNS orders times, unknown ones last.
func compareNS(a, b *int64) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	case *a < *b:
		return -1
	case *a > *b:
		return 1
	}
	return 0
}
