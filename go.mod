module github.com/stageline/stageline

go 1.26.0

require (
	github.com/cilium/ebpf v0.22.0
	github.com/klauspost/compress v1.18.0
	github.com/parquet-go/parquet-go v0.32.0
	github.com/spf13/pflag v1.1.0
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.50.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/andybalholm/brotli v1.1.1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/parquet-go/bitpack v1.0.0 // indirect
	github.com/parquet-go/jsonlite v1.0.0 // indirect
	github.com/pierrec/lz4/v4 v4.1.21 // indirect
	github.com/twpayne/go-geom v1.6.1 // indirect
)

require golang.org/x/text v0.43.0 // indirect

tool github.com/cilium/ebpf/cmd/bpf2go
