// SPDX-License-Identifier: Apache-2.0
// One stage process of the reference pipeline: an I/O thread that owns every
// socket, a loop thread (main) that owns all state, compute threads that own
// nothing but the job in hand.
#ifndef REFPIPE_STAGE_H
#define REFPIPE_STAGE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

enum {
	ID_MAX = 96,
	NAME_MAX_ = 48,
	SHM_NAME_MAX = 192,
	MAX_STAGES = 16,
	MAX_PROCS = 24,
	MAX_EDGES = 32,
	MAX_INPUTS = 4,
	MAX_WORKERS = 4,
	IO_BATCH = 8192, // libzmq's in_batch_size and out_batch_size
	CREDITS = 2,
};

enum mtype { M_NONE, M_SUBMIT, M_DATA, M_ACK, M_STREAM, M_COMPLETE, M_ABORT, M_BEAT, M_HEALTH, M_PEER_LOST };
enum framing { F_MAP, F_ARRAY, F_PICKLE, F_NDJSON };
enum carrier { C_UNIX, C_TCP, C_PIPE, C_MEMORY, C_SHM, C_TEXT, C_COUNT };
enum dataplane { D_INLINE, D_ANON, D_NAMED, D_POLLED };
enum role { R_API, R_PREPROCESS, R_ENCODE, R_JOIN, R_THINK, R_TALK, R_VOCODE };

static inline int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

// ---- truth: fixed-size records in a shared mapping that the parent reads.
enum { T_VISIT = 1, T_SEND = 2, T_RECV = 3 };
enum { V_READY, V_START, V_FINISH, V_DEPARTURE, V_ARRIVAL };

struct trec {
	uint8_t kind, type, transport, narr;
	int16_t from, to;
	int16_t proc, peer;
	int32_t chunk;
	uint32_t bytes;
	uint32_t pad;
	int64_t t[4 + MAX_INPUTS];
	int16_t arr_from[MAX_INPUTS];
	char id[ID_MAX];
};
_Static_assert(sizeof(struct trec) == 192, "truth record layout is shared with truth.go and truth.py");

void truth_open(int fd);
struct trec *truth_new(int kind, const char *id, int from, int to, int chunk);
void truth_arrival(struct trec *v, int from, int64_t ns);

// ---- messages
struct buf {
	uint8_t *p;
	size_t len, cap;
};

struct msg {
	struct msg *next;
	enum mtype type;
	char id[ID_MAX];
	int from, from_replica, to; // stage indices, 0 is the API
	int chunk, last;
	char shm[SHM_NAME_MAX];
	size_t shm_size;
	struct buf data;      // inline payload
	struct buf wire;      // encoded frames on the way out, received parts on the way in
	size_t off;           // bytes of wire already given to a write
	size_t part[3];       // lengths of the received parts inside wire
	int nparts;
	int framing;
	int proc, carrier;    // destination (out) or source connection's carrier (in)
	int64_t recv_ns;
	uint32_t wire_bytes;  // size on the wire, framing included
	struct trec *visit;   // visit whose departure this write is, or NULL
};

struct msg *msg_new(enum mtype type, const char *id);
void msg_free(struct msg *m);
void buf_add(struct buf *b, const void *p, size_t n);
void buf_free(struct buf *b);

void frame_encode(struct msg *m, int framing);
int frame_decode(struct msg *m); // 0, or -1 when the bytes are not a message of ours
void mp_encode_map(struct buf *b, const struct msg *m);
void mp_encode_array(struct buf *b, const struct msg *m);
int mp_decode_map(struct msg *m, const uint8_t *p, size_t n);
int mp_decode_array(struct msg *m);
void pickle_encode(struct buf *b, const struct msg *m);
int pickle_decode(struct msg *m, const uint8_t *p, size_t n);
const char *mtype_name(enum mtype t);
enum mtype mtype_parse(const uint8_t *p, size_t n);
void msg_set_stage(struct msg *m, int is_to, const uint8_t *p, size_t n);

// ---- mailbox: the writer signals only a sleeping reader.
struct mailbox {
	pthread_mutex_t lock;
	struct msg *head, **tail;
	int sleeping;
	int fd; // eventfd
};
void mailbox_init(struct mailbox *b);
void mailbox_put(struct mailbox *b, struct msg *m);
struct msg *mailbox_take(struct mailbox *b);  // whole list, NULL when empty
int mailbox_sleep(struct mailbox *b);         // 1 when the reader may now wait on fd
void mailbox_woken(struct mailbox *b);

