package wire

import (
	"bytes"
	"slices"
	"strconv"
	"sync"

	"github.com/stageline/stageline/collector/run"
)

// meaning is what Rules say about a field name; a name may have several.
type meaning uint32

const (
	isID meaning = 1 << iota
	isType
	isFrom
	isTo
	isChunk
	isShmName
	isShmSize
	isBodyID // an id in JSON bodies of HTTP, near the top only
	isContent
	isReasoning
	isAudio
	isModality
	isFinish
	isUsage
	isError
	isRole
	isDone
	isLast
)

// replyFields are the fields by which OpenAI-compatible, Anthropic-like and Ollama replies say what
// an event holds.
var replyFields = map[string]meaning{
	"content": isContent, "text": isContent, "response": isContent, "delta": isContent,
	"reasoning": isReasoning, "reasoning_content": isReasoning, "thinking": isReasoning,
	"audio": isAudio, "b64_audio": isAudio, "modality": isModality,
	"finish_reason": isFinish, "stop_reason": isFinish, "usage": isUsage,
	"error": isError, "role": isRole, "done": isDone,
}

type field struct {
	name string
	is   meaning
}

// compiled are Rules prepared for look-up by the bytes of a key.
type compiled struct {
	name      string
	fields    map[string]field
	index     []int
	paths     [][]int
	byteTypes []string
	headers   []string
}

// prepared holds the compiled form of each set of rules: connections are many, rules are few.
var prepared sync.Map // *Rules → *compiled

func compile(r *Rules) *compiled {
	if c, ok := prepared.Load(r); ok {
		return c.(*compiled)
	}
	c := &compiled{name: r.Name, fields: make(map[string]field), index: r.ArrayIDIndex,
		paths: r.ArrayIDPaths, byteTypes: r.ByteTypes, headers: r.HTTPIDHeaders}
	for _, l := range []struct {
		names []string
		is    meaning
	}{
		{r.IDFields, isID}, {r.TypeFields, isType}, {r.FromFields, isFrom}, {r.ToFields, isTo},
		{r.ChunkFields, isChunk}, {r.ShmNameFields, isShmName}, {r.ShmSizeFields, isShmSize}, {r.LastFields, isLast},
		{r.HTTPBodyFields, isBodyID},
	} {
		for _, n := range l.names {
			c.fields[n] = field{n, c.fields[n].is | l.is}
		}
	}
	for n, is := range replyFields {
		c.fields[n] = field{n, c.fields[n].is | is}
	}
	prepared.Store(r, c)
	return c
}

const maxDepth = 32

// level is one open container.
type level struct {
	isMap  bool
	key    field // map: of the value that comes next; list: inherited from the map it stands in
	idx    int
	shm    string
	shmLen int64
}

// fields collects what Rules ask for while a payload is walked. The walkers (msgpack, JSON, pickle)
// call open, shut, key and the scalars in document order.
type fields struct {
	conn  *Conn
	http  bool // body of an HTTP exchange: other id fields apply, and the kind of reply is wanted
	stack [maxDepth]level
	depth int

	typ, from, to           string
	typAt, fromAt, toAt, at int // depth of the value held, 0 none
	chunkNo                 int64
	ids                     []run.IDRef
	several, last           bool
	shm                     []run.ShmRef
	seen                    meaning // reply fields that hold something

	memo [][]byte // room for the memo of a pickle
}

// collect returns the Conn's collector, emptied. A Conn looks into one payload at a time.
func (c *Conn) collect(http bool) *fields {
	f := &c.fields
	f.conn, f.http, f.depth, f.chunkNo = c, http, 0, -1
	f.typ, f.from, f.to, f.typAt, f.fromAt, f.toAt, f.at = "", "", "", 0, 0, 0, 0
	f.ids, f.several, f.last, f.shm, f.seen = nil, false, false, nil, 0
	return f
}

// open enters a container; false: too deep.
func (f *fields) open(isMap bool) bool {
	k := f.value()
	f.noteReply(field{is: k.is & (isAudio | isUsage | isError)}, true)
	if f.depth == maxDepth {
		return false
	}
	l := level{isMap: isMap, shmLen: -1}
	if !isMap {
		l.key = k
	}
	f.stack[f.depth] = l
	f.depth++
	return true
}

func (f *fields) shut() {
	f.depth--
	l := &f.stack[f.depth]
	if l.shm != "" {
		f.shm = append(f.shm, run.ShmRef{Name: l.shm, Size: l.shmLen})
	}
	l.shm = ""
	f.next()
}

// finish ends a walk that stopped inside containers.
func (f *fields) finish() {
	for f.depth > 0 {
		f.shut()
	}
}

func (f *fields) top() *level {
	if f.depth == 0 {
		return nil
	}
	return &f.stack[f.depth-1]
}

// next moves past a value.
func (f *fields) next() {
	if l := f.top(); l != nil {
		l.idx++
		if l.isMap {
			l.key = field{}
		}
	}
}

// value returns the field the value to come stands under.
func (f *fields) value() field {
	if l := f.top(); l != nil {
		return l.key
	}
	return field{}
}

func (f *fields) key(b []byte) {
	l := f.top()
	l.key = f.conn.rules.fields[string(b)]
	if f.conn.ids.within(b) {
		f.ref("key", b, false)
	}
}

