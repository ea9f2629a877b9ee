// SPDX-License-Identifier: Apache-2.0
// Two ways of handing a payload over in /dev/shm: anonymous segments that a
// frame refers to, and segments named by request, stage and chunk with a lock.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "stage.h"

enum { TRACKER_FD = 6, MAX_LEFT = 256 };

// Segments handed over and not yet taken, so that an orderly stop leaves none.
static char left[MAX_LEFT][SHM_NAME_MAX];

static void remember(const char *name)
{
	static unsigned next; // the oldest was taken long ago: named segments are never acknowledged
	snprintf(left[next++ % MAX_LEFT], SHM_NAME_MAX, "%s", name);
}

void shm_forget(const char *name)
{
	for (int i = 0; i < MAX_LEFT; i++)
		if (!strcmp(left[i], name))
			left[i][0] = 0;
}

static void path_of(char *dst, size_t n, const char *name)
{
	snprintf(dst, n, "/dev/shm/%.*s", SHM_NAME_MAX, name);
}

static void lock_path_of(char *dst, size_t n, const char *name)
{
	snprintf(dst, n, "/dev/shm/shm_%.*s_lockfile.lock", SHM_NAME_MAX, name);
}

void shm_unlink_left(void)
{
	char path[2 * SHM_NAME_MAX];
	for (int i = 0; i < MAX_LEFT; i++) {
		if (!left[i][0])
			continue;
		path_of(path, sizeof(path), left[i]);
		unlink(path);
		lock_path_of(path, sizeof(path), left[i]);
		unlink(path);
	}
}

void shm_tracker(const char *verb, const char *name)
{
	if (!conf.noise)
		return;
	char line[SHM_NAME_MAX + 64];
	int n = snprintf(line, sizeof(line), "%s:/%s:shared_memory\n", verb, name);
	(void)!write(TRACKER_FD, line, n);
}

static int fill(int fd, const uint8_t *p, size_t n)
{
	size_t size = n ? n : 1; // a payload without bytes still makes a segment
	if (ftruncate(fd, size) != 0)
		return -1;
	void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return -1;
	if (n)
		memcpy(map, p, n);
	munmap(map, size);
	return 0;
}

void shm_put_anon(struct msg *m, const uint8_t *p, size_t n)
{
	// Names are drawn wide: one that comes again soon could be unlinked for its predecessor.
	static uint64_t counter;
	char path[2 * SHM_NAME_MAX];
	int fd;
	do {
		uint64_t h = draw("segment", conf.proc, (int)counter++) ^ (uint64_t)now_ns();
		snprintf(m->shm, SHM_NAME_MAX, "psm_%s%06x", conf.tag, (unsigned)(h * 0x9e3779b97f4a7c15ULL >> 40));
		path_of(path, sizeof(path), m->shm);
		fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	} while (fd < 0 && errno == EEXIST);
	if (fd < 0 || fill(fd, p, n) != 0) {
		fprintf(stderr, "write segment %s: %s\n", path, strerror(errno));
		exit(1);
	}
	shm_tracker("REGISTER", m->shm);
	m->shm_size = n ? n : 1;
	remember(m->shm);
	close(fd);
}

void shm_name(struct msg *m, int part)
{
	snprintf(m->shm, SHM_NAME_MAX, "%s_%s_%s_%d", m->id, conf.stage[m->from].name, conf.tag, part);
}

void shm_put_named(struct msg *m, const uint8_t *p, size_t n)
{
	char path[2 * SHM_NAME_MAX], lock[2 * SHM_NAME_MAX];
	int part = m->chunk < 0 ? 0 : m->chunk;
	if (conf.stage[m->from].role == R_PREPROCESS) // a fan-out has one segment per target
		part = m->to;
	shm_name(m, part);
	path_of(path, sizeof(path), m->shm);
	lock_path_of(lock, sizeof(lock), m->shm);
	int lfd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	flock(lfd, LOCK_EX);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0 || fill(fd, p, n) != 0) {
		fprintf(stderr, "write segment %s: %s\n", path, strerror(errno));
		exit(1);
	}
	m->shm_size = n ? n : 1;
	remember(m->shm);
	flock(lfd, LOCK_UN);
	close(fd);
	close(lfd);
}

static void *map_of(int fd, size_t *n)
{
	struct stat st;
	if (fstat(fd, &st) != 0 || st.st_size == 0)
		return MAP_FAILED;
	*n = st.st_size;
	return mmap(NULL, *n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

int shm_get(struct msg *m, int named)
{
	char path[2 * SHM_NAME_MAX], lock[2 * SHM_NAME_MAX];
	size_t n = 0;
	int lfd = -1;
	path_of(path, sizeof(path), m->shm);
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -1;
	if (named) {
		lock_path_of(lock, sizeof(lock), m->shm);
		lfd = open(lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		flock(lfd, LOCK_EX);
	}
	void *map = map_of(fd, &n);
	if (map != MAP_FAILED) {
		buf_add(&m->data, map, n);
		munmap(map, n);
	}
	unlink(path);
	if (named) {
		flock(lfd, LOCK_UN);
		unlink(lock);
		close(lfd);
	} else {
		shm_tracker("UNREGISTER", m->shm);
	}
	close(fd);
	return map == MAP_FAILED ? -1 : 0;
}
