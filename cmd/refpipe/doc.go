// Command refpipe is a reference pipeline that logs its own truth: an HTTP API
// in Go, stages in processes of their own (in C, or in Python with libzmq), and
// every kind of hop that multi-stage engines use between them. It is there to
// measure a profiler that sees it from outside: nothing of the profiler may
// know it by name.
//
// The seed decides topology, names, thread layout and service times (Draw).
// Preprocessing feeds two encoders, which join; a thinker with continuous
// batching streams text to the API and feeds a talker, whose chunks a vocoder
// turns into audio.
//
// # Truth
//
// All times are CLOCK_MONOTONIC, read through the vDSO into memory that was
// mapped before the first request, and written to the truth file at the end; a
// killed worker's records survive it. The boundaries of a visit are
//
//	arrival    the read call that brought the input's last byte has returned;
//	           for a polled segment: it is copied and unlinked
//	ready      the last input is decoded and copied, just before it is queued
//	start      a compute thread has taken the request and begins
//	finish     the last output is computed, just before it is handed over
//	departure  just before the write call with the first byte of the last output
//
// and those of a hop the write call that carries the message's first byte and
// the read call that brings its last one. Python stages cannot stamp the calls
// of libzmq's I/O thread: there a message is sent just before the socket's send
// and received when its recv has returned (meta.send_stamp says which). A hop of
// transport memory stays inside one process; one of transport shm is a chunk
// that its receiver found by polling, sent just before the segment is created.
//
// Stages sleep for most of their service time, as one does that waits for a GPU. With --cpu-bound they
// compute all of it, for a quarter as long: service is then CPU time, and start and finish lie further
// apart where another has the CPU meanwhile.
//
// A request line names the client's id, the string in the stages' messages
// (wire_id), the reply's id and the header's; speech ignores the header.
//
// # Faults
//
// A slow stage has its service times multiplied. A slow hop leaves the message
// in the receiver's socket for so long before it is read; the first message of
// each connection passes, for it tells who sends there, and Python stages delay
// after libzmq has read. A stalled reader reads nothing for 300 of every 1500 ms.
// A big payload is serialised byte by byte in the loop thread once compute has finished, and copied
// like any other; its receiver drops it again. Only stages in C make one.
// A killed worker fails the requests in flight, and all later ones if its stage
// has no second process.
package main
