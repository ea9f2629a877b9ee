// Package loadgen sends a planned load to an HTTP inference server and records, for every planned
// request, when it should have been sent, when it was sent, and when each part of the reply
// reached this process.
//
// A Plan is made before the run: identifiers, order and (in open loop) absolute send times, so that
// two runs can be given the same load whatever the number of workers. Run executes it and hands one
// run.Request per planned request to a callback: nothing that was planned is ever missing from the
// count, and no request is retried unless the plan says so; each attempt is then a record of its own.
//
// The client is its own HTTP/1.1 client (HTTP/2 over the frames of golang.org/x/net), because a
// general one hides what has to be measured: it retries on a dead connection, buffers reads, and asks
// for compression. Every socket read is stamped before a byte of it is parsed.
//
// Measure takes the figures of one request from its record, under the definitions that Summary
// prints; what a request does not have is not applicable, what nobody stated is unknown, and neither
// is a zero.
//
// No reply text is kept. Error texts of the server are kept shortened, and withheld when they quote
// the prompt.
package loadgen
