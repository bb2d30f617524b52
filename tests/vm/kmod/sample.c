// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * ibs_op and cpu (Intel's names): PMUs that sample memory accesses by overflow.
 *
 * A timer ticks on each CPU. At each tick the running task executes a known number of
 * operations, which is added to all events on the CPU. When an event's period is full,
 * perf_event_overflow raises a sample with the address, latency and data source of the
 * next operation in the task's mix. The idle task executes no operations.
 *
 * The rules are those of arch/x86/events/amd/ibs.c and arch/x86/events/intel/core.c in
 * Linux. IBS refuses exclusion, and takes periods in steps of 16. Loads with a data source
 * need the auxiliary event as their leader. A driver that buffers records passes one record
 * of a full buffer to programs, unless the event asks for a wake-up.
 */
#include <linux/cgroup.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/sched.h>
#include <linux/version.h>
#include <asm/irq_regs.h>

#include "sample.h"

#define LOADS_EVENT 0x1cd
#define AUX_EVENT 0x8203
#define STORES_EVENT 0x2cd
#define IBS_OP_COUNT BIT_ULL(19)
#define IBS_STEP 16
#define IBS_MIN_PERIOD 0x90
#define MAX_EVENTS 8
#define BUFFERED 8 /* records of a full buffer */

struct sample_cpu {
	struct hrtimer timer;
	struct perf_event *events[MAX_EVENTS];
	unsigned int nr;
	unsigned int records; /* in the buffer */
};

static DEFINE_PER_CPU(struct sample_cpu, sample_cpu);
static bool sample_on;

/* perf_event_overflow. It is not exported, since real drivers that use it are built in. */
static int (*overflow)(struct perf_event *event, struct perf_sample_data *data,
		       struct pt_regs *regs);

static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	char name[KSYM_SYMBOL_LEN];
	unsigned long offset = 0;
	int err;

	err = register_kprobe(&probe);
	if (err) {
		pr_err("testpmu: perf_event_overflow is not found (%d)\n", err);
		return err;
	}
	/* The probe may be some bytes behind the start of the function. */
	sprint_symbol(name, (unsigned long)probe.addr);
	if (sscanf(name, "perf_event_overflow+%lx", &offset) == 1)
		overflow = (void *)((unsigned long)probe.addr - offset);
	unregister_kprobe(&probe);
	return overflow ? 0 : -ENOENT;
}

/* hw.config is the kind of the event, hw.extra_reg.config its least latency. */
static enum sample_kind event_kind(const struct perf_event *event)
{
	return event->hw.config;
}

static bool is_buffered(const struct perf_event *event)
{
	return event_kind(event) != SAMPLE_IBS && !event->attr.freq && !event->attr.wakeup_events;
}

static void raise(struct sample_cpu *c, struct perf_event *event, u64 cgroup, u64 period)
{
	u64 type = event->attr.sample_type, least = event->hw.extra_reg.config;
	struct pt_regs *regs = get_irq_regs();
	struct perf_sample_data data;
	const struct sample_op *op;

	if (sample_loses(event_kind(event)))
		return;
	op = sample_pick(event_kind(event), cgroup, least);
	if (is_buffered(event) && ++c->records % BUFFERED)
		return;
	perf_sample_data_init(&data, op ? op->addr : 0, period);
	if (op && (type & PERF_SAMPLE_WEIGHT_TYPE)) {
		data.weight.full = op->latency;
		data.sample_flags |= PERF_SAMPLE_WEIGHT_TYPE;
	}
	/* As IBS before 6.3, an operation without an access has no data source. */
	if (op && (type & PERF_SAMPLE_DATA_SRC)) {
		data.data_src.val = op->data_src;
		data.sample_flags |= PERF_SAMPLE_DATA_SRC;
	}
	if (regs && overflow(event, &data, regs))
		event->pmu->stop(event, 0);
}

