/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A session with arm_spe_0, and the records decoded from its AUX buffer. */
#ifndef SELFTEST_AUX_H
#define SELFTEST_AUX_H

#include "selftest.h"

#define SPE "arm_spe_0"
#define ROWS 256

struct record {
	int tid, class, source, end; /* class: 0 load 1 store 2 branch 3 other; -1: none */
	unsigned int total, issue, xlat, events;
	u64 ts;
};

struct row {
	int tid, class, source;
	u64 samples, total, issue, xlat;
};

struct session {
	int fd;
	struct perf_event_mmap_page *page;
	unsigned char *aux;
	size_t aux_size, data_size;
	/* results of drain() */
	u64 records, bad, chunks, flags, bytes;
	struct record last;
	u64 ts_backwards, no_context, ended_by_end;
	int rows;
	struct row row[ROWS];
};

/* The row of a thread, class and source; adds it if there is none. */
struct row *find_row(struct session *s, int tid, int class, int source);
/* Reads every PERF_RECORD_AUX and, if `consume`, frees the space in the AUX buffer. */
void drain(struct session *s, int consume);
struct perf_event_attr spe_attr(u64 period, u64 config);
/* Opens, maps and enables the event; `writable`: normal mode, else overwrite mode. */
int start(struct session *s, struct perf_event_attr a, int pid, int cpu, int aux_pages,
	  int writable);
void stop(struct session *s);
void finish(struct session *s);
void spin_on(int cpu, int ms);
/* A column of spe_stats, summed over the CPUs. */
u64 spe_stat(const char *name);

#endif
