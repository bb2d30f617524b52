/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * arm_spe_0: what the PMU (spe.c), the records (spe_record.c) and the account of
 * what was written with its settings (spe_truth.c) share.
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

/* One kind of operation of the mix. */
struct spe_op {
	u32 tgid;	/* 0: for every process that has no operations of its own */
	u32 weight;
	enum spe_class class;
	u8 op;		/* payload of the operation packet */
	s32 source;
	u16 total, spread; /* total latency: total + 0..spread, evenly */
	u16 issue, xlat;
	u16 events;
	u64 address; /* of all its accesses, virtual and physical; 0: anywhere in its process */
	u64 span;    /* each thread walks through a slice of so many bytes from there on; 0: none */
	u32 slices;  /* of the span: a thread has the one of its number, modulo these */
	u32 walk_ms; /* and walks through it in this time, again and again */
};

/*
 * How records lie in the buffer: filled up to 64 bytes; one behind the other, packed to a
 * multiple of 4 bytes; or any of these, with padding before some.
 */
enum spe_layout { SPE_CELLS, SPE_DENSE, SPE_MIXED };

enum spe_context { SPE_CTX_NONE, SPE_CTX_EL1, SPE_CTX_EL2 };

struct spe_settings {
	struct rcu_head rcu;
	u64 ops_per_ms;		/* operations that a running task executes */
	u64 user_permille;	/* share of them executed at EL0 */
	u64 context;		/* enum spe_context */
	u64 timestamps;		/* 0: none, even if ts_enable is set */
	u64 packed;		/* packets without gaps in place of real offsets */
	u64 layout;		/* enum spe_layout */
	u64 source_bytes;	/* 1 or 2 */
	u64 collision_every;	/* every n-th full buffer is flagged; 0: never */
	u64 loss_every;		/* every n-th full buffer lost data */
	u64 unreadable_every;	/* every n-th full buffer has its end behind the buffer */
	u64 garbage_every;	/* every n-th record is random bytes */
	u64 invalid_every;	/* every n-th access has an address or, in turn, a time of zero */
	u64 tick_us;		/* how often records of a running task are written */
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
	u64 ops;	/* operations that were executed where samples could be taken */
	u64 taken;	/* samples, before filters */
	u64 filtered;	/* dropped by a filter or an excluded exception level */
	u64 written;	/* records, garbage included */
	u64 garbage;
	u64 invalid;	/* not in the truth table either */
	u64 chunks;	/* handed to perf_aux_output_end with size > 0 */
	u64 bytes;	/* the sum of those sizes */
	u64 full;	/* buffer-full interrupts */
	u64 collided, lost_data, unreadable;
	u64 no_space;	/* TRUNCATED because user space has not read */
	u64 blind_ns;	/* running, but without room or before the interrupt */
	u64 truth_lost;	/* records without a row in the truth table */
};

struct spe_cpu {
	struct perf_output_handle handle;
	struct perf_event *event;	/* the running one */
	struct hrtimer timer;
	struct irq_work irq;		/* the buffer-full interrupt */
	bool full;			/* ... is pending */
	u8 *base;
	u64 pos, limit;			/* offsets in the buffer; limit 0: no room */
	u64 last;			/* operations are done up to here, in spe_clock() */
	u64 carry;			/* below one operation, in 1e-6 */
	u64 left;			/* operations until the next sample */
	u64 jitter;			/* of them, those after the interval (ernd 1) */
	u64 rng;
	u64 full_count;
	struct spe_stats stats;
	struct spe_truth_row *truth;
};

DECLARE_PER_CPU(struct spe_cpu, tp_spe_cpu);
extern int tp_ernd;

/* spe_record.c: interrupts off */
u64 spe_random(struct spe_cpu *c);
u64 spe_clock(void);
u64 spe_clock_ns(u64 ticks);
/* Takes one sample of a task, ago_ns before c->last; there is room for a record. */
u64 spe_room(const struct spe_settings *set);
void spe_sample(struct spe_cpu *c, const struct spe_settings *set, struct task_struct *task,
		u64 ago_ns);

/* spe_truth.c */
extern struct spe_settings __rcu *spe_settings;
void spe_truth_add(struct spe_cpu *c, struct task_struct *task, const struct spe_op *op,
		   u16 total);
int spe_truth_init(void);
void spe_truth_exit(void);

#endif
