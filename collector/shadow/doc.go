// Package shadow watches rings in shared memory that pass messages without a system call. It looks
// at a ring at an interval and says between which two looks a message was put there and taken, and
// which ids it holds.
//
// # What it may do to the target
//
// Nothing. The segment is opened read-only, by /proc/PID/map_files, so that a name that is gone or of
// another mount namespace does not matter, without touching its access time, and read with pread.
// A mapping of its own would be cheaper, but it raises SIGBUS when the segment is truncated and
// allocates a page of the target's memory for each hole it touches; process_vm_readv takes the
// target's mmap lock, which a map or unmap of the target then waits for, and ends with the process.
// pread on the file does none of that: it takes no lock of the target, reads holes as zeros, comes
// back short when the file was cut, and goes on after unlink and exit. BenchmarkLook has the costs.
//
// # What it can miss
//
// A ring is written in order, so each look examines the flags and the head of the chunk that comes
// next: the flags alone do not change when a message is put there and taken between two looks. A
// message with the same bytes as the one a lap before it is found when a later chunk changes; it is
// then marked MsgGuessed. Where all chunks have changed between two looks the writer may have gone
// round and written over messages: that is counted as loss (ring-lapped, one at least), what lies there
// is taken once, and the writer's place is found anew.
//
// # Watchpoints
//
// Where the machine has debug registers that work, the flags are watched by hardware too, in each
// thread of the writer and the readers. A hit tells who wrote, when, and what the flags were then. It
// makes no message: looks find those, and their ids; a hit only replaces the two looks between which
// an end lies by its moment. What is not certain stays as it was: chunks beyond the registers, and
// whatever follows a lost hit until the flags tell again where the writer or reader is.
//
// Registers stay where they are. To move them along with the writer would reach all chunks with two
// of them, but costs an interrupt of each thread of the target for every few messages.
package shadow
