// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "stage.h"

struct msg *msg_new(enum mtype type, const char *id)
{
	struct msg *m = calloc(1, sizeof(*m));
	if (!m)
		abort();
	m->type = type;
	m->chunk = -1;
	if (id)
		strncpy(m->id, id, ID_MAX - 1);
	return m;
}

void msg_free(struct msg *m)
{
	buf_free(&m->data);
	buf_free(&m->wire);
	free(m);
}

void buf_add(struct buf *b, const void *p, size_t n)
{
	if (b->len + n > b->cap) {
		size_t cap = b->cap ? b->cap : 256;
		while (cap < b->len + n)
			cap *= 2;
		b->p = realloc(b->p, cap);
		if (!b->p)
			abort();
		b->cap = cap;
	}
	if (n)
		memcpy(b->p + b->len, p, n);
	b->len += n;
}

void buf_free(struct buf *b)
{
	free(b->p);
	memset(b, 0, sizeof(*b));
}

void mailbox_init(struct mailbox *b)
{
	pthread_mutex_init(&b->lock, NULL);
	b->head = NULL;
	b->tail = &b->head;
	b->sleeping = 0;
	b->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
}

void mailbox_put(struct mailbox *b, struct msg *m)
{
	m->next = NULL;
	pthread_mutex_lock(&b->lock);
	*b->tail = m;
	b->tail = &m->next;
	int wake = b->sleeping;
	b->sleeping = 0;
	pthread_mutex_unlock(&b->lock);
	if (wake) {
		uint64_t one = 1;
		(void)!write(b->fd, &one, sizeof(one));
	}
}

struct msg *mailbox_take(struct mailbox *b)
{
	pthread_mutex_lock(&b->lock);
	struct msg *m = b->head;
	b->head = NULL;
	b->tail = &b->head;
	pthread_mutex_unlock(&b->lock);
	return m;
}

int mailbox_sleep(struct mailbox *b)
{
	pthread_mutex_lock(&b->lock);
	int empty = b->head == NULL;
	b->sleeping = empty;
	pthread_mutex_unlock(&b->lock);
	return empty;
}

void mailbox_woken(struct mailbox *b)
{
	uint64_t n;
	(void)!read(b->fd, &n, sizeof(n));
}
