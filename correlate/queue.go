package correlate

import "container/heap"

// event is a record waiting for its turn in time order; among equal times the first to come is first.
type event struct {
	ns   int64
	seq  uint64
	what any // *run.Message, *run.Shm, *run.Proc, *run.Net or eof
}

func (e *event) before(o *event) bool {
	return e.ns < o.ns || e.ns == o.ns && e.seq < o.seq
}

// eventQueue puts events in order of time. They come nearly so: most find their place a few steps
// from the end of a list. Those that come long after their time are kept apart in a heap.
type eventQueue struct {
	list []event // sorted from head on
	head int
	late lateEvents
}

// maxSteps is how far an event may go in the list.
const maxSteps = 64

func (q *eventQueue) push(e event) {
	if low := len(q.list) - maxSteps; low > q.head && e.before(&q.list[low]) {
		heap.Push(&q.late, e)
		return
	}
	if q.head > 1024 && q.head*2 > len(q.list) { // the front half was taken
		n := copy(q.list, q.list[q.head:])
		clear(q.list[n:])
		q.list, q.head = q.list[:n], 0
	}
	q.list = append(q.list, e)
	for i := len(q.list) - 1; i > q.head && e.before(&q.list[i-1]); i-- {
		q.list[i-1], q.list[i] = e, q.list[i-1]
	}
}

func (q *eventQueue) len() int { return len(q.list) - q.head + len(q.late) }

// pop takes the first event, if its time is not after upTo.
func (q *eventQueue) pop(upTo int64) (event, bool) {
	if len(q.late) > 0 && (q.head == len(q.list) || q.late[0].before(&q.list[q.head])) {
		if q.late[0].ns > upTo {
			return event{}, false
		}
		return heap.Pop(&q.late).(event), true
	}
	if q.head == len(q.list) || q.list[q.head].ns > upTo {
		return event{}, false
	}
	e := q.list[q.head]
	q.list[q.head] = event{}
	q.head++
	return e, true
}

type lateEvents []event

func (q lateEvents) Len() int           { return len(q) }
func (q lateEvents) Less(i, j int) bool { return q[i].before(&q[j]) }
func (q lateEvents) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *lateEvents) Push(x any)        { *q = append(*q, x.(event)) }
func (q *lateEvents) Pop() any {
	o := *q
	e := o[len(o)-1]
	o[len(o)-1] = event{}
	*q = o[:len(o)-1]
	return e
}