static void execute(struct sample_cpu *c, struct perf_event *event, u64 cgroup, u64 ops)
{
	struct hw_perf_event *hw = &event->hw;
	s64 left, rest = ops;

	if (hw->state & PERF_HES_STOPPED)
		return;
	sample_executed(event_kind(event), cgroup, ops);
	left = is_sampling_event(event) ? local64_sub_return(ops, &hw->period_left) : 1;
	while (left <= 0) {
		u64 period = hw->sample_period;

		/* A counter has counted up to its overflow: -left operations follow. */
		local64_add(rest + left, &event->count);
		rest = -left;
		hw->last_period = period;
		/* Set before the overflow, which may change the period and its rest. */
		local64_add(period, &hw->period_left);
		raise(c, event, cgroup, period);
		if (hw->state & PERF_HES_STOPPED)
			break;
		left = local64_read(&hw->period_left);
	}
	local64_add(rest, &event->count);
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	struct sample_cpu *c = this_cpu_ptr(&sample_cpu);
	unsigned int i;

	if (!c->nr)
		return HRTIMER_NORESTART;
	if (!is_idle_task(current)) {
		u64 cgroup = cgroup_id(task_dfl_cgroup(current));

		for (i = 0; i < c->nr; i++)
			execute(c, c->events[i], cgroup, sample_ops_per_tick());
	}
	hrtimer_forward_now(timer, ns_to_ktime(sample_tick_ns()));
	return HRTIMER_RESTART;
}

static void sample_start(struct perf_event *event, int flags)
{
	struct hw_perf_event *hw = &event->hw;

	hw->state = 0;
	/* PERF_EVENT_IOC_PERIOD sets period_left to 0: a new period begins
	 * (as in x86_perf_event_set_period).
	 */
	if (!is_sampling_event(event) || !(flags & PERF_EF_RELOAD))
		return;
	if (local64_read(&hw->period_left) <= 0) {
		hw->last_period = hw->sample_period;
		local64_set(&hw->period_left, hw->sample_period);
	}
}

static void sample_stop(struct perf_event *event, int flags)
{
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int sample_add(struct perf_event *event, int flags)
{
	struct sample_cpu *c = this_cpu_ptr(&sample_cpu);

	if (c->nr == MAX_EVENTS)
		return -EAGAIN;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	c->events[c->nr++] = event;
	if (c->nr == 1)
		hrtimer_start(&c->timer, ns_to_ktime(sample_tick_ns()),
			      HRTIMER_MODE_REL_PINNED_HARD);
	if (flags & PERF_EF_START)
		sample_start(event, PERF_EF_RELOAD);
	return 0;
}

static void sample_del(struct perf_event *event, int flags)
{
	struct sample_cpu *c = this_cpu_ptr(&sample_cpu);
	unsigned int i;

	sample_stop(event, PERF_EF_UPDATE);
	for (i = 0; i < c->nr; i++)
		if (c->events[i] == event) {
			c->events[i] = c->events[--c->nr];
			break;
		}
	if (!c->nr)
		hrtimer_try_to_cancel(&c->timer);
}

/* The count is the one at the last tick. */
static void sample_read(struct perf_event *event)
{
}

static int check(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	if (event->cpu < 0)
		return -EINVAL;
	return has_branch_stack(event) ? -EOPNOTSUPP : 0;
}

static int ibs_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;
	int err = check(event);

	if (err)
		return err;
	if (attr->config & ~IBS_OP_COUNT || !is_sampling_event(event))
		return -EINVAL;
	if (attr->exclude_user || attr->exclude_kernel || attr->exclude_hv)
		return -EINVAL;
	if (!attr->freq && (attr->sample_period % IBS_STEP || attr->sample_period < IBS_MIN_PERIOD))
		return -EINVAL;
	event->hw.config = SAMPLE_IBS;
	return 0;
}

