module github.com/stageline/stageline

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/spf13/pflag v1.1.0
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)

tool github.com/cilium/ebpf/cmd/bpf2go
