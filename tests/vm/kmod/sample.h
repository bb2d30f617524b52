/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * The PMUs that raise samples of memory accesses: what sample.c and
 * sample_truth.c share.
 */
#ifndef TESTPMU_SAMPLE_H
#define TESTPMU_SAMPLE_H

#include "testpmu.h"

#define SAMPLE_OPS 32		/* operations of the mix */
#define SAMPLE_OWNERS 64	/* cgroups in the account */

/* What an event of these PMUs is. */
enum sample_kind { SAMPLE_IBS, SAMPLE_LOADS, SAMPLE_AUX, SAMPLE_STORES, SAMPLE_KINDS };

/* One operation of the mix of a cgroup (0: of all that have none of their own). */
struct sample_op {
	u64 cgroup;
	unsigned int weight;
	u64 data_src, latency, addr;
};

/* sample_truth.c: all with interrupts off, on the CPU that they are about */
const struct sample_op *sample_pick(enum sample_kind kind, u64 cgroup, u64 least);
void sample_executed(enum sample_kind kind, u64 cgroup, u64 ops);
bool sample_loses(enum sample_kind kind);
u64 sample_ops_per_tick(void);
u64 sample_tick_ns(void);

#endif
