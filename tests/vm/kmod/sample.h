/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * PMUs that raise samples of memory accesses: declarations shared by sample.c and
 * sample_truth.c.
 */
#ifndef TESTPMU_SAMPLE_H
#define TESTPMU_SAMPLE_H

#include "testpmu.h"

#define SAMPLE_OPS 32		/* operations of the mix */
#define SAMPLE_OWNERS 64	/* cgroups in the account */

/* The kind of an event of these PMUs. */
enum sample_kind { SAMPLE_IBS, SAMPLE_LOADS, SAMPLE_AUX, SAMPLE_STORES, SAMPLE_KINDS };

/* An operation in the mix of a cgroup; 0: of all cgroups without their own operations. */
struct sample_op {
	u64 cgroup;
	unsigned int weight;
	u64 data_src, latency, addr;
};

/* sample_truth.c: all for this CPU, called with interrupts off */
const struct sample_op *sample_pick(enum sample_kind kind, u64 cgroup, u64 least);
void sample_executed(enum sample_kind kind, u64 cgroup, u64 ops);
bool sample_loses(enum sample_kind kind);
u64 sample_ops_per_tick(void);
u64 sample_tick_ns(void);

#endif
