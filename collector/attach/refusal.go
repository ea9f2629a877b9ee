package attach

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// privileges is what decides whether the kernel takes a program from this process.
type privileges struct {
	caps          uint64 // effective
	lockdown      string // none, integrity, confidentiality; "" unknown
	userNamespace bool   // capabilities count in a user namespace only
	pidNamespace  bool   // PIDs are not those of the kernel programs
	release       string // of the kernel
}

// The inode of the first PID namespace is fixed in the kernel (PROC_PID_INIT_INO), as is the map of
// the first user namespace: all ids onto themselves.
const (
	initialPIDNamespace = "pid:[4026531836]"
	initialUIDMap       = "0 0 4294967295"
)

// needed are the capabilities that recording cannot do without. CAP_SYS_ADMIN stands in for both.
var needed = []struct {
	bit  int
	name string
}{{unix.CAP_BPF, "CAP_BPF"}, {unix.CAP_PERFMON, "CAP_PERFMON"}}

const (
	fixSudo      = "run with sudo, or grant CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH"
	fixContainer = "a container or security module forbids bpf(): run on the host, or start the container with --privileged --pid=host"
	fixLockdown  = "boot without lockdown=confidentiality; integrity is enough"
	fixUserNS    = "run as root of the host, outside of rootless containers"
	fixPIDNS     = "run on the host, or start the container with --pid=host"
	fixKernel    = "use Linux 6.1 or newer"
)

// older says that a kernel is older than any that recording is tested on. That forbids nothing:
// distributions bring parts of newer kernels into theirs.
func older(release string) error {
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("kernel release %q cannot be read", release)
	}
	if major < 6 || (major == 6 && minor < 1) {
		return fmt.Errorf("kernel %s is older than 6.1", release)
	}
	return nil
}

func readPrivileges() privileges {
	var u unix.Utsname
	_ = unix.Uname(&u)
	p := privileges{release: unix.ByteSliceToString(u.Release[:])}
	if b, err := os.ReadFile("/proc/self/status"); err == nil {
		p.caps = effectiveCaps(string(b))
	}
	if b, err := os.ReadFile("/sys/kernel/security/lockdown"); err == nil {
		p.lockdown = lockdownMode(b)
	}
	if b, err := os.ReadFile("/proc/self/uid_map"); err == nil {
		p.userNamespace = strings.Join(strings.Fields(string(b)), " ") != initialUIDMap
	}
	if l, err := os.Readlink("/proc/self/ns/pid"); err == nil {
		p.pidNamespace = l != initialPIDNamespace
	}
	return p
}

func effectiveCaps(status string) uint64 {
	for line := range strings.Lines(status) {
		if v, ok := strings.CutPrefix(line, "CapEff:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(v), 16, 64)
			return n
		}
	}
	return 0
}

// lockdownMode takes the mode in brackets: "none [integrity] confidentiality".
func lockdownMode(b []byte) string {
	_, rest, _ := bytes.Cut(b, []byte("["))
	mode, _, ok := bytes.Cut(rest, []byte("]"))
	if !ok {
		return ""
	}
	return string(mode)
}

func (p *privileges) has(bit int) bool { return p.caps>>bit&1 == 1 }

func (p *privileges) lacking() []string {
	var out []string
	for _, c := range needed {
		if !p.has(c.bit) && !p.has(unix.CAP_SYS_ADMIN) {
			out = append(out, c.name)
		}
	}
	return out
}

// forbidden tells a refusal by privilege from one by what the kernel can do.
func forbidden(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) && !isRejected(err) || errors.Is(err, fs.ErrPermission) && !isRejected(err)
}

// isRejected: the verifier read the program, and says why not.
func isRejected(err error) bool {
	var v *ebpf.VerifierError
	return errors.As(err, &v) && !errors.Is(err, unix.EPERM)
}

// refusal says in words why the kernel does not take a program, from its error and what this
// process may do. The library's own text is left out where it guesses (at MEMLOCK, for example,
// which has not counted since 5.11).
func (p *privileges) refusal(act string, err error) *Unsupported {
	lacking := p.lacking()
	switch {
	case p.lockdown == "confidentiality":
		return &Unsupported{What: "the kernel is locked down (confidentiality) and lets no program read other processes' memory", Fix: fixLockdown, Err: unix.EPERM}
	case forbidden(err) && p.userNamespace:
		return &Unsupported{What: "no permission to " + act + ": this process is in a user namespace, where capabilities do not count for eBPF", Fix: fixUserNS, Err: unix.EPERM}
	case forbidden(err) && len(lacking) > 0:
		return &Unsupported{What: fmt.Sprintf("no permission to %s: %s missing", act, strings.Join(lacking, " and ")), Fix: fixSudo, Err: unix.EPERM}
	case forbidden(err) && older(p.release) != nil: // before 5.11 a limit on locked memory, too, refuses so
		return &Unsupported{What: fmt.Sprintf("%v and gives no permission to %s although the capabilities are there", older(p.release), act), Fix: fixKernel + "; there, " + fixContainer, Err: unix.EPERM}
	case forbidden(err):
		return &Unsupported{What: "no permission to " + act + " although the capabilities are there", Fix: fixContainer, Err: unix.EPERM}
	case older(p.release) != nil:
		return &Unsupported{What: fmt.Sprintf("%v and cannot %s", older(p.release), act), Fix: fixKernel, Err: err}
	case isRejected(err):
		return &Unsupported{What: "this kernel rejects a program", Fix: "report the kernel version and this text", Err: err}
	}
	return &Unsupported{What: "this kernel cannot " + act, Fix: fixKernel + " with CONFIG_DEBUG_INFO_BTF; run stageline doctor", Err: err}
}

// Place refuses to record from where PIDs or memory are out of reach, whatever is recorded.
func Place() error {
	p := readPrivileges()
	return p.place()
}

// place refuses where PIDs would mean other processes than the user's.
func (p *privileges) place() error {
	if p.pidNamespace {
		return &Unsupported{What: "this is a PID namespace of its own: the kernel programs see other PIDs than this process", Fix: fixPIDNS}
	}
	if p.lockdown == "confidentiality" {
		return p.refusal("load eBPF programs", unix.EPERM)
	}
	return nil
}

// details names what cannot be read of processes of other users, nil when everything can.
func (p *privileges) details() error {
	if p.has(unix.CAP_SYS_PTRACE) && (os.Geteuid() == 0 || p.has(unix.CAP_DAC_READ_SEARCH) || p.has(unix.CAP_DAC_OVERRIDE)) {
		return nil
	}
	return errors.New("executables, bound sockets and mappings of other users' processes cannot be read: stages may go without a name")
}
