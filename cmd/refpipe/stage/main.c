// SPDX-License-Identifier: Apache-2.0
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "stage.h"

// Inherited: 3 truth, 4 status (a byte says that this process is connected),
// 5 lifeline (end of file when the parent is gone), 6 tracker pipe.
enum { TRUTH_FD = 3, STATUS_FD = 4 };

static void on_term(int sig)
{
	(void)sig;
	loop_stop();
}

// Stands for the resource tracker of Python: reads its pipe and does nothing.
static int tracker(void)
{
	char b[4096];
	signal(SIGTERM, SIG_IGN);
	while (read(0, b, sizeof(b)) > 0)
		;
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "tracker"))
		return tracker();
	if (argc != 2) {
		fprintf(stderr, "usage: refpipe-stage CONFIG\n");
		return 2;
	}
	config_read(argv[1]);
	if (conf.comm[0])
		prctl(PR_SET_NAME, conf.comm);
	signal(SIGPIPE, SIG_IGN);
	truth_open(TRUTH_FD);
	loop_start();
	signal(SIGTERM, on_term);
	signal(SIGINT, SIG_IGN); // the terminal's interrupt is the parent's to handle
	io_start();
	while (!io_all_connected())
		usleep(2000);
	(void)!write(STATUS_FD, "1", 1);
	close(STATUS_FD);
	loop_run();
	io_stop();
	shm_unlink_left();
	fflush(stderr);
	_exit(0);
}
