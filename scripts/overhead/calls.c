/*
 * A process that does nothing but system calls: prints, for each kind named on the command line, the
 * median time of one call in ns over 100 batches. It is what a recording of other processes must not
 * slow down.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { BATCHES = 100, CALLS = 2000 };

static double now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void batch(const char *kind, int null, int event, const int pair[2])
{
	static char buf[64];
	unsigned long one = 1;
	ssize_t n = 0;

	for (int i = 0; i < CALLS / 2; i++) {
		if (!strcmp(kind, "getppid")) {
			n += syscall(SYS_getppid) + syscall(SYS_getppid);
		} else if (!strcmp(kind, "write-null")) {
			n += write(null, buf, sizeof(buf)) + write(null, buf, sizeof(buf));
		} else if (!strcmp(kind, "eventfd")) {
			n += write(event, &one, 8) + read(event, &one, 8);
		} else {
			n += write(pair[0], buf, sizeof(buf)) + read(pair[1], buf, sizeof(buf));
		}
	}
	if (n <= 0)
		exit(1);
}

int main(int argc, char **argv)
{
	int null = open("/dev/null", O_WRONLY), event = eventfd(0, EFD_NONBLOCK), pair[2];
	double took[BATCHES];

	if (null < 0 || event < 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	for (int k = 1; k < argc; k++) {
		for (int b = 0; b < BATCHES; b++) {
			double from = now_ns();

			batch(argv[k], null, event, pair);
			took[b] = (now_ns() - from) / CALLS;
		}
		qsort(took, BATCHES, sizeof(took[0]), ascending);
		printf("%s %.1f\n", argv[k], took[BATCHES / 2]);
	}
	return 0;
}
