// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * On-CPU time of tasks, by two probes on the sched_switch tracepoint.
 *
 * The first probe runs before all others and latches the clock of this CPU's core box.
 * The second runs after all others and releases it. So a BPF program that reads core
 * counters on the tracepoint reads them at exactly the instant at which the time of
 * `prev` ends here, and its counts equal this file's times exactly. The core clock
 * stops while the idle task runs (unless `idle 1` is set).
 *
 * The time of watched processes and cgroups on each CPU is summed, in ns of
 * CLOCK_MONOTONIC and of the core PMU's clock. Their weights drive the task counts of
 * uncore PMUs: a socket's weighted time is the sum over its CPUs of weight(current) x ns,
 * without the blind time of the SPE PMU, so that its records and these counts cover the
 * same time.
 */
#include <linux/cgroup.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/tracepoint.h>

#include "testpmu.h"

#define MAX_WATCHED 64

struct watched {
	bool cgroup;
	u64 id;
	u64 weight;
};

struct oncpu {
	raw_spinlock_t lock;	/* innermost: taken inside a box's lock */
	u64 since, core_since;	/* when the present slice began */
	u64 match;		/* bit i: the present task belongs to watched[i] */
	u64 weight;		/* sum of the weights of the matches */
	u64 weighted;		/* sum of weight x ns; never reset: boxes take differences */
	u64 blind;		/* ns of the present task without weight: SPE was blind */
	u64 ns[MAX_WATCHED], core_ns[MAX_WATCHED], weighing_ns[MAX_WATCHED];
};

static DEFINE_PER_CPU(struct oncpu, oncpu);
static struct watched watched[MAX_WATCHED];
static unsigned int nr_watched;	/* read by the probes, written under the mutex */
static DEFINE_MUTEX(watch_mutex);
static bool weights_used;	/* stays true: weighted must not fall to 0 */
static bool idle_counts;
static struct tracepoint *sched_switch_tp;

static struct tp_box *core_box(void)
{
	struct tp_pmu *core = READ_ONCE(*this_cpu_ptr(&tp_core_here));

	return core ? &core->boxes[smp_processor_id()] : NULL;
}

static u64 core_time(struct tp_box *box)
{
	u64 t = 0, w;

	if (box) {
		raw_spin_lock(&box->lock);
		tp_box_time(box, &t, &w);
		raw_spin_unlock(&box->lock);
	}
	return t;
}

static u64 match(struct task_struct *task, u64 *weight)
{
	unsigned int i, n = smp_load_acquire(&nr_watched);
	u64 bits = 0;

	*weight = 0;
	if (!n || is_idle_task(task))
		return 0;
	for (i = 0; i < n; i++) {
		u64 id = watched[i].cgroup ? cgroup_id(task_dfl_cgroup(task)) : task->tgid;

		if (id == watched[i].id) {
			bits |= BIT_ULL(i);
			*weight += watched[i].weight;
		}
	}
	return bits;
}

/* ns of the present slice up to `now`; *weighing: those that have weight. */
static u64 slice_ns(const struct oncpu *c, u64 now, u64 *weighing)
{
	u64 ns = now > c->since ? now - c->since : 0;

	*weighing = ns - min(ns, c->blind);
	return ns;
}

/* Closes the present task's slice at `now` and opens one for `next`. */
static void slice(u64 now, struct task_struct *next)
{
	struct oncpu *c = this_cpu_ptr(&oncpu);
	u64 core = core_time(core_box());
	u64 ns, weighing, bits;
	u64 weight, next_match = match(next, &weight);

	raw_spin_lock(&c->lock);
	ns = slice_ns(c, now, &weighing);
	c->weighted += c->weight * weighing;
	c->blind -= ns - weighing;
	for (bits = c->match; bits; bits &= bits - 1) {
		unsigned int i = __ffs64(bits);

		c->ns[i] += ns;
		c->core_ns[i] += core - c->core_since;
		c->weighing_ns[i] += weighing;
	}
	c->match = next_match;
	c->weight = weight;
	c->since += ns;
	c->core_since = core;
	raw_spin_unlock(&c->lock);
}

static void switch_first(void *data, bool preempt, struct task_struct *prev,
			 struct task_struct *next, unsigned int prev_state)
{
	struct tp_box *box = core_box();
	u64 now = tp_mono();

	if (box)
		tp_box_latch(box, TP_LATCH_SWITCH, now);
	tp_spe_switch(prev);
	slice(now, next);
	tp_spe_switched();
}

static void switch_last(void *data, bool preempt, struct task_struct *prev,
			struct task_struct *next, unsigned int prev_state)
{
	struct tp_box *box = core_box();

	if (!box)
		return;
	/* Still latched: idle begins and ends at the instant of the switch. */
	tp_box_idle(box, is_idle_task(next) && !READ_ONCE(idle_counts));
	tp_box_unlatch(box, TP_LATCH_SWITCH);
}

