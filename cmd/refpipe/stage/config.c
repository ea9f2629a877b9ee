// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "stage.h"

struct config conf;

static void edge_line(const char *line)
{
	int f, t, c, r, d;
	if (sscanf(line, "edge %d %d %d %d %d", &f, &t, &c, &r, &d) != 5 || conf.nedges >= MAX_EDGES)
		return;
	conf.edge[conf.nedges++] = (struct edge){f, t, c, r, d};
}

static void stage_line(const char *line)
{
	int i, role, a, b;
	char name[NAME_MAX_];
	if (sscanf(line, "stage %d %47s %d %d %d", &i, name, &role, &a, &b) != 5 || i < 0 || i >= MAX_STAGES)
		return;
	struct stage_def *s = &conf.stage[i];
	strcpy(s->name, name);
	s->role = role;
	s->procs[0] = a;
	s->procs[1] = b;
	s->nprocs = b >= 0 ? 2 : 1;
	if (i >= conf.nstages)
		conf.nstages = i + 1;
}

static void service_line(const char *line)
{
	int i;
	long base, per;
	struct service v;
	memset(&v, 0, sizeof(v));
	if (sscanf(line, "service %d %d %ld %d %d %ld %d %d %d %d %d %d", &i, &v.cpu_permille, &base, &v.tail_permille,
		   &v.tail_mult, &per, &v.workers, &v.backlog, &v.batch, &v.filler, &v.ack_first, &v.self_pipe) != 12)
		return;
	v.base_ns = base * 1000;
	v.per_seq_ns = per * 1000;
	if (i >= 0 && i < MAX_STAGES)
		conf.stage[i].svc = v;
}

static void peer_line(const char *line)
{
	int p, n;
	char path[160];
	if (sscanf(line, "peer %d %159s", &p, path) == 2 && p >= 0 && p < MAX_PROCS)
		strcpy(conf.peer_path[p], path);
	else if (sscanf(line, "peertcp %d %d", &p, &n) == 2 && p >= 0 && p < MAX_PROCS)
		conf.peer_tcp[p] = n;
	else if (sscanf(line, "pipeout %d %d", &p, &n) == 2 && p >= 0 && p < MAX_PROCS)
		conf.peer_pipe[p] = n;
	else if (sscanf(line, "pipein %d", &n) == 1 && conf.npipe_in < MAX_PROCS)
		conf.pipe_in[conf.npipe_in++] = n;
}

static void own_line(const char *line)
{
	int i, r;
	char path[160];
	if (sscanf(line, "own %d %d %159s", &i, &r, path) != 3 || conf.nown >= MAX_STAGES)
		return;
	conf.own[conf.nown] = i;
	conf.replica = r;
	strcpy(conf.own_path[conf.nown++], path);
}

static void scalar_line(const char *line)
{
	sscanf(line, "seed %lu", &conf.seed);
	sscanf(line, "proc %d", &conf.proc);
	sscanf(line, "tag %15s", conf.tag);
	sscanf(line, "comm %15s", conf.comm);
	sscanf(line, "tcp %d", &conf.tcp_listen);
	sscanf(line, "text %159s", conf.text_path);
	sscanf(line, "noise %d", &conf.noise);
	sscanf(line, "stall %d", &conf.stall_reader);
	sscanf(line, "repeat %d", &conf.repeat_samples);
	sscanf(line, "drop %d", &conf.drop_chunk);
	sscanf(line, "kill %d %d", &conf.kill_stage, &conf.kill_after);
	sscanf(line, "big %d %d %zu", &conf.big_from, &conf.big_to, &conf.big_bytes);
	sscanf(line, "slow %d %d %d", &conf.slow_from, &conf.slow_to, &conf.slow_ms);
}

void config_read(const char *path)
{
	FILE *f = fopen(path, "r");
	if (!f) {
		fprintf(stderr, "open %s: not readable\n", path);
		exit(1);
	}
	conf.drop_chunk = -1;
	conf.kill_stage = -1;
	for (int i = 0; i < MAX_PROCS; i++)
		conf.peer_pipe[i] = -1;
	char line[512];
	while (fgets(line, sizeof(line), f)) {
		edge_line(line);
		stage_line(line);
		service_line(line);
		peer_line(line);
		own_line(line);
		scalar_line(line);
	}
	fclose(f);
}

const struct edge *config_edge(int from, int to)
{
	for (int i = 0; i < conf.nedges; i++)
		if (conf.edge[i].from == from && conf.edge[i].to == to)
			return &conf.edge[i];
	return NULL;
}

int config_inputs(int stage)
{
	int n = 0;
	for (int i = 0; i < conf.nedges; i++)
		n += conf.edge[i].to == stage;
	return n;
}

int config_owns(int stage)
{
	for (int i = 0; i < conf.nown; i++)
		if (conf.own[i] == stage)
			return 1;
	return 0;
}
