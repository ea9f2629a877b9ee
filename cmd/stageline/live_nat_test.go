package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stageline/stageline/correlate"
	"github.com/stageline/stageline/export"
)

// Addresses of the containers of these tests. The service has no interface anywhere: like a
// container's published port, it exists in the router's rules alone.
const (
	natFront, natFrontGate   = "10.77.1.2", "10.77.1.1"
	natWorker, natWorkerGate = "10.77.2.2", "10.77.2.1"
	natService               = "10.77.9.9:80"
	natPort                  = "8080" // of the worker
)

// serveWork has a puppet answer at an address as a worker does.
func serveWork(addr string) (string, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return "", err
	}
	go http.Serve(ln, http.HandlerFunc(answerWork))
	return "serving", nil
}

// serveFront has a puppet pass requests on to a worker at an address. It says its own address.
func serveFront(worker string) (string, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", worker)
	}}}
	go http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { passOn(client, w, req) }))
	return ln.Addr().String(), nil
}

// inNet runs a command in the network namespace of a puppet.
func (p *puppet) inNet(t *testing.T, stdin, name string, args ...string) outcome {
	t.Helper()
	cmd := exec.Command("nsenter", append([]string{"--net=" + fmt.Sprintf("/proc/%d/ns/net", p.pid), name}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return finish(t, cmd)
}

// connectByNAT connects two containers through a third, which translates the service to the worker;
// with masquerade it puts its own address in the client's place as well.
func connectByNAT(t *testing.T, front, worker, router *puppet, masquerade bool) {
	t.Helper()
	script := fmt.Sprintf("link add front type veth peer name eth0 netns %d\nlink add worker type veth peer name eth0 netns %d\n", front.pid, worker.pid)
	script += fmt.Sprintf("addr add %s/24 dev front\naddr add %s/24 dev worker\nlink set front up\nlink set worker up\n", natFrontGate, natWorkerGate)
	router.inNet(t, script, "ip", "-batch", "-").want(t, exitOK)
	for p, addr := range map[*puppet][2]string{front: {natFront, natFrontGate}, worker: {natWorker, natWorkerGate}} {
		p.inNet(t, fmt.Sprintf("addr add %s/24 dev eth0\nlink set eth0 up\nroute add default via %s\n", addr[0], addr[1]), "ip", "-batch", "-").want(t, exitOK)
	}
	router.inNet(t, "1\n", "tee", "/proc/sys/net/ipv4/ip_forward").want(t, exitOK)
	host, port, _ := strings.Cut(natService, ":")
	rules := fmt.Sprintf("table ip nat {\nchain in { type nat hook prerouting priority -100; ip daddr %s tcp dport %s dnat to %s:%s; }\n", host, port, natWorker, natPort)
	if masquerade {
		rules += "chain out { type nat hook postrouting priority 100; masquerade; }\n"
	}
	o := router.inNet(t, rules+"}\n", "nft", "-f", "-")
	if strings.Contains(o.stderr, "not supported") || strings.Contains(o.stderr, "No such file or directory") {
		t.Skipf("needs a kernel with nf_tables and its translation of addresses: %s", o.stderr)
	}
	o.want(t, exitOK)
}

// natLoad sends requests from beside the front, and returns once all are answered. That they are
// sent in time does not matter here.
func natLoad(t *testing.T, front *puppet, url, dir string, n int) {
	t.Helper()
	o := front.inNet(t, "", built(t, "stageline"), "load", "-u", url, "--stream=false", "-c", "4", "-n", fmt.Sprint(n), "-o", dir)
	if o.code != exitInconclusive {
		o.want(t, exitOK)
	}
}

// checkTranslated wants n requests with one hop to the worker and one back, and each message of
// theirs at both ends.
func checkTranslated(t *testing.T, doc *export.Document, front, worker uint32, n int) {
	t.Helper()
	if len(doc.Requests) != n {
		t.Errorf("%d requests, want %d", len(doc.Requests), n)
	}
	for i := range doc.Requests {
		q := &doc.Requests[i]
		way := map[[2]uint32]int{}
		for _, h := range q.Hops {
			way[[2]uint32{h.FromTGID, h.ToTGID}]++
			if h.Send.Timing != correlate.TimingSeen || h.Recv.Timing != correlate.TimingSeen {
				t.Errorf("%s: hop %s → %s is %s and %s, want both ends seen", q.ID, h.From, h.To, h.Send.Timing, h.Recv.Timing)
			}
		}
		if want := map[[2]uint32]int{{front, worker}: 1, {worker, front}: 1}; q.State != "success" || !maps.Equal(way, want) {
			t.Errorf("%s: state %s, hops by PIDs %v, want %v", q.ID, q.State, way, want)
		}
	}
	c := doc.Counts
	if c.MessagesPaired != 4*uint64(n) || c.MessagesOneEnded != 0 || c.MessagesOutside != 0 || c.MessagesAtEntry != 2*uint64(n) {
		t.Errorf("messages %+v, want %d at both ends (each counted there), %d at the entry, none elsewhere", c, 4*n, 2*n)
	}
}

// Between two containers, a port of another address is translated to the worker's, as published
// ports and service addresses are; in the second case the client's address is translated as well.
// Both ends are one channel: of no request anything is missed or invented, on connections older and
// younger than the recording.
func TestLiveTranslatedAddress(t *testing.T) {
	needLive(t)
	for _, tool := range []string{"ip", "nft", "nsenter"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s (Debian: iproute2, nftables, util-linux), to connect network namespaces", tool)
		}
	}
	for _, c := range []struct {
		name       string
		masquerade bool
	}{{"destination", false}, {"both", true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := workDir(t)
			root := filepath.Join(dir, "root")
			if err := os.Mkdir(root, 0o755); err != nil {
				t.Fatal(err)
			}
			front, worker, router := boxed(t, ""), boxed(t, root), boxed(t, "")
			connectByNAT(t, front, worker, router, c.masquerade)
			worker.do(t, "serve %s", net.JoinHostPort(natWorker, natPort))
			url := "http://" + front.do(t, "front %s", natService)
			natLoad(t, front, url, filepath.Join(dir, "before"), 2) // fewer connections than come during the recording
			out := filepath.Join(dir, "run")
			r := startRecord(t, "-p", pidList(front.pid, worker.pid), "-o", out)
			natLoad(t, front, url, filepath.Join(dir, "during"), 41)
			r.interrupt(t).want(t, exitOK)
			checkTranslated(t, loadDocument(t, out), uint32(front.pid), uint32(worker.pid), 41)
		})
	}
}
