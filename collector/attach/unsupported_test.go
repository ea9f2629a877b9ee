package attach

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stageline/stageline/bpf"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: loads programs into the running kernel")
	}
}

// lacking loads the programs as on a kernel without the event that one of them traces.
func lacking(t *testing.T, name string) (*Programs, error) {
	t.Helper()
	spec, err := bpf.LoadStageline()
	if err != nil {
		t.Fatal(err)
	}
	spec.Programs[name].AttachTo = "no_such_event"
	p := &Programs{}
	if err := p.load(spec, Options{}); err != nil {
		return nil, err
	}
	t.Cleanup(func() { p.Close() })
	return p, p.attach()
}

// A kernel without an optional event records without it and says which.
func TestKernelLacksOptionalHook(t *testing.T) {
	needRoot(t)
	for _, h := range hooks {
		if !h.optional {
			continue
		}
		p, err := lacking(t, h.name)
		if err != nil {
			t.Fatalf("without %s: %v", h.name, err)
		}
		if len(p.Missing) != 1 || p.Missing[0] != h.name || len(p.links) != len(hooks)-1 {
			t.Errorf("without %s: missing %v, %d programs attached of %d", h.name, p.Missing, len(p.links), len(hooks))
		}
	}
}

// A kernel without a required event cannot record: the error says so, names the event, and stands
// for exit code 3.
func TestKernelLacksRequiredHook(t *testing.T) {
	needRoot(t)
	for _, h := range hooks {
		if h.optional {
			continue
		}
		_, err := lacking(t, h.name)
		var u *Unsupported
		if !errors.As(err, &u) || u.ExitCode() != 3 {
			t.Errorf("without %s: %v, want an Unsupported of exit code 3", h.name, err)
			continue
		}
		if s := err.Error(); !strings.Contains(s, "no_such_event") || !strings.Contains(s, "stageline doctor") || strings.Contains(s, "\n") {
			t.Errorf("without %s the error is %q: it must name the event and what to do, in one line", h.name, s)
		}
	}
}

func TestUnsupportedText(t *testing.T) {
	for _, c := range []struct {
		u    Unsupported
		want string
	}{
		{Unsupported{What: "no permission", Fix: "run with sudo", Err: unix.EPERM}, "no permission: operation not permitted (run with sudo)"},
		{Unsupported{What: "no hook"}, "no hook"},
	} {
		if got := c.u.Error(); got != c.want || c.u.ExitCode() != 3 || !errors.Is(&c.u, c.u.Err) && c.u.Err != nil {
			t.Errorf("got %q (exit %d), want %q and 3", got, c.u.ExitCode(), c.want)
		}
	}
}

// A host on which a required row fails cannot record; optional ones do not count.
func TestCanRecord(t *testing.T) {
	for _, c := range []struct {
		rows []Finding
		want bool
	}{
		{[]Finding{{OK: true, Required: true}, {OK: false}}, true},
		{[]Finding{{OK: true, Required: true}, {OK: false, Required: true}}, false},
	} {
		if got := CanRecord(c.rows); got != c.want {
			t.Errorf("%+v: %v, want %v", c.rows, got, c.want)
		}
	}
	for _, release := range []string{"6.0.19", "5.14.21", "4.19.0-25-amd64", "none"} {
		if older(release) == nil {
			t.Errorf("kernel %s is taken for new enough", release)
		}
	}
	for _, release := range []string{"6.1.0-40-amd64", "6.12", "10.0"} {
		if err := older(release); err != nil {
			t.Errorf("kernel %s: %v", release, err)
		}
	}
}

// Here, where the tests record, the programs load for the doctor as well.
func TestDoctorTriesThePrograms(t *testing.T) {
	needRoot(t)
	if err := tryPrograms(); err != nil {
		t.Error(err)
	}
}
