package correlate

import (
	"testing"

	"github.com/stageline/stageline/collector/run"
)

// A connection of one end each: namespace, local and remote address.
type tcpEnd struct {
	ns            uint32
	local, remote string
}

// Which ends are one channel follows from the addresses where only one other fits, else from the
// bytes that were moved; a channel that was guessed wrong is taken back.
func TestTCPPairs(t *testing.T) {
	const client, server, service, far = "10.0.0.1:40000", "10.0.0.2:80", "10.9.9.9:80", "10.0.0.2:8080"
	const client2, gate, gate2 = "10.0.0.1:40001", "10.0.0.254:1024", "10.0.0.254:1025"
	send := func(ep uint32, pos uint64) run.IO {
		return run.IO{EP: ep, Dir: run.Send, TGID: ep, TID: ep, EnterNS: baseNS, ExitNS: baseNS + 1, Pos: pos, Ret: 10, Queued: -1}
	}
	recv := func(ep uint32, pos uint64) run.IO {
		r := send(ep, pos)
		r.Dir = run.Recv
		return r
	}
	for _, c := range []struct {
		name string
		ends []tcpEnd
		io   []run.IO
		want []uint32 // peer of each end, 0 none
	}{
		{"one namespace", []tcpEnd{{1, client, server}, {1, server, client}}, nil, []uint32{2, 1}},
		{"two namespaces", []tcpEnd{{1, client, server}, {2, server, client}}, nil, []uint32{2, 1}},
		{"loopback of two namespaces", []tcpEnd{{1, "127.0.0.1:1", "127.0.0.1:2"}, {2, "127.0.0.1:2", "127.0.0.1:1"}}, nil, []uint32{0, 0}},
		{"the same addresses twice, nothing said", []tcpEnd{{1, client, server}, {3, client, server}, {2, server, client}, {4, server, client}}, nil, []uint32{0, 0, 0, 0}},
		{"the same addresses twice", []tcpEnd{{1, client, server}, {3, client, server}, {2, server, client}, {4, server, client}},
			[]run.IO{send(1, 1000), send(2, 5000), recv(3, 1000), recv(4, 5000)}, []uint32{3, 4, 1, 2}},
		{"guessed wrong at first", []tcpEnd{{1, client, server}, {4, server, client}, {3, client, server}, {2, server, client}},
			[]run.IO{send(1, 1000), send(3, 5000), recv(2, 5000), recv(4, 1000)}, []uint32{4, 3, 2, 1}},
		{"destination translated", []tcpEnd{{1, client, service}, {2, far, client}}, []run.IO{send(1, 1000), recv(2, 1000)}, []uint32{2, 1}},
		{"destination translated, the reader is told first", []tcpEnd{{1, client, service}, {2, far, client}}, []run.IO{recv(2, 1000), send(1, 1000)}, []uint32{2, 1}},
		{"destination translated on the host", []tcpEnd{{1, "127.0.0.1:4", "127.0.0.1:80"}, {1, "127.0.0.1:8080", "127.0.0.1:4"}}, []run.IO{send(1, 1000), recv(2, 1000)}, []uint32{2, 1}},
		{"other bytes", []tcpEnd{{1, client, service}, {2, far, client}}, []run.IO{send(1, 1000), recv(2, 1010)}, []uint32{0, 0}},
		{"both translated", []tcpEnd{{1, client, service}, {2, far, gate}}, []run.IO{send(1, 1000), recv(2, 1000), send(2, 7000), recv(1, 7000)}, []uint32{2, 1}},
		{"both translated, calls of one end first", []tcpEnd{{1, client, service}, {2, far, gate}}, []run.IO{recv(2, 1000), send(2, 7000), recv(1, 7000), send(1, 1000)}, []uint32{2, 1}},
		{"both translated, one direction alone", []tcpEnd{{1, client, service}, {2, far, gate}}, []run.IO{send(1, 1000), recv(2, 1000)}, []uint32{0, 0}},
		{"both translated, the other direction elsewhere", []tcpEnd{{1, client, service}, {2, far, gate}}, []run.IO{send(1, 1000), recv(2, 1000), send(2, 7000), recv(1, 7001)}, []uint32{0, 0}},
		{"both translated, two at once", []tcpEnd{{1, client, service}, {2, far, gate}, {1, client2, service}, {2, far, gate2}},
			[]run.IO{send(1, 1000), send(3, 5000), recv(4, 1000), recv(2, 5000), send(4, 7000), send(2, 9000), recv(1, 7000), recv(3, 9000)}, []uint32{4, 3, 2, 1}},
		{"loopback of two namespaces, the same positions", []tcpEnd{{1, "127.0.0.1:1", "127.0.0.1:2"}, {2, "127.0.0.1:3", "127.0.0.1:4"}}, []run.IO{send(1, 1000), recv(2, 1000), send(2, 7000), recv(1, 7000)}, []uint32{0, 0}},
		{"around 2^32", []tcpEnd{{1, client, service}, {2, far, client}}, []run.IO{send(1, 1<<32+5), recv(2, 5)}, []uint32{2, 1}},
	} {
		tl := New(Options{})
		for i, e := range c.ends {
			tl.Endpoint(&run.Endpoint{ID: uint32(i + 1), Transport: run.TransportTCP, NetNS: e.ns, Local: e.local, Remote: e.remote, PosAbsolute: true, FirstNS: baseNS})
		}
		for i := range c.io {
			tl.IO(&c.io[i])
		}
		for i, want := range c.want {
			got := uint32(0)
			if p := tl.endpoints[uint32(i+1)].peer; p != nil {
				got = p.ID
			}
			if got != want {
				t.Errorf("%s: end %d has peer %d, want %d", c.name, i+1, got, want)
			}
		}
		for _, e := range tl.endpoints {
			tl.forget(e.ID, e)
		}
		if n := len(tl.tcp.byLocal) + len(tl.tcp.byRemote) + len(tl.tcp.byStart); n > 0 {
			t.Errorf("%s: %d entries left of endpoints that are forgotten", c.name, n)
		}
	}
}
