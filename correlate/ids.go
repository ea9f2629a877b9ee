package correlate

import (
	"iter"
	"slices"
	"strings"

	"github.com/stageline/stageline/collector/run"
)

// Reasons for an alias.
const (
	aliasSelf     = "request"       // stood in the request itself
	aliasContains = "contains"      // wraps a known id
	aliasExchange = "same-exchange" // stood in the reply of the same HTTP exchange
	aliasMessage  = "same-message"  // stood beside a known id in one message
	aliasOrder    = "order"         // only request in flight when the id first appeared
)

// identities knows which id belongs to which request.
type identities struct {
	active  map[string]*request
	inner   map[string]*request // what stands inside an active id behind its word prefixes
	done    map[string]int      // ids of built requests → index of the result
	orphans map[string]*orphan
	shared  map[string]bool // values that stood beside ids of several requests: no alias
}

// orphan is an id that no request owns (yet).
type orphan struct {
	value     string
	crossings []*crossing
	atSend    []bool
	firstNS   int64
	lastNS    int64
	fromTGID  uint32 // process that first sent it; 0 when first seen at a receiver
}

// maxOrphans bounds the ids that wait for an owner; past it the oldest are counted and dropped.
const maxOrphans = 4096

func (t *identities) init() {
	t.active = map[string]*request{}
	t.inner = map[string]*request{}
	t.done = map[string]int{}
	t.orphans = map[string]*orphan{}
	t.shared = map[string]bool{}
}

// own makes value a name of r and adopts the messages that waited for it.
func (t *Timeline) own(r *request, value, reason string) {
	if value == "" || t.ids.shared[value] {
		return
	}
	if prev := t.ids.active[value]; prev != nil && prev != r && reason != aliasSelf {
		return
	}
	if t.ids.active[value] == r {
		return
	}
	t.ids.active[value] = r
	if in := bare(value); in != value && t.ids.inner[in] == nil {
		t.ids.inner[in] = r
	}
	if value != r.id {
		r.aliases = append(r.aliases, Alias{value, reason})
	}
	var mine []string
	for o := range t.ids.orphans {
		if o == value || wraps(o, value) || wraps(value, o) {
			mine = append(mine, o)
		}
	}
	slices.Sort(mine)
	for _, o := range mine {
		t.adoptOrphan(r, o, value)
	}
}

func (t *Timeline) adoptOrphan(r *request, value, because string) {
	o := t.ids.orphans[value]
	if o == nil {
		return
	}
	if owner, _, _ := t.resolve(value); owner != nil && owner != r {
		return // contains ids of two requests
	}
	delete(t.ids.orphans, value)
	if value != because {
		t.own(r, value, aliasContains)
	}
	for i, c := range o.crossings {
		c = c.live()
		c.tie(tie{req: r, atSend: o.atSend[i], atRecv: !o.atSend[i], weak: r.weakAlias(value)})
		r.adopt(c)
	}
}

// resolve finds the request that an id names: the id itself, an alias, or the longest known id
// that it wraps. Two known ids of equal length inside one value resolve to nothing.
func (t *Timeline) resolve(value string) (r *request, known string, wrapped bool) {
	if r = t.ids.active[value]; r != nil {
		return r, value, false
	}
	if c := t.clients.byID[value]; c != nil && !c.linked {
		return t.activate(c), value, false
	}
	// A reply may name the request, under a prefix, before the pipeline does.
	if r = t.ids.inner[value]; r != nil {
		t.own(r, value, aliasContains)
		return r, value, false
	}
	best, clash := "", false
	for sub := range parts(value) {
		if len(sub) < len(best) {
			continue
		}
		q := t.ids.active[sub]
		if q == nil {
			if c := t.clients.byID[sub]; c != nil && !c.linked && wraps(value, sub) {
				q = t.activate(c)
			}
		}
		if q == nil || q == r || !wraps(value, sub) {
			continue
		}
		clash = len(sub) == len(best) && r != nil
		best, r = sub, q
	}
	if clash || r == nil {
		return nil, "", false
	}
	return r, best, true
}

