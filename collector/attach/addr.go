package attach

import (
	"encoding/hex"
	"net/netip"
	"strconv"
	"strings"
)

// hexAddr reads an address of /proc/net/tcp{,6}: each 32-bit word in host byte order, then the port.
func hexAddr(s string) string {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return ""
	}
	b, err := hex.DecodeString(host)
	if err != nil || len(b)%4 != 0 {
		return ""
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	a, ok := netip.AddrFromSlice(b)
	p, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return ""
	}
	return netip.AddrPortFrom(a.Unmap(), uint16(p)).String()
}
