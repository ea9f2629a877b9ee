package bpf

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -cc clang-19 -strip llvm-strip-19 -target amd64 -go-package bpf -type sl_kind -type sl_transport -type sl_dir -type sl_loss -type sl_shm_op -type sl_off_state -type sl_proc_event -type sl_net_event -type sl_io_flag -type sl_target -type sl_hdr -type sl_ep -type sl_endpoint -type sl_io -type sl_shm -type sl_offcpu -type sl_proc -type sl_net -type sl_stream_key -type sl_stream -type sl_map_key -type sl_map_val -type sl_count Stageline stageline.bpf.c -- -g -O2 -Wall -Werror -D__TARGET_ARCH_x86 -I/usr/include/x86_64-linux-gnu