func separator(c byte) bool {
	switch c {
	case '-', '_', ':', '/', '.', '@', '#':
		return true
	}
	return false
}

// maxParts bounds the parts of an id between separators.
const maxParts = 32

// parts yields the substrings of an id that stand between separators, longest id parts included.
func parts(v string) iter.Seq[string] {
	return func(yield func(string) bool) {
		if len(v) > 512 {
			return
		}
		var starts, ends [maxParts]int
		n := 1
		for i := 0; i < len(v); i++ {
			if !separator(v[i]) {
				continue
			}
			if n == maxParts {
				return
			}
			ends[n-1], starts[n] = i, i+1
			n++
		}
		ends[n-1] = len(v)
		for _, a := range starts[:n] {
			for _, b := range ends[:n] {
				if b-a >= 1 && b-a < len(v) && !yield(v[a:b]) {
					return
				}
			}
		}
	}
}

// wraps reports that outer is inner with the decoration engines put around a request id: word
// prefixes ("chatcmpl-", "0_"), an 8-digit hex suffix, "__" and ":" suffixes. Another number
// behind the id ("r-1" in "r-1-2") is another request, not a decoration.
func wraps(outer, inner string) bool {
	if len(inner) == 0 || len(outer) <= len(inner) {
		return false
	}
	for at := 0; ; {
		i := strings.Index(outer[at:], inner)
		if i < 0 {
			return false
		}
		i += at
		if prefixOK(outer[:i]) && suffixOK(outer[i+len(inner):]) {
			return true
		}
		at = i + 1
	}
}

// bare is an id without the words before it ("chatcmpl-"), if what is left is long enough to be an
// id of its own and begins no word.
func bare(v string) string {
	rest := v
	for {
		i := strings.IndexAny(rest, "-_:")
		if i <= 0 || !letters(rest[:i]) {
			break
		}
		rest = rest[i+1:]
	}
	if len(rest) < 8 || !strings.ContainsAny(rest, "0123456789") {
		return v
	}
	return rest
}

// prefixOK accepts "", and words or small numbers each closed by '-', '_' or ':'.
func prefixOK(p string) bool {
	if p == "" {
		return true
	}
	last := p[len(p)-1]
	if last != '-' && last != '_' && last != ':' {
		return false
	}
	for _, w := range strings.FieldsFunc(p, func(r rune) bool { return r < 128 && separator(byte(r)) }) {
		if !letters(w) && !(digits(w) && len(w) <= 3) {
			return false
		}
	}
	return true
}

func suffixOK(s string) bool {
	switch {
	case s == "", s[0] == ':', s[0] == '@', s[0] == '#', s[0] == '/', strings.HasPrefix(s, "__"):
		return true
	case s[0] != '-' || len(s) < 9 || !hex(s[1:9]):
		return false
	}
	return suffixOK(s[9:])
}

func letters(w string) bool {
	for i := 0; i < len(w); i++ {
		if c := w[i] | 0x20; c < 'a' || c > 'z' {
			return false
		}
	}
	return true
}

func digits(w string) bool {
	for i := 0; i < len(w); i++ {
		if w[i] < '0' || w[i] > '9' {
			return false
		}
	}
	return w != ""
}

func hex(w string) bool {
	for i := 0; i < len(w); i++ {
		c := w[i]
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
			return false
		}
	}
	return true
}

// owners resolves the ids of a message. Unknown ids are returned with their fields.
func (t *Timeline) owners(m *run.Message) (reqs []*request, known map[*request]string, unknown []run.IDRef) {
	known = map[*request]string{}
	for _, ref := range m.IDs {
		r, by, wrapped := t.resolve(ref.Value)
		if r == nil && t.inName(ref.Value) {
			continue
		}
		if r == nil {
			if !slices.ContainsFunc(unknown, func(u run.IDRef) bool { return u.Value == ref.Value }) {
				unknown = append(unknown, ref)
			}
			continue
		}
		if wrapped && !strings.ContainsAny(ref.Value, ":@/") {
			t.own(r, ref.Value, aliasContains)
		}
		if _, dup := known[r]; !dup {
			reqs = append(reqs, r)
			known[r] = by
		}
	}
	return t.dropShared(reqs, known), known, unknown
}

