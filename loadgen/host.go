package loadgen

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// hostIdentity names the machine that a certificate speaks of.
func hostIdentity() (host, kernel string, cpus int) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Release[:])
	}
	return host, kernel, runtime.NumCPU()
}

// SameHost says whether the certificate was made on this machine with this kernel.
func (c *Certificate) SameHost() bool {
	host, kernel, cpus := hostIdentity()
	return c.Host == host && c.Kernel == kernel && c.CPUs == cpus
}
