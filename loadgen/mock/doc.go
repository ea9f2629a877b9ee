// Package mock is an inference server of known times: it answers every chat completion with the same
// number of tokens, the first a fixed time after the kernel received the request, the others at a
// fixed interval. Just before each write it reads the clock, and it hands these stamps out, so that
// whoever measures it can be told from what it did.
//
// One thread does everything with non-blocking sockets and one timer: a server with a thread or a
// goroutine a stream would take from the client under test more of the processor than it measures.
// The stamps travel beside the replies (GET /stamps), not in them: the client parses what it would
// parse from an engine.
package mock
