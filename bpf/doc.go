// Package bpf holds the kernel programs and the bytes they emit. abi.h is the single source of both
// sides' types; the object and the Go bindings are generated from it, committed, and regenerated and
// compared by `make check`.
//
// # Which hooks, and what they cost
//
// System calls are hooked where all of them pass (tp_btf sys_enter and sys_exit). The programs look
// at the number first, in a table of bytes, then ask another such table whether the process is
// recorded. The alternative, a tracepoint for each call of interest, spares calls that carry no
// data half of the price and charges the others more, whoever makes them. Medians of ns per call on
// the development machine (kernel 6.18, a virtual machine; 200 batches of 2000 calls; n = 1 run; the
// bare call first):
//
//	                          getppid  write /dev/null  eventfd  unix socket
//	bare                          165              196      248          870
//	empty programs, both          281              315      377         1159
//	empty programs, per call      228              424      493         1125
//	these, not recorded           282              339      403         1024
//	these, recorded               284              507      708         1702
//	(before: not recorded         344              428      486         1141)
//	(before: recorded             342             1366     2388         4916)
//
// (The last row was disturbed; its lower decile is 340, 937, 1233 and 2642.) A process that is not
// recorded therefore pays what the kernel takes to call an empty program, and 20 to 30 ns on calls
// that may carry data. That an empty program on these hooks adds 0.12 µs to a call at all is the
// kernel's: with any of these hooks in use, every call of every process takes the slow way in and
// out. Tracepoints per call need tracefs besides, by which their numbers are found (it need not be
// mounted: fsopen and fsmount give a private one).
//
// What made the difference to before: plain loads instead of a helper call for each field (read.h;
// kernels before 6.2 keep the helper for what comes from a descriptor), and a table of bytes
// instead of a hash of PIDs (filter.h).
//
// What a recorded call does after that is mostly to find things: the object behind the descriptor,
// the stream's count in a table, the bytes that the decoders want. Each look into the table is paid
// with a few lines of cold memory, so a stream remembers what is to be captured until user space says
// that something has changed (sl_capture_gen), sends stop asking for the alignment of their channel
// once 32 in a row have agreed (one in 64 goes on), and eventfds are told by their operations instead
// of their name.
//
// # When user space looks
//
// Every 400 ms while less comes than a 64th of the ring in that time, else every 100 ms, and when the
// programs wake it: when a quarter of the ring is full (sl_wake_bytes), or a process is born. Waking up
// takes 0.1 ms of CPU with all that a Go program does for it, all memory being cold; a timer of the Go
// runtime and a call that asks for the counters of losses make that 0.4 ms, so the kernel keeps the
// timer, and the counters are read when one has moved (sl_lost).
//
// One word, sl_on, ends the recording for all programs and all targets. It is read for targets
// alone, so it costs other processes nothing.
//
// Eventfds, pipes and socketpairs that only wake a thread are most of the records. They stay: who
// signals whom is how the roles of threads are learned. An eventfd's bytes are neither captured nor
// is it announced.
package bpf
