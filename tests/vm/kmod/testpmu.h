/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/*
 * Types shared by the parts of testpmu.ko.
 *
 * A row describes a kind of PMU as data (table_*.c). A PMU is one registered instance of a
 * row. A box is the unit for which the PMU counts: a socket for uncore PMUs, a CPU for the
 * core PMU. A spec is an event with its filters. On each box it has a counter that always
 * runs; an open event shows the increase of that counter since it started.
 */
#ifndef TESTPMU_H
#define TESTPMU_H

#include <linux/cpumask.h>
#include <linux/device.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>

#define TP_MAX_ACTIVE 40	/* events on one box at once; the largest row has 33 counters */
#define TP_MAX_SPECS 4096	/* per PMU; more opens of new configs get ENOSPC */
#define TP_NS_PER_MS 1000000ULL
#define TP_RATE_MAX (1ULL << 43) /* counts per ms, so that rate * 1e6 fits 64 bits */
#define TP_NO_EVENT (~0ULL)

struct tp_row;
struct tp_pmu;

struct tp_event {
	const char *name;
	u64 id;
	u64 rate; /* default counts per ms; 0: the formula of spec.c */
};
#define EV(n, i) { .name = #n, .id = (i) }

/* A sysfs file; `text` is its content without the newline. */
struct tp_text {
	const char *name;
	const char *text;
};

enum tp_layout {
	TP_PER_SOCKET,		/* one PMU per socket, name takes the socket */
	TP_PER_SOCKET_INSTANCE,	/* per socket and instance, name takes both */
	TP_PER_INSTANCE,	/* a PMU has a box on every socket, name takes the instance */
	TP_PER_CPU,		/* the core PMU: a box on every CPU */
};

/* Factors of an event's default rate, see spec.c. */
struct tp_factors {
	u64 f1, f2;
};

struct tp_row {
	const char *name;
	enum tp_layout layout;
	const int *instances;		/* NULL: one */
	const struct tp_text *formats;
	const struct tp_event *events;
	const char *event_fmt;		/* how events/<name> prints the id */
	const struct tp_text *event_texts; /* events/ instead of the above */
	const struct tp_text *files;	/* in the PMU's directory: identifier, peer, ... */
	const struct tp_text *caps;
	const char *cpus_file;		/* "cpus" on arm64 core PMUs, else "cpumask" or NULL */
	bool cpus_offline;		/* it also names offline CPUs, as arm_spe_pmu's does */
	bool associated_cpus;
	bool dies;			/* die<N> files: the PCI bus of the stack on each die */
	unsigned int counters;		/* programmable ones */
	u64 cycles_event;
	u64 id_mask;			/* bits of config that are the event id */
	u64 id_count;			/* ids from here on: ENOENT (0: any id opens) */
	int capabilities;
	int sampling_error, task_error;
	unsigned int kinds, kind;	/* hybrid: the CPUs with cpu % kinds == kind; 0: all */
	bool numbered;			/* events get counter numbers, the lowest free first */
	bool package_read;		/* any CPU of the package may read (Intel) */
	u64 f1_mask, f2_mask;		/* config1 and config2 bits; none set means all */
	void (*factors)(const u64 config[3], struct tp_factors *f); /* instead of the masks */
	u64 (*constraint)(const struct tp_row *row, u64 id); /* counters an event may use */
	/* Further rules, given the active events. */
	int (*admit)(struct perf_event *event, struct perf_event *const *active, unsigned int n);
	/* Copies filters from the group's leader to an event without them. */
	void (*inherit)(const struct perf_event *event, u64 config[3]);
	const u64 *hw_map;		/* PERF_TYPE_HARDWARE config -> event, core only */
	void (*init)(struct tp_pmu *p);	/* fills p->pmu in; NULL: the counting callbacks */
};

extern const struct tp_row tp_grace_rows[], tp_t410_rows[], tp_intel_rows[];
extern const struct tp_row tp_vera_row, tp_core_arm_row, tp_core_intel_row, tp_core_amd_row;
extern const struct tp_row tp_hybrid_rows[];
extern int tp_cha, tp_iio, tp_imc, tp_rc;

/* Fields that all arm_cspmu rows share; a row may override a field after it. */
#define TP_CSPMU							\
	.layout = TP_PER_SOCKET, .event_fmt = "event=0x%llx",		\
	.cpus_file = "cpumask", .associated_cpus = true,		\
	.cycles_event = BIT_ULL(32), .id_mask = GENMASK_ULL(32, 0),	\
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE,			\
	.sampling_error = -EOPNOTSUPP, .task_error = -EINVAL,		\
	.constraint = tp_cspmu_constraint
u64 tp_cspmu_constraint(const struct tp_row *row, u64 id);

/* Reasons why a box's clock is stopped at one instant (bits of tp_box.latched). */
#define TP_LATCH_PMU BIT(0)	/* perf core disabled the PMU */
#define TP_LATCH_READ BIT(1)	/* a group is being read */
#define TP_LATCH_SWITCH BIT(2)	/* the sched_switch tracepoint runs */