// inName reports that a value holds a known id the way names of segments do ("<id>_encoder_0"):
// neither an alias nor the id of an unknown request.
func (t *Timeline) inName(value string) bool {
	for sub := range parts(value) {
		if t.ids.active[sub] != nil && nameHolds(value, sub) {
			return true
		}
	}
	return false
}

// dropShared takes back an alias that was learned from one shared message when it now stands
// beside another request's own id: it names something both have in common, not a request.
func (t *Timeline) dropShared(reqs []*request, known map[*request]string) []*request {
	if len(reqs) < 2 {
		return reqs
	}
	var strong []*request
	for _, r := range reqs {
		if !r.weakAlias(known[r]) {
			strong = append(strong, r)
		}
	}
	if len(strong) == 0 || len(strong) == len(reqs) {
		return reqs
	}
	for _, r := range reqs {
		if v := known[r]; r.weakAlias(v) {
			t.ids.shared[v] = true
			delete(t.ids.active, v)
			r.dropAlias(v)
		}
	}
	return strong
}

// attach joins a crossing to the requests that the ids of m name.
func (t *Timeline) attach(c *crossing, m *run.Message) {
	reqs, known, unknown := t.owners(m)
	atSend := m.Dir == run.Send
	for _, r := range reqs {
		c.tie(tie{req: r, atSend: atSend, atRecv: !atSend, weak: r.weakAlias(known[r])})
		r.adopt(c)
		r.lastNS = max(r.lastNS, messageNS(m))
	}
	if len(reqs) == 1 && m.Flags&run.MsgDuplicateID == 0 && len(unknown) == 1 && distinctFields(m) {
		t.own(reqs[0], unknown[0].Value, aliasMessage)
		return
	}
	if len(reqs) > 0 && m.Flags&run.MsgDuplicateID == 0 {
		return
	}
	for _, ref := range unknown {
		t.orphan(c, m, ref.Value)
	}
}

func distinctFields(m *run.Message) bool {
	for i, a := range m.IDs {
		for _, b := range m.IDs[:i] {
			if a.Field == b.Field && a.Value != b.Value {
				return false
			}
		}
	}
	return true
}

// orphan keeps a message whose id has no owner yet.
func (t *Timeline) orphan(c *crossing, m *run.Message, value string) {
	if i, ok := t.ids.done[value]; ok {
		t.lateMessages++
		t.results[i].late++
		return
	}
	o := t.ids.orphans[value]
	ns := messageNS(m)
	if o == nil {
		if len(t.ids.orphans) >= maxOrphans {
			t.dropOldestOrphans(maxOrphans / 4)
		}
		o = &orphan{value: value, firstNS: ns}
		if m.Dir == run.Send {
			o.fromTGID, o.firstNS = m.TGID, m.FirstEnterNS
		}
		t.ids.orphans[value] = o
	}
	o.lastNS = max(o.lastNS, ns)
	o.crossings = append(o.crossings, c)
	o.atSend = append(o.atSend, m.Dir == run.Send)
}

func (t *Timeline) dropOldestOrphans(n int) {
	l := t.orphanList()
	for _, o := range l[:min(n, len(l))] {
		t.dropOrphan(o)
	}
}

func (t *Timeline) dropOrphan(o *orphan) {
	t.orphanIDs++
	t.orphanMsgs += uint64(len(o.crossings))
	delete(t.ids.orphans, o.value)
}

// orphanList is in order of first sight.
func (t *Timeline) orphanList() []*orphan {
	l := make([]*orphan, 0, len(t.ids.orphans))
	for _, o := range t.ids.orphans {
		l = append(l, o)
	}
	slices.SortFunc(l, func(a, b *orphan) int {
		if a.firstNS != b.firstNS {
			return int(min(max(a.firstNS-b.firstNS, -1), 1))
		}
		return strings.Compare(a.value, b.value)
	})
	return l
}