// str takes a complete string.
func (f *fields) str(b []byte) {
	k := f.value()
	f.noteReply(k, len(b) > 0)
	if f.http && k.is&isModality != 0 && bytes.Equal(b, []byte("audio")) {
		f.seen |= isAudio
	}
	switch {
	case len(b) == 0 || len(b) > maxIDLen:
	case f.isIDField(k):
		f.ref(k.name, b, true)
	case k.is != 0 && f.single(k, b):
	case f.isArrayID(b):
		f.ref(f.arrayPath(), b, true)
	case f.conn.ids.within(b):
		f.ref("value", b, false)
	}
	f.next()
}

// cut takes the head of a string whose end was not captured: it proves only that there was one.
func (f *fields) cut() { f.noteReply(f.value(), true) }

func (f *fields) num(v int64) {
	k := f.value()
	switch {
	case k.is&isShmSize != 0:
		f.top().shmLen = v
	case k.is&isChunk != 0 && !f.http && (f.at == 0 || f.depth < f.at):
		f.chunkNo, f.at = v, f.depth
	case k.is&(isFrom|isTo) != 0:
		f.single(k, strconv.AppendInt(nil, v, 10))
	}
	f.noteReply(k, v != 0)
	f.next()
}

// flag takes a boolean, null or another scalar without further use.
func (f *fields) flag(set bool) {
	f.last = f.last || set && !f.http && f.value().is&isLast != 0
	f.noteReply(f.value(), set)
	f.next()
}

func (f *fields) noteReply(k field, set bool) {
	if f.http && set {
		f.seen |= k.is & (isContent | isReasoning | isAudio | isFinish | isUsage | isError | isRole | isDone)
	}
}

func (f *fields) isIDField(k field) bool {
	if f.http {
		return k.is&isBodyID != 0 && f.depth <= 2
	}
	return k.is&isID != 0
}

// single takes a value of which a message has one; it reports whether it used b.
func (f *fields) single(k field, b []byte) bool {
	if !idShaped(b, maxNameLen) {
		if k.is&isShmName == 0 {
			return false
		}
	}
	set := func(to *string, depth *int) bool {
		if *depth == 0 || f.depth < *depth {
			*to, *depth = f.conn.name(b), f.depth
		}
		return true
	}
	switch {
	case k.is&isShmName != 0 && idShaped(b, maxIDLen):
		f.top().shm = string(bytes.TrimPrefix(bytes.TrimPrefix(b, []byte("/dev/shm")), []byte("/")))
		return true
	case f.http:
		return false
	case k.is&isType != 0:
		return set(&f.typ, &f.typAt)
	case k.is&isFrom != 0:
		return set(&f.from, &f.fromAt)
	case k.is&isTo != 0:
		return set(&f.to, &f.toAt)
	}
	return false
}

// isArrayID reports whether b stands where Rules expect an id in nested lists. Such a place says
// less than a field name, so the text must have a digit or be known.
func (f *fields) isArrayID(b []byte) bool {
	if f.http || f.depth == 0 || f.stack[0].isMap {
		return false
	}
	hit := f.depth == 1 && slices.Contains(f.conn.rules.index, f.stack[0].idx)
	for _, p := range f.conn.rules.paths {
		hit = hit || f.onPath(p)
	}
	return hit && (hasDigit(b) && len(b) >= minScanLen || f.conn.ids.Has(string(b)))
}

func (f *fields) onPath(p []int) bool {
	if len(p) != f.depth {
		return false
	}
	for i, want := range p {
		if f.stack[i].isMap || want >= 0 && f.stack[i].idx != want {
			return false
		}
	}
	return true
}

func (f *fields) arrayPath() string {
	b := make([]byte, 0, 16)
	for i := range f.depth {
		b = append(b, '[')
		b = strconv.AppendInt(b, int64(f.stack[i].idx), 10)
		b = append(b, ']')
	}
	return string(b)
}

// ref adds an id; own: it stood under a field for ids, so it is learned.
func (f *fields) ref(name string, b []byte, own bool) {
	if !idShaped(b, maxIDLen) || len(f.ids) == maxRefs {
		return
	}
	for i := range f.ids {
		v := f.ids[i].Value
		if v == string(b) {
			return
		}
		if own && !bytes.Contains(b, []byte(v)) && !bytes.Contains([]byte(v), b) {
			f.several = true
		}
	}
	v := string(b)
	if own {
		f.conn.ids.Learn(v)
	}
	f.ids = append(f.ids, run.IDRef{Field: name, Value: v})
}

// kind says what a reply event holds, in the words of run.ReplyEvent.
func (f *fields) kind() string {
	for _, k := range [...]struct {
		is   meaning
		name string
	}{{isError, "error"}, {isAudio, "audio"}, {isContent, "content"}, {isReasoning, "reasoning"},
		{isFinish | isDone, "finish"}, {isUsage, "usage"}, {isRole, "role"}} {
		if f.seen&k.is != 0 {
			return k.name
		}
	}
	return "other"
}

// fill puts what was collected into m.
func (f *fields) fill(m *run.Message) {
	if m.Type == "" {
		m.Type = f.typ
	}
	m.From, m.To, m.Chunk = f.from, f.to, f.chunkNo
	m.IDs, m.Shm = f.ids, f.shm
	if f.last {
		m.Flags |= run.MsgLast
	}
	if f.several && !f.http {
		m.Flags |= run.MsgDuplicateID
	}
}
