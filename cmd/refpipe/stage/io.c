// SPDX-License-Identifier: Apache-2.0
// The I/O thread: it owns every connection, the loop thread only its mailboxes.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "io.h"

enum { MAX_CONNS = 128 };

struct mailbox inbox, outbox;

static int ep;
static struct conn *conns[MAX_CONNS];
static int nconns;
static struct conn *out_by[MAX_PROCS][C_COUNT];
static atomic_int unready, stopping;
static pthread_t thread;

static void die(const char *what, const char *where)
{
	fprintf(stderr, "%s %s: %s\n", what, where, strerror(errno));
	exit(1);
}

static void arm(struct conn *c, int op)
{
	struct epoll_event e = {.events = (c->deferred ? 0 : EPOLLIN) | (c->want_out ? EPOLLOUT : 0), .data.ptr = c};
	epoll_ctl(ep, op, c->fd, &e);
}

static struct conn *conn_add(int fd, enum conn_kind kind, int proc, int carrier)
{
	if (nconns >= MAX_CONNS)
		return NULL;
	struct conn *c = calloc(1, sizeof(*c));
	c->fd = fd;
	c->kind = kind;
	c->proc = proc;
	c->carrier = carrier;
	c->from = -1;
	c->qtail = &c->q;
	c->wtail = &c->written;
	c->can_send = kind == K_TEXT;
	if (kind != K_LISTEN && kind != K_EVENT)
		fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
	int one = 1;
	if (kind == K_ZMTP && carrier == C_TCP)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); // as libzmq: small frames do not wait for an ACK
	conns[nconns++] = c;
	if (kind == K_ZMTP) {
		zmtp_begin(c);
		c->want_out = 1;
	}
	arm(c, EPOLL_CTL_ADD);
	if (proc >= 0)
		out_by[proc][carrier] = c;
	if (proc >= 0 && kind == K_ZMTP)
		atomic_fetch_add(&unready, 1);
	return c;
}

static void listen_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 100) != 0)
		die("listen on", path);
	conn_add(fd, K_LISTEN, -1, C_UNIX);
}

static struct sockaddr_in loopback(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return a;
}

static void listen_tcp(int port)
{
	struct sockaddr_in a = loopback(port);
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) != 0 || listen(fd, 100) != 0)
		die("listen on", "tcp port");
	conn_add(fd, K_LISTEN, -1, C_TCP);
}

// Peers bind in any order: try again for ten seconds.
static int dial(int family, const void *addr, socklen_t len, const char *name)
{
	for (int i = 0; i < 1000; i++) {
		int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, addr, len) == 0)
			return fd;
		close(fd);
		usleep(10000);
	}
	die("connect to", name);
	return -1;
}

static void dial_unix(int proc, const char *path, enum conn_kind kind, int carrier)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	conn_add(dial(AF_UNIX, &a, sizeof(a), path), kind, proc, carrier);
}

static void dial_all(void)
{
	for (int p = 0; p < MAX_PROCS; p++) {
		if (conf.peer_path[p][0])
			dial_unix(p, conf.peer_path[p], K_ZMTP, C_UNIX);
		if (conf.peer_tcp[p]) {
			struct sockaddr_in a = loopback(conf.peer_tcp[p]);
			conn_add(dial(AF_INET, &a, sizeof(a), "tcp peer"), K_ZMTP, p, C_TCP);
		}
		if (conf.peer_pipe[p] >= 0)
			conn_add(conf.peer_pipe[p], K_PIPE, p, C_PIPE);
	}
	if (conf.text_path[0])
		dial_unix(0, conf.text_path, K_TEXT, C_TEXT);
	for (int i = 0; i < conf.npipe_in; i++)
		conn_add(conf.pipe_in[i], K_PIPE, -1, C_PIPE);
}

static void lost(struct conn *c)
{
	if (c->dead)
		return;
	c->dead = 1;
	epoll_ctl(ep, EPOLL_CTL_DEL, c->fd, NULL);
	close(c->fd);
	out_drop(c);
	if (c->proc < 0)
		return;
	struct msg *m = msg_new(M_PEER_LOST, NULL);
	m->proc = c->proc;
	mailbox_put(&inbox, m);
}

static void emit(struct conn *c, struct msg *m)
{
	m->carrier = c->carrier;
	if (conf.slow_ms && c->from < 0) {
		struct msg probe = *m; // only the sender's name is wanted here
		memset(&probe.data, 0, sizeof(probe.data));
		if (frame_decode(&probe) == 0)
			c->from = probe.from;
		buf_free(&probe.data);
	}
	mailbox_put(&inbox, m);
}