// ---- configuration
struct edge {
	int from, to;
	enum carrier carrier;
	enum framing framing;
	enum dataplane data;
};

struct service {
	int cpu_permille;        // share of the service time that burns CPU
	int64_t base_ns;
	int tail_permille, tail_mult;
	int64_t per_seq_ns;      // thinker: added for every sequence of the step
	int workers, backlog, batch;
	int filler;              // bytes that the stage adds to its output
	int ack_first;           // acknowledge before (1) or after (0) enqueueing
	int self_pipe;           // compute wakes the loop by a byte each time
};

struct stage_def {
	char name[NAME_MAX_];
	enum role role;
	int nprocs, procs[2];
	struct service svc;
};

struct config {
	uint64_t seed;
	int proc, nstages, nedges;
	char tag[16];             // in the names of this run's segments
	char comm[16];
	struct stage_def stage[MAX_STAGES];
	struct edge edge[MAX_EDGES];
	int nown, own[MAX_STAGES], replica;
	char own_path[MAX_STAGES][160];
	int tcp_listen;
	char peer_path[MAX_PROCS][160];
	int peer_tcp[MAX_PROCS], peer_pipe[MAX_PROCS]; // port; fd, -1 when absent
	char text_path[160];
	int pipe_in[MAX_PROCS], npipe_in;
	int noise, stall_reader, repeat_samples, drop_chunk;
	int kill_stage, kill_after;
	int slow_from, slow_to, slow_ms;
	int big_from, big_to;
	size_t big_bytes; // 0: no big payload
};
extern struct config conf;
void config_read(const char *path);
const struct edge *config_edge(int from, int to);
int config_inputs(int stage);
int config_owns(int stage);

// ---- I/O thread
extern struct mailbox inbox, outbox;
void io_start(void);
void io_stop(void);
int io_all_connected(void);

// ---- shared memory
void shm_tracker(const char *verb, const char *name);
void shm_put_anon(struct msg *m, const uint8_t *p, size_t n);
void shm_name(struct msg *m, int part); // that of a named segment
void shm_put_named(struct msg *m, const uint8_t *p, size_t n);
int shm_get(struct msg *m, int named); // 0, or -1 when the segment is not there
void shm_forget(const char *name);
void shm_unlink_left(void);

// ---- compute
struct job {
	struct job *next, *all_next, *all_prev;
	char id[ID_MAX];
	int stage, chunk, last;
	int inputs;
	uint32_t seen;
	struct buf payload;
	struct trec *visit;
	atomic_int cancelled;
	int tokens, chunks, done;
	int announced;         // to the target of a polled edge
	int route[MAX_STAGES]; // replica chosen for each target stage, -1 before
	int waits_join;
};

struct output {
	struct output *next;
	struct job *job;
	int index, final;
};

struct stage_rt {
	int stage;
	struct job all;          // list head of live jobs
	struct job *backlog, **backlog_tail;
	int admitted;
	int credits;
	struct msg *waiting, **waiting_tail; // sends that wait for a credit
	int owed[MAX_PROCS];     // acknowledgements outstanding per target process
	pthread_mutex_t lock;
	pthread_cond_t more;
	struct job *queue, **queue_tail;
	pthread_t worker[MAX_WORKERS];
	int activations;
};

void compute_start(struct stage_rt *rt);
void compute_enqueue(struct stage_rt *rt, struct job *j);
struct output *compute_take(void);
int compute_sleep(void);
void compute_woken(void);
void compute_init(int self_pipe);
int compute_fd(void);
uint64_t draw(const char *id, int stage, int index);

// ---- loop
void loop_start(void);
void loop_run(void);
void loop_stop(void);
void send_outputs(struct stage_rt *rt, struct output *o);
void send_ack(const struct msg *in);
void send_strip(struct msg *in); // takes what send_data added for a big payload off again
void send_pump(struct stage_rt *rt);
void send_peer_lost(struct stage_rt *rt, int proc);
int send_lost(int proc);
void loop_arrive(struct msg *m);

// ---- polled segments
void poll_begin(const struct msg *m);
void poll_cancel(const char *id);
int poll_timeout(int otherwise); // ms
void poll_try(void);
int cancelled_has(const char *id);

#endif
