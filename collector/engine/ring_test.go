package engine

import "testing"

func TestRingOf(t *testing.T) {
	for _, c := range []struct {
		name    string
		size    int64
		ok      bool
		chunk   int64
		readers int
		child   bool
	}{
		{"scheduler broadcast, one reader", (16<<20 + 2) * 10, true, 16 << 20, 1, false},
		{"scheduler broadcast, eight readers", (16<<20 + 9) * 10, true, 16 << 20, 8, false},
		{"replies of a worker", 251658260, true, 24 << 20, 1, true},
		{"chunks set to 1 MiB", (1<<20 + 2) * 10, true, 1 << 20, 1, false},
		{"no readers", (16<<20 + 1) * 10, false, 0, 0, false},
		{"a plain segment of 160 MiB", 160 << 20, false, 0, 0, false},
		{"small", 4096, false, 0, 0, false},
		{"more readers than are known of", (16<<20 + 999) * 10, false, 0, 0, false},
	} {
		l, ok := RingOf(c.size)
		if ok != c.ok || ok && (l.ChunkBytes != c.chunk || l.Readers != c.readers || l.WriterIsChild != c.child) {
			t.Errorf("%s: %+v %v", c.name, l, ok)
		}
		if ok && l.MetaAt()+int64(l.MetaBytes()) != c.size {
			t.Errorf("%s: the flags end at %d of %d", c.name, l.MetaAt()+int64(l.MetaBytes()), c.size)
		}
	}
}

func TestRingMessage(t *testing.T) {
	l, _ := RingOf((1<<20 + 2) * 10)
	for _, c := range []struct {
		name  string
		head  string
		bytes int64
		body  string
		whole bool
		away  bool
	}{
		{"one buffer", "\x00\x00\x01\x00\x00\x00\x03abcjunk", 10, "abc", true, false},
		{"two buffers", "\x00\x00\x02\x00\x00\x00\x03abc\x00\x00\x00\x02deX", 16, "abc", true, false},
		{"the first goes beyond the head", "\x00\x00\x01\x00\x00\x00\x09abc", 16, "abc", false, false},
		{"the length of the second does", "\x00\x00\x02\x00\x00\x00\x03abc\x00", -1, "abc", true, false},
		{"earlier versions: a pickle alone", "\x00\x80\x05K\x01.", -1, "\x80\x05K\x01.", false, false},
		{"over a socket", "\x01\x00\x00", -1, "", false, true},
		{"a length that no chunk holds", "\x00\x00\x01\xff\xff\xff\xffabc", -1, "abc", false, false},
		{"cut", "\x00", -1, "", false, false},
	} {
		m := l.Message([]byte(c.head))
		if m.Bytes != c.bytes || string(m.Body) != c.body || m.Whole != c.whole || m.Elsewhere != c.away {
			t.Errorf("%s: %+v", c.name, m)
		}
	}
}
