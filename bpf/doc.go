// Package bpf holds the kernel programs and the bytes they emit. abi.h is the single source of both
// sides' types; the object and the Go bindings are generated from it, committed, and regenerated and
// compared by `make check`.
package bpf
