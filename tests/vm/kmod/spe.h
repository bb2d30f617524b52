/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * arm_spe_0: declarations shared by the PMU (spe.c), the records (spe_record.c), and the
 * settings and the account of written records (spe_truth.c).
 */
#ifndef TESTPMU_SPE_H
#define TESTPMU_SPE_H

#include <linux/hrtimer.h>
#include <linux/irq_work.h>
#include <linux/percpu.h>

#include "testpmu.h"

#define SPE_RECORD 64
#define SPE_ROOM 128	/* a record of any layout, and the padding before it */
#define SPE_MAX_OPS 32
#define SPE_NO_SOURCE (-1)
#define SPE_MAX_LATENCY 4095	/* 12-bit saturating counters */

/* attr.config */
#define SPE_TS_ENABLE BIT_ULL(0)
#define SPE_PA_ENABLE BIT_ULL(1)
#define SPE_PCT_ENABLE BIT_ULL(2)
#define SPE_JITTER BIT_ULL(16)
#define SPE_BRANCH_FILTER BIT_ULL(32)
#define SPE_LOAD_FILTER BIT_ULL(33)
#define SPE_STORE_FILTER BIT_ULL(34)

enum spe_class { SPE_LOAD, SPE_STORE, SPE_BRANCH, SPE_OTHER };
extern const char *const spe_class_names[4];

/* An operation in the mix. */
struct spe_op {
	u32 tgid;	/* 0: for every process that has no operations of its own */
	u32 weight;
	enum spe_class class;
	u8 op;		/* payload of the operation packet */
	s32 source;
	u16 total, spread; /* total latency: total + 0..spread, evenly */
	u16 issue, xlat;
	u16 events;
	u64 address; /* of all its accesses, virtual and physical; 0: random in its process */
	u64 span;    /* bytes from `address` on that are divided into slices; 0: none */
	u32 slices;  /* each thread walks through slice number tid % slices */
	u32 walk_ms; /* time of one walk; walks repeat */
};

/*
 * The layout of records in the buffer: padded to 64 bytes (CELLS); contiguous, packed to a
 * multiple of 4 bytes (DENSE); or both, with padding before some (MIXED).
 */
enum spe_layout { SPE_CELLS, SPE_DENSE, SPE_MIXED };

enum spe_context { SPE_CTX_NONE, SPE_CTX_EL1, SPE_CTX_EL2 };

struct spe_settings {
	struct rcu_head rcu;
	u64 ops_per_ms;		/* operations that a running task executes */
	u64 user_permille;	/* share of them executed at EL0 */
	u64 context;		/* enum spe_context */
	u64 timestamps;		/* 0: none, even if ts_enable is set */
	u64 packed;		/* packets without gaps instead of real offsets */
	u64 layout;		/* enum spe_layout */
	u64 source_bytes;	/* 1 or 2 */
	u64 collision_every;	/* every n-th full buffer is flagged; 0: never */
	u64 loss_every;		/* every n-th full buffer lost data */
	u64 unreadable_every;	/* every n-th full buffer has its end behind the buffer */
	u64 garbage_every;	/* every n-th record is random bytes */
	u64 invalid_every;	/* every n-th access has an address or, in turn, a time of zero */
	u64 tick_us;		/* interval at which records of a running task are written */
	unsigned int nr_ops;
	struct spe_op ops[SPE_MAX_OPS];
};

struct spe_truth_row {
	u32 tid, tgid;
	u32 class;
	s32 source;
	u64 samples, total, issue, xlat;
};

#define SPE_TRUTH_ROWS 4096	/* per CPU, power of two */

struct spe_stats {
	u64 ops;	/* operations that were executed while samples could be taken */
	u64 taken;	/* samples, before filters */
	u64 filtered;	/* dropped by a filter or an excluded exception level */
	u64 written;	/* records, garbage included */
	u64 garbage;
	u64 invalid;	/* not in the truth table, as garbage is not */
	u64 chunks;	/* handed to perf_aux_output_end with size > 0 */
	u64 bytes;	/* the sum of those sizes */
	u64 full;	/* buffer-full interrupts */
	u64 collided, lost_data, unreadable;
	u64 no_space;	/* TRUNCATED because user space has not read the buffer */
	u64 blind_ns;	/* running, but without room or before the interrupt's end */
	u64 truth_lost;	/* records without a row in the truth table */
};

struct spe_cpu {
	struct perf_output_handle handle;
	struct perf_event *event;	/* the running one */
	struct hrtimer timer;
	struct irq_work irq;		/* the buffer-full interrupt */
	bool full;			/* that interrupt is pending */
	u8 *base;
	u64 pos, limit;			/* offsets in the buffer; limit 0: no room */
	u64 last;			/* operations are done up to this spe_clock() */
	u64 carry;			/* part of an operation, in 1e-6 */
	u64 left;			/* operations until the next sample */
	u64 jitter;			/* the last jitter, in operations */
	u64 rng;
	u64 full_count;
	struct spe_stats stats;
	struct spe_truth_row *truth;
};

DECLARE_PER_CPU(struct spe_cpu, tp_spe_cpu);
extern int tp_ernd;

/* spe_record.c: called with interrupts off */
u64 spe_random(struct spe_cpu *c);
u64 spe_clock(void);
u64 spe_clock_ns(u64 ticks);
/* The most bytes that a record and its padding take. */
u64 spe_room(const struct spe_settings *set);
/* Takes one sample of a task, ago_ns before c->last; the buffer has spe_room(). */
void spe_sample(struct spe_cpu *c, const struct spe_settings *set, struct task_struct *task,
		u64 ago_ns);

/* spe_truth.c */
extern struct spe_settings __rcu *spe_settings;
void spe_truth_add(struct spe_cpu *c, struct task_struct *task, const struct spe_op *op,
		   u16 total);
int spe_truth_init(void);
void spe_truth_exit(void);

#endif