/* Weighted task time of `cpus` up to `now`, in weight x ns. */
u64 tp_oncpu_weighted(const cpumask_t *cpus, u64 now)
{
	unsigned long flags;
	u64 sum = 0;
	int cpu;

	if (!READ_ONCE(weights_used))
		return 0;
	for_each_cpu(cpu, cpus) {
		struct oncpu *c = per_cpu_ptr(&oncpu, cpu);
		u64 weighing;

		raw_spin_lock_irqsave(&c->lock, flags);
		slice_ns(c, now, &weighing);
		sum += c->weighted + c->weight * weighing;
		raw_spin_unlock_irqrestore(&c->lock, flags);
	}
	return sum;
}

/* SPE did not sample this CPU's present task for `ns`: that time gets no weight. */
void tp_oncpu_blind(u64 ns)
{
	struct oncpu *c = this_cpu_ptr(&oncpu);
	unsigned long flags;

	raw_spin_lock_irqsave(&c->lock, flags);
	c->blind += ns;
	raw_spin_unlock_irqrestore(&c->lock, flags);
}

static void refresh(void *unused)
{
	struct tp_box *box = core_box();

	tp_spe_switch(current);
	slice(tp_mono(), current);
	if (box)
		tp_box_idle(box, is_idle_task(current) && !idle_counts);
}

/* Starts watching a process (tgid in the init namespace) or a v2 cgroup (id). */
int tp_oncpu_watch(bool cgroup, u64 id, u64 weight)
{
	unsigned int i;
	int err = 0;

	/* The sum overflows after 2^30 x 2^34 ns (17 s), or 2^20 x 2^44 ns (4.8 hours). */
	if (weight > BIT_ULL(30))
		return -ERANGE;
	mutex_lock(&watch_mutex);
	for (i = 0; i < nr_watched; i++)
		if (watched[i].cgroup == cgroup && watched[i].id == id)
			break;
	if (i == MAX_WATCHED) {
		err = -ENOSPC;
	} else {
		watched[i] = (struct watched){ .cgroup = cgroup, .id = id, .weight = weight };
		if (weight)
			WRITE_ONCE(weights_used, true);
		if (i == nr_watched)
			smp_store_release(&nr_watched, i + 1);
		on_each_cpu(refresh, NULL, 1);
	}
	mutex_unlock(&watch_mutex);
	return err;
}

void tp_oncpu_clear(void)
{
	int cpu;

	mutex_lock(&watch_mutex);
	smp_store_release(&nr_watched, 0);
	on_each_cpu(refresh, NULL, 1);
	for_each_possible_cpu(cpu) {
		struct oncpu *c = per_cpu_ptr(&oncpu, cpu);

		memset(c->ns, 0, sizeof(c->ns));
		memset(c->core_ns, 0, sizeof(c->core_ns));
		memset(c->weighing_ns, 0, sizeof(c->weighing_ns));
	}
	mutex_unlock(&watch_mutex);
}

void tp_oncpu_idle_counts(bool on)
{
	mutex_lock(&watch_mutex);
	WRITE_ONCE(idle_counts, on);
	on_each_cpu(refresh, NULL, 1);
	mutex_unlock(&watch_mutex);
}

void tp_oncpu_show(struct seq_file *s)
{
	unsigned int i;
	int cpu;

	mutex_lock(&watch_mutex);
	on_each_cpu(refresh, NULL, 1);
	seq_puts(s, "kind id weight cpu ns core_ns weighing_ns\n");
	for (i = 0; i < nr_watched; i++)
		for_each_online_cpu(cpu) {
			struct oncpu *c = per_cpu_ptr(&oncpu, cpu);

			seq_printf(s, "%s %llu %llu %d %llu %llu %llu\n",
				   watched[i].cgroup ? "cgroup" : "tgid", watched[i].id,
				   watched[i].weight, cpu, READ_ONCE(c->ns[i]),
				   READ_ONCE(c->core_ns[i]), READ_ONCE(c->weighing_ns[i]));
		}
	mutex_unlock(&watch_mutex);
}

static void find_sched_switch(struct tracepoint *tp, void *found)
{
	if (!strcmp(tp->name, "sched_switch"))
		*(struct tracepoint **)found = tp;
}

int tp_oncpu_init(void)
{
	int cpu, err;

	for_each_possible_cpu(cpu) {
		struct oncpu *c = per_cpu_ptr(&oncpu, cpu);

		raw_spin_lock_init(&c->lock);
		c->since = tp_mono();
	}
	for_each_kernel_tracepoint(find_sched_switch, &sched_switch_tp);
	if (!sched_switch_tp) {
		pr_err("testpmu: this kernel has no sched_switch tracepoint\n");
		return -ENOENT;
	}
	err = tracepoint_probe_register_prio(sched_switch_tp, switch_first, NULL, INT_MAX);
	if (err)
		return err;
	err = tracepoint_probe_register_prio(sched_switch_tp, switch_last, NULL, INT_MIN);
	if (err) {
		tracepoint_probe_unregister(sched_switch_tp, switch_first, NULL);
		tracepoint_synchronize_unregister();
		return err;
	}
	on_each_cpu(refresh, NULL, 1);
	return 0;
}

void tp_oncpu_exit(void)
{
	tracepoint_probe_unregister(sched_switch_tp, switch_first, NULL);
	tracepoint_probe_unregister(sched_switch_tp, switch_last, NULL);
	tracepoint_synchronize_unregister();
}