static int intel_event_init(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader;
	u64 needs = PERF_SAMPLE_DATA_SRC;
	int err = check(event);

	if (err)
		return err;
	switch (event->attr.config) {
	case LOADS_EVENT:
		if ((event->attr.sample_type & needs) &&
		    (leader == event || leader->attr.config != AUX_EVENT))
			return -ENODATA;
		event->hw.config = SAMPLE_LOADS;
		event->hw.extra_reg.config = event->attr.config1 & 0xffff;
		break;
	case AUX_EVENT:
		event->hw.config = SAMPLE_AUX;
		break;
	case STORES_EVENT:
		event->hw.config = SAMPLE_STORES;
		break;
	default:
		return -EINVAL;
	}
	/* Neither loads nor stores have a data source without PEBS. */
	if (event_kind(event) != SAMPLE_AUX && is_sampling_event(event) && !event->attr.precise_ip)
		return -EINVAL;
	return 0;
}

static void init(struct tp_pmu *p, int (*event_init)(struct perf_event *event))
{
	p->pmu = (struct pmu){
		.module = THIS_MODULE,
		.attr_groups = p->groups,
		/* Per CPU only: 6.1 refuses a second PMU with hardware events of tasks. */
		.task_ctx_nr = perf_invalid_context,
		.event_init = event_init,
		.add = sample_add,
		.del = sample_del,
		.start = sample_start,
		.stop = sample_stop,
		.read = sample_read,
	};
}

static void ibs_init(struct tp_pmu *p)
{
	init(p, ibs_event_init);
}

static void intel_init(struct tp_pmu *p)
{
	init(p, intel_event_init);
}

static const struct tp_text ibs_formats[] = {
	{ "cnt_ctl", "config:19" }, {}
};
static const struct tp_row ibs_row = {
	.name = "ibs_op", .layout = TP_PER_CPU, .init = ibs_init, .formats = ibs_formats,
};

static const struct tp_text intel_formats[] = {
	{ "event", "config:0-7" }, { "umask", "config:8-15" }, { "ldlat", "config1:0-15" }, {}
};
static const struct tp_text intel_events[] = {
	{ "mem-loads", "event=0xcd,umask=0x1,ldlat=3" }, { "mem-stores", "event=0xcd,umask=0x2" },
	{ "mem-loads-aux", "event=0x03,umask=0x82" }, {}
};
/* As on a kernel whose sysfs lacks the auxiliary event. */
static const struct tp_text intel_events_no_aux[] = {
	{ "mem-loads", "event=0xcd,umask=0x1,ldlat=3" }, { "mem-stores", "event=0xcd,umask=0x2" }, {}
};
static const struct tp_text intel_caps[] = { { "max_precise", "3" }, {} };
static const struct tp_row intel_row = {
	.name = "cpu", .layout = TP_PER_CPU, .init = intel_init, .formats = intel_formats,
	.event_texts = intel_events, .caps = intel_caps,
};
static const struct tp_row intel_row_no_aux = {
	.name = "cpu", .layout = TP_PER_CPU, .init = intel_init, .formats = intel_formats,
	.event_texts = intel_events_no_aux, .caps = intel_caps,
};

static void init_timer(struct hrtimer *timer)
{
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
	hrtimer_init(timer, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	timer->function = tick;
#else
	hrtimer_setup(timer, tick, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
#endif
}

/* `name`: ibs, pebs or pebs-noaux. */
int tp_sample_register(const char *name)
{
	int cpu, err = find_overflow();

	if (err)
		return err;

	for_each_possible_cpu(cpu)
		if (!sample_on)
			init_timer(&per_cpu_ptr(&sample_cpu, cpu)->timer);
	sample_on = true;
	if (!strcmp(name, "ibs"))
		return tp_register_row(&ibs_row, NULL, -1);
	return tp_register_row(strcmp(name, "pebs") ? &intel_row_no_aux : &intel_row, NULL, -1);
}

/* Called after the PMUs are unregistered, when no event is left. */
void tp_sample_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu)
		if (sample_on)
			hrtimer_cancel(&per_cpu_ptr(&sample_cpu, cpu)->timer);
}