struct tp_box {
	raw_spinlock_t lock;
	int socket;
	int cpu;		/* the CPU that reads the box's events; -1: none is online */
	cpumask_t cpus;
	/* The box's time in ns and its weighted task time in weight x ns. */
	u64 t, t_since;
	u64 w, w_since;
	bool idle;		/* core PMU: the idle task runs, the clock is stopped */
	u32 latched;
	u64 latch;		/* the instant if latched, else 0 */
	struct perf_event *active[TP_MAX_ACTIVE];
	unsigned int nr_active;
};

/* A running counter. val is its count; the carries are parts of one count, in 1e-6. */
struct tp_value {
	u64 val;
	u64 rate, carry;	/* counts per ms of box time */
	u64 task_rate, task_carry; /* counts per ms of weighted task time */
	u64 last_t, last_w;
};

/* Parts of a task's time that a spec leaves out (tp_spec.excl). */
#define TP_EXCL_USER BIT(0)
#define TP_EXCL_KERNEL BIT(1)

struct tp_spec {
	struct list_head node;
	u64 config[3];
	u32 excl;
	struct tp_value v[];	/* one per box */
};

struct tp_pmu {
	struct pmu pmu;
	const struct tp_row *row;
	char name[48];
	int socket, instance;	/* socket -1: all */
	cpumask_t cpus;		/* the CPUs that it counts */
	bool vanished;		/* its directory is gone */
	unsigned int nr_boxes;
	struct tp_box *boxes;
	struct mutex lock;	/* specs, added under it, never removed */
	struct list_head specs;
	unsigned int nr_specs;
	struct list_head node;
	const struct attribute_group *groups[6];
	struct list_head attrs;	/* allocated by sysfs.c */
	bool registered;
};

static inline struct tp_pmu *to_tp_pmu(struct pmu *pmu)
{
	return container_of(pmu, struct tp_pmu, pmu);
}

/* main.c */
extern int tp_sockets, tp_broken;
extern bool tp_rates;
int tp_socket_of(int cpu);

/* register.c */
extern struct list_head tp_pmus;
int tp_register_row(const struct tp_row *row, const char *name, int type);
void tp_unregister_all(void);
int tp_vanish(struct tp_pmu *p);
int tp_hotplug_init(void);
void tp_hotplug_exit(void);

/* sysfs.c */
int tp_sysfs_build(struct tp_pmu *p);
void tp_sysfs_free(struct tp_pmu *p);

/* clock.c: the caller holds the box's lock, unless the function takes it */
u64 tp_mono(void);
void tp_value_update(struct tp_box *box, struct tp_value *v);
void tp_box_time(struct tp_box *box, u64 *t, u64 *w);
void tp_box_idle(struct tp_box *box, bool idle);		/* takes the lock */
void tp_box_latch(struct tp_box *box, u32 reason, u64 now);	/* takes the lock */
void tp_box_unlatch(struct tp_box *box, u32 reason);		/* takes the lock */
bool tp_fits(const u64 *masks, unsigned int n);

/* spec.c */
struct tp_spec *tp_spec_get(struct tp_pmu *p, const u64 config[3], u32 excl);
int tp_spec_rate(struct tp_pmu *p, const u64 config[3], int box, u64 rate, bool task);
int tp_spec_add(struct tp_pmu *p, const u64 config[3], int box, u64 n);
u64 tp_factor(u64 filter, unsigned int bits);
u64 tp_event_mask(const struct tp_pmu *p, u64 id);
extern unsigned int tp_user_permille;
int tp_spec_set_split(unsigned int permille);

/* count.c: the struct pmu callbacks that every row shares */
void tp_count_init(struct tp_pmu *p);
int tp_group_fits(struct perf_event *event, u64 id);

/* uncore.c, core.c */
int tp_uncore_event_init(struct perf_event *event);
int tp_core_event_init(struct perf_event *event);
extern struct tp_pmu *tp_core;
DECLARE_PER_CPU(struct tp_pmu *, tp_core_here);

/* oncpu.c */
int tp_oncpu_init(void);
void tp_oncpu_exit(void);
u64 tp_oncpu_weighted(const cpumask_t *cpus, u64 now);
void tp_oncpu_blind(u64 ns);
int tp_oncpu_watch(bool cgroup, u64 id, u64 weight);
void tp_oncpu_clear(void);
void tp_oncpu_show(struct seq_file *s);
void tp_oncpu_idle_counts(bool on);

/* spe.c, spe_truth.c */
int tp_spe_register(void);
void tp_spe_exit(void);
void tp_spe_switch(struct task_struct *prev);
void tp_spe_switched(void);
int tp_spe_command(const char *args);
void tp_spe_show_truth(struct seq_file *s);
void tp_spe_show_stats(struct seq_file *s);

/* sample.c, sample_truth.c */
int tp_sample_register(const char *name);
void tp_sample_exit(void);
int tp_sample_command(const char *args);
void tp_sample_show_truth(struct seq_file *s);

/* control.c */
int tp_control_init(void);
void tp_control_exit(void);

#endif
