package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

const allCaps = uint64(1)<<41 - 1

// What the user reads follows from the error and from what the process may do.
func TestRefusalText(t *testing.T) {
	eperm := fmt.Errorf("load program: %w (MEMLOCK may be too low, consider rlimit.RemoveMemlock)", unix.EPERM)
	rejected := fmt.Errorf("program sl_sys_exit: %w", &ebpf.VerifierError{Cause: unix.EINVAL, Log: []string{"unknown func bpf_probe_read_kernel#113"}})
	unreadable := fmt.Errorf("program sl_sys_exit: %w", &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"R2 invalid mem access"}})
	bit := func(n int) uint64 { return 1 << n }
	for _, c := range []struct {
		name string
		p    privileges
		err  error
		want []string
	}{
		{"no capability", privileges{lockdown: "none"}, eperm, []string{"CAP_BPF and CAP_PERFMON missing", "run with sudo"}},
		{"only CAP_BPF", privileges{caps: bit(unix.CAP_BPF)}, eperm, []string{": CAP_PERFMON missing", "run with sudo"}},
		{"all of them", privileges{caps: allCaps, lockdown: "integrity"}, eperm, []string{"although the capabilities are there", "--privileged"}},
		{"CAP_SYS_ADMIN stands in", privileges{caps: bit(unix.CAP_SYS_ADMIN)}, eperm, []string{"although the capabilities are there"}},
		{"user namespace", privileges{caps: allCaps, userNamespace: true}, eperm, []string{"user namespace", "root of the host"}},
		{"lockdown, program rejected", privileges{caps: allCaps, lockdown: "confidentiality"}, rejected, []string{"locked down (confidentiality)", "lockdown=confidentiality"}},
		{"lockdown, refused", privileges{lockdown: "confidentiality"}, eperm, []string{"locked down (confidentiality)"}},
		{"verifier", privileges{caps: allCaps}, rejected, []string{"rejects a program", "bpf_probe_read_kernel"}},
		{"verifier says EACCES", privileges{caps: allCaps}, unreadable, []string{"rejects a program", "invalid mem access"}},
		{"no such call", privileges{caps: allCaps}, unix.ENOSYS, []string{"this kernel cannot load", "6.1"}},
		{"too old", privileges{caps: allCaps, release: "5.10.0-46-cloud-amd64"}, unix.E2BIG, []string{"kernel 5.10.0-46-cloud-amd64 is older than 6.1 and cannot load", "use Linux 6.1 or newer"}},
		{"too old, rejected", privileges{caps: allCaps, release: "5.4.0"}, rejected, []string{"kernel 5.4.0 is older than 6.1", "bpf_probe_read_kernel"}},
		{"too old, refused", privileges{caps: allCaps, release: "5.10.0"}, eperm, []string{"kernel 5.10.0 is older than 6.1 and gives no permission to load", "use Linux 6.1 or newer", "--privileged"}},
		{"old, not root", privileges{release: "5.10.0"}, eperm, []string{"CAP_BPF and CAP_PERFMON missing"}},
		{"not supported", privileges{caps: allCaps}, ebpf.ErrNotSupported, []string{"this kernel cannot load", "6.1"}},
	} {
		if c.p.release == "" {
			c.p.release = "6.1.0"
		}
		u := c.p.refusal("load eBPF programs", c.err)
		for _, want := range c.want {
			if !strings.Contains(u.Error(), want) {
				t.Errorf("%s: %q does not say %q", c.name, u, want)
			}
		}
		if strings.Contains(u.Error(), "MEMLOCK") || u.ExitCode() != 3 {
			t.Errorf("%s: %q (exit %d)", c.name, u, u.ExitCode())
		}
	}
	if s := noTypes(unix.ENOENT).Error(); !strings.Contains(s, "BTF") || !strings.Contains(s, "CONFIG_DEBUG_INFO_BTF") {
		t.Errorf("without BTF: %q", s)
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		p    privileges
		want string // "" nil
	}{
		{privileges{caps: allCaps, lockdown: "integrity"}, ""},
		{privileges{caps: allCaps, pidNamespace: true}, "--pid=host"},
		{privileges{caps: allCaps, lockdown: "confidentiality"}, "locked down"},
	} {
		err := c.p.place()
		var u *Unsupported
		if (err == nil) != (c.want == "") || err != nil && (!errors.As(err, &u) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.p, err, c.want)
		}
	}
}

func TestReadPrivileges(t *testing.T) {
	for in, want := range map[string]string{"none [integrity] confidentiality\n": "integrity", "[none] integrity confidentiality": "none", "": "", "[": ""} {
		if got := lockdownMode([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := effectiveCaps("Name:\tx\nCapPrm:\t0000000000000001\nCapEff:\t000001fffeffffff\n"); got != 0x1fffeffffff {
		t.Errorf("got %x", got)
	}
}