static void flush(struct conn *c)
{
	int r = out_event(c);
	if (r < 0) {
		lost(c);
		return;
	}
	if (c->want_out != r) {
		c->want_out = r;
		arm(c, EPOLL_CTL_MOD);
	}
}

static void take_outbox(void)
{
	struct msg *m = mailbox_take(&outbox);
	while (m) {
		struct msg *next = m->next;
		struct conn *c = out_by[m->proc][m->carrier];
		if (!c || c->dead) {
			msg_free(m);
		} else {
			out_queue(c, m);
			if (!c->want_out && (!next || next->proc != c->proc || next->carrier != c->carrier))
				flush(c);
		}
		m = next;
	}
}

// The slow-hop and stalled-reader faults leave bytes in the socket's queue.
static int64_t hold_until(struct conn *c, int64_t now)
{
	enum { PERIOD_MS = 1500, STALL_MS = 300 };
	const int64_t ms = 1000000;
	if (conf.stall_reader && c->kind != K_EVENT && (now / ms) % PERIOD_MS < STALL_MS)
		return now + STALL_MS * ms - (now / ms) % PERIOD_MS * ms;
	int slow = conf.slow_ms && c->from == conf.slow_from && config_owns(conf.slow_to);
	if (!slow || c->in_body || c->in)
		return 0; // a message is delayed once, not once a read
	if (c->defer_until == 0)
		c->defer_until = now + conf.slow_ms * ms;
	return c->defer_until > now ? c->defer_until : 0;
}

static void readable(struct conn *c)
{
	int64_t hold = conf.slow_ms || conf.stall_reader ? hold_until(c, now_ns()) : 0;
	if (hold) {
		c->defer_until = hold;
		c->deferred = 1;
		arm(c, EPOLL_CTL_MOD);
		return;
	}
	c->defer_until = 0;
	int before = c->state;
	if (in_event(c, emit) < 0) {
		lost(c);
		return;
	}
	if (before != c->state) {
		if (c->state == Z_TRAFFIC && c->proc >= 0)
			atomic_fetch_sub(&unready, 1);
		flush(c);
	}
}

static int end_holds(void)
{
	int timeout = -1;
	if (!conf.slow_ms && !conf.stall_reader)
		return timeout;
	int64_t now = now_ns();
	for (int i = 0; i < nconns; i++) {
		struct conn *c = conns[i];
		if (c->dead || !c->deferred)
			continue;
		if (c->defer_until <= now) {
			c->deferred = 0;
			arm(c, EPOLL_CTL_MOD);
			timeout = 0;
		} else if (timeout != 0) {
			int ms = (c->defer_until - now) / 1000000 + 1;
			timeout = timeout < 0 || ms < timeout ? ms : timeout;
		}
	}
	return timeout;
}

static void event(struct epoll_event *e)
{
	struct conn *c = e->data.ptr;
	if (c->dead)
		return;
	if (c->kind == K_EVENT) {
		mailbox_woken(&outbox);
	} else if (c->kind == K_LISTEN) {
		int fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd >= 0 && !conn_add(fd, K_ZMTP, -1, c->carrier))
			close(fd);
	} else {
		if (e->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
			readable(c);
		if (!c->dead && (e->events & EPOLLOUT))
			flush(c);
	}
}

static void *io_main(void *arg)
{
	(void)arg;
	struct epoll_event ev[64];
	while (!atomic_load(&stopping)) {
		int timeout = end_holds();
		if (timeout != 0 && !mailbox_sleep(&outbox))
			timeout = 0;
		int n = epoll_wait(ep, ev, 64, timeout);
		for (int i = 0; i < n; i++)
			event(&ev[i]);
		take_outbox();
	}
	return NULL;
}

int io_all_connected(void)
{
	return atomic_load(&unready) == 0;
}

void io_start(void)
{
	ep = epoll_create1(EPOLL_CLOEXEC);
	mailbox_init(&inbox);
	mailbox_init(&outbox);
	conn_add(outbox.fd, K_EVENT, -1, C_UNIX);
	for (int i = 0; i < conf.nown; i++)
		listen_unix(conf.own_path[i]);
	if (conf.tcp_listen)
		listen_tcp(conf.tcp_listen);
	dial_all();
	if (pthread_create(&thread, NULL, io_main, NULL) != 0)
		die("start", "I/O thread");
}

// Lets the I/O thread finish the call it is in, so that its stamp is kept.
void io_stop(void)
{
	uint64_t one = 1;
	atomic_store(&stopping, 1);
	(void)!write(outbox.fd, &one, sizeof(one));
	pthread_join(thread, NULL);
}
