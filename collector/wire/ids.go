package wire

import "sync"

const (
	maxIDLen    = 256
	maxNameLen  = 64 // types, stage names
	minScanLen  = 6  // shorter ids are too likely to occur in other text by accident
	maxIDs      = 1 << 16
	maxIDTokens = 24
	maxRefs     = 1024 // ids of one message
)

var idByte = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "_.:/@{}-+=~#" {
		t[c] = true
	}
	return t
}()

// IDShaped reports whether s may be stored as an identifier: 1 to 256 bytes, letters, digits and
// a few signs, no white space. It is the gate between payloads and records.
func IDShaped(s string) bool { return idShaped([]byte(s), maxIDLen) }

func idShaped(b []byte, limit int) bool {
	if len(b) == 0 || len(b) > limit {
		return false
	}
	for _, c := range b {
		if !idByte[c] {
			return false
		}
	}
	return true
}

func hasDigit(b []byte) bool {
	for _, c := range b {
		if c >= '0' && c <= '9' {
			return true
		}
	}
	return false
}

// IDSet holds identifiers known to be request ids. It keeps the last 65,536 and is safe for
// concurrent use.
type IDSet struct {
	mu    sync.RWMutex
	known map[string]struct{}
	order []string // ring of the same ids, oldest at next once full
	next  int
	lens  [maxIDLen + 1]uint32 // ids by length: most strings are dismissed by theirs
}

// NewIDSet returns an empty set.
func NewIDSet() *IDSet { return &IDSet{known: make(map[string]struct{})} }

// Learn adds an identifier. Text that is not id-shaped is ignored.
func (s *IDSet) Learn(id string) {
	if !IDShaped(id) {
		return
	}
	s.mu.RLock()
	_, ok := s.known[id]
	s.mu.RUnlock()
	if ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.known[id]; ok {
		return
	}
	if len(s.order) < maxIDs {
		s.order = append(s.order, id)
	} else {
		old := s.order[s.next]
		delete(s.known, old)
		s.lens[len(old)]--
		s.order[s.next] = id
		s.next = (s.next + 1) % maxIDs
	}
	s.known[id] = struct{}{}
	s.lens[len(id)]++
}

// Has reports whether id was learned and is still held.
func (s *IDSet) Has(id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.known[id]
	return ok
}

// within reports whether b is a known id or wraps one at token borders (chatcmpl-<id>,
// <id>-<8 hex>, <id>:payload:a:b). Ids without a digit or shorter than minScanLen do not count:
// words would match.
func (s *IDSet) within(b []byte) bool {
	if len(b) < minScanLen || !idShaped(b, maxIDLen) || !hasDigit(b) {
		return false
	}
	var starts, ends [maxIDTokens]int
	n := 0
	for i := 0; i < len(b) && n < maxIDTokens; {
		j := i
		for j < len(b) && !separator(b[j]) {
			j++
		}
		starts[n], ends[n] = i, j
		n++
		i = j + 1
	}
	// The last token reaches to the end even when there were too many to list.
	ends[n-1] = max(ends[n-1], len(b)*(n/maxIDTokens))
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := range n {
		for j := n - 1; j >= i; j-- {
			l := ends[j] - starts[i]
			if l < minScanLen {
				break
			}
			if s.lens[l] == 0 {
				continue
			}
			id := b[starts[i]:ends[j]]
			if _, ok := s.known[string(id)]; ok && hasDigit(id) {
				return true
			}
		}
	}
	return false
}

func separator(c byte) bool {
	return c == '-' || c == '_' || c == ':' || c == '/' || c == '@' || c == '.'
}
