// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * arm_spe_0: an AUX PMU that passes records to perf as the real driver does.
 *
 * The emulated hardware is a loop that writes a sample of the running task every
 * sample_period operations. It runs at each timer tick and at each switch, for the time
 * since its last run. When the buffer's limit is reached it raises an interrupt (irq_work)
 * and samples nothing until that is handled, as on hardware. Head, limit, padding, flags
 * and disabling follow Linux's drivers/perf/arm_spe_pmu.c: limits on page boundaries, half
 * a buffer per chunk in overwrite mode.
 */
#include <linux/capability.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/version.h>
#include <linux/vmalloc.h>

#include "spe.h"

#define MIN_PERIOD 1024
#define PERIOD_MASK 0xffffff00ULL
/* Filterable event bits: of SPEv1.0 and v1p1, and implementation defined bits. */
#define FILTERABLE (BIT_ULL(1) | BIT_ULL(3) | BIT_ULL(5) | BIT_ULL(7) | BIT_ULL(11) | \
		    GENMASK_ULL(15, 12) | GENMASK_ULL(18, 17) | GENMASK_ULL(31, 24) | \
		    GENMASK_ULL(63, 48))

DEFINE_PER_CPU(struct spe_cpu, tp_spe_cpu);
static bool spe_on; /* registered */

struct spe_buf {
	int nr_pages;
	bool snapshot;
	u8 *base;
};

static u64 buf_size(const struct spe_buf *buf)
{
	return (u64)buf->nr_pages << PAGE_SHIFT;
}

static u64 offset_of(u64 index, const struct spe_buf *buf)
{
	return index % buf_size(buf);
}

static void pad(struct perf_output_handle *handle, struct spe_buf *buf, u64 len)
{
	memset(buf->base + offset_of(handle->head, buf), 0, len);
	if (!buf->snapshot)
		perf_aux_output_skip(handle, len);
}

static u64 record_room(void)
{
	return spe_room(rcu_dereference_sched(spe_settings));
}

static u64 snapshot_limit(struct perf_output_handle *handle, struct spe_buf *buf)
{
	u64 head = offset_of(handle->head, buf), limit = buf_size(buf);

	if (head < limit / 2)
		limit /= 2;
	if (limit - head < record_room()) {
		pad(handle, buf, limit - head);
		handle->head = offset_of(limit, buf);
		limit = buf_size(buf) / 2 + handle->head;
	}
	return limit;
}

static u64 normal_limit_once(struct perf_output_handle *handle, struct spe_buf *buf)
{
	u64 head = offset_of(handle->head, buf), limit = buf_size(buf), tail, wakeup;

	if (head % SPE_RECORD) {
		pad(handle, buf, min_t(u64, roundup(head, SPE_RECORD) - head, handle->size));
		head = offset_of(handle->head, buf);
	}
	if (handle->size) {
		tail = offset_of(handle->head + handle->size, buf);
		wakeup = offset_of(handle->wakeup, buf);
		if (head < tail)
			limit = round_down(tail, PAGE_SIZE);
		if (handle->wakeup < handle->head + handle->size && head <= wakeup)
			limit = min_t(u64, limit, round_up(wakeup, PAGE_SIZE));
		if (limit > head)
			return limit;
		pad(handle, buf, handle->size);
	}
	perf_aux_output_flag(handle, PERF_AUX_FLAG_TRUNCATED);
	perf_aux_output_end(handle, 0);
	return 0;
}

static u64 normal_limit(struct perf_output_handle *handle, struct spe_buf *buf)
{
	u64 limit = normal_limit_once(handle, buf);
	u64 head = offset_of(handle->head, buf);

	if (limit && limit - head < record_room()) {
		pad(handle, buf, limit - head);
		limit = normal_limit_once(handle, buf);
	}
	return limit;
}

static void begin_output(struct spe_cpu *c, struct perf_event *event)
{
	struct spe_buf *buf = perf_aux_output_begin(&c->handle, event);

	c->limit = 0;
	if (!buf) {
		event->hw.state |= PERF_HES_STOPPED;
		return;
	}
	c->limit = buf->snapshot ? snapshot_limit(&c->handle, buf)
				 : normal_limit(&c->handle, buf);
	if (!c->limit) {
		c->stats.no_space++;
		return;
	}
	c->base = buf->base;
	c->pos = offset_of(c->handle.head, buf);
}

/* Passes the written records to perf, with the flags of a full buffer. */
static void end_output(struct spe_cpu *c, struct spe_buf *buf)
{
	const struct spe_settings *set = rcu_dereference_sched(spe_settings);
	u64 size = c->pos - offset_of(c->handle.head, buf), behind = 0;

	if (c->full) {
		c->full_count++;
		c->stats.full++;
		if (set->loss_every && c->full_count % set->loss_every == 0) {
			perf_aux_output_flag(&c->handle,
					     PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL);
			c->stats.lost_data++;
		}
		if (set->collision_every && c->full_count % set->collision_every == 0) {
			perf_aux_output_flag(&c->handle, PERF_AUX_FLAG_COLLISION);
			c->stats.collided++;
		}
		if (buf->snapshot && set->unreadable_every &&
		    c->full_count % set->unreadable_every == 0) {
			behind = 2 * buf_size(buf);
			c->stats.unreadable++;
		}
		c->full = false;
	}
	if (size) {
		c->stats.chunks++;
		c->stats.bytes += size;
	}
	if (buf->snapshot)
		c->handle.head = c->pos + behind;
	c->limit = 0;
	perf_aux_output_end(&c->handle, size);
}

static void add_blind_time(struct spe_cpu *c, u64 ns)
{
	c->stats.blind_ns += ns;
	tp_oncpu_blind(ns);
}

/*
 * Leaves out the time that this code itself took, if it was more than a tick, as in an
 * emulated guest on a busy host. The task did not run then, and writing records of that time
 * would take even longer.
 */
static void skip_own_time(struct spe_cpu *c, const struct spe_settings *set, u64 since)
{
	u64 now = spe_clock(), ns = now > since ? spe_clock_ns(now - since) : 0;

	if (ns <= set->tick_us * NSEC_PER_USEC)
		return;
	add_blind_time(c, ns);
	c->last = now;
}

/*
 * Operations from one sample to the next. Jitter is a random number from 0 to 255
 * (PMSICR_EL1); PMSIDR_EL1.ERnd selects its effect. With ERnd 0 it is added to each
 * interval. With ERnd 1 it only moves the sample, and the next interval begins when the
 * previous one has elapsed.
 */
static u64 interval(struct spe_cpu *c)
{
	u64 before = c->jitter, period = c->event->hw.sample_period;

	if (!(c->event->attr.config & SPE_JITTER))
		return period;
	c->jitter = spe_random(c) % 256;
	return tp_ernd ? period - before + c->jitter : period + c->jitter;
}

/* Runs the hardware for the time since its last run, with `task` on the CPU. */
static void run(struct spe_cpu *c, struct task_struct *task)
{
	const struct spe_settings *set = rcu_dereference_sched(spe_settings);
	u64 now = spe_clock();
	u64 ns = now > c->last ? spe_clock_ns(now - c->last) : 0;
	u64 ops, part;

	if (now > c->last)
		c->last = now;
	if (!c->event || is_idle_task(task) || !ns)
		return;
	if (c->full || !c->limit) {
		add_blind_time(c, ns);
		return;
	}
	part = set->ops_per_ms * (ns % TP_NS_PER_MS) + c->carry;
	ops = set->ops_per_ms * (ns / TP_NS_PER_MS) + part / TP_NS_PER_MS;
	c->carry = part % TP_NS_PER_MS;
	c->stats.ops += ops;
	while (ops >= c->left) {
		u64 ago;

		ops -= c->left;
		c->left = interval(c);
		ago = ops / set->ops_per_ms * TP_NS_PER_MS +
		      ops % set->ops_per_ms * TP_NS_PER_MS / set->ops_per_ms;
		spe_sample(c, set, task, min(ago, ns - 1));
		if (c->limit - c->pos < spe_room(set)) {
			c->full = true;
			c->stats.ops -= ops;
			add_blind_time(c, ago);
			irq_work_queue(&c->irq);
			skip_own_time(c, set, now);
			return;
		}
	}
	c->left -= ops;
	skip_own_time(c, set, now);
}

static void full_irq(struct irq_work *work)
{
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);
	struct perf_event *event = c->event;
	struct spe_buf *buf = perf_get_aux(&c->handle);
	u64 since = spe_clock();

	if (!c->full || !event || !buf)
		return;
	run(c, current);
	/* run() has counted the time up to here as blind. */
	since = max(since, c->last);
	end_output(c, buf);
	if (!(c->handle.aux_flags & PERF_AUX_FLAG_TRUNCATED))
		begin_output(c, event);
	skip_own_time(c, rcu_dereference_sched(spe_settings), since);
}

static enum hrtimer_restart tick(struct hrtimer *timer)
{
	const struct spe_settings *set = rcu_dereference_sched(spe_settings);
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);

	if (!c->event)
		return HRTIMER_NORESTART;
	run(c, current);
	hrtimer_forward_now(timer, ns_to_ktime(set->tick_us * NSEC_PER_USEC));
	return HRTIMER_RESTART;
}

/* Called by the first sched_switch probe. */
void tp_spe_switch(struct task_struct *prev)
{
	if (READ_ONCE(spe_on))
		run(this_cpu_ptr(&tp_spe_cpu), prev);
}

/*
 * Called at the end of that probe. No task ran while it wrote prev's records, for up to a
 * tick, and later probes cannot know that: the next task's operations begin here.
 */
void tp_spe_switched(void)
{
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);
	u64 now = spe_clock();

	if (!READ_ONCE(spe_on) || !c->event || now <= c->last)
		return;
	add_blind_time(c, spe_clock_ns(now - c->last));
	c->last = now;
}

static void spe_start(struct perf_event *event, int flags)
{
	const struct spe_settings *set = rcu_dereference_sched(spe_settings);
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);
	u64 period = event->hw.sample_period;

	event->hw.state = 0;
	c->full = false;
	begin_output(c, event);
	if (event->hw.state)
		return;
	period = clamp_t(u64, period, MIN_PERIOD, PERIOD_MASK) & PERIOD_MASK;
	event->hw.sample_period = period;
	c->left = local64_read(&event->hw.period_left);
	c->jitter = 0;
	if (!c->left || c->left > period)
		c->left = period;
	c->last = spe_clock();
	c->event = event;
	hrtimer_start(&c->timer, ns_to_ktime(set->tick_us * NSEC_PER_USEC), HRTIMER_MODE_REL_PINNED_HARD);
}

static void spe_stop(struct perf_event *event, int flags)
{
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);
	struct spe_buf *buf;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	run(c, current);
	hrtimer_try_to_cancel(&c->timer);
	c->event = NULL;
	if (flags & PERF_EF_UPDATE) {
		buf = perf_get_aux(&c->handle);
		if (buf)
			end_output(c, buf);
		local64_set(&event->hw.period_left, c->left);
		event->hw.state |= PERF_HES_UPTODATE;
	}
	c->full = false;
	event->hw.state |= PERF_HES_STOPPED;
}

static int spe_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_UPTODATE | PERF_HES_STOPPED;
	if (flags & PERF_EF_START) {
		spe_start(event, PERF_EF_RELOAD);
		if (event->hw.state & PERF_HES_STOPPED)
			return -EINVAL;
	}
	return 0;
}

static void spe_del(struct perf_event *event, int flags)
{
	spe_stop(event, PERF_EF_UPDATE);
}

static void spe_read(struct perf_event *event)
{
}

static int spe_event_init(struct perf_event *event)
{
	struct perf_event_attr *attr = &event->attr;

	if (attr->type != event->pmu->type)
		return -ENOENT;
	if (event->cpu >= 0 && !cpu_possible(event->cpu))
		return -ENOENT;
	if (attr->config1 & ~FILTERABLE)
		return -EOPNOTSUPP;
	if (attr->exclude_idle)
		return -EOPNOTSUPP;
	if (attr->freq)
		return -EINVAL;
	if (!perfmon_capable() && (attr->config & (SPE_PA_ENABLE | SPE_PCT_ENABLE)))
		return -EACCES;
	/* Records have the thread id only if the opener of the event has the capability. */
	event->hw.config = perfmon_capable();
	return 0;
}

static void *spe_setup_aux(struct perf_event *event, void **pages, int nr_pages, bool snapshot)
{
	struct page **list;
	struct spe_buf *buf;
	int i;

	if (nr_pages < 2 || (snapshot && nr_pages % 2))
		return NULL;
	buf = kzalloc(sizeof(*buf), GFP_KERNEL);
	list = kcalloc(nr_pages, sizeof(*list), GFP_KERNEL);
	if (buf && list) {
		for (i = 0; i < nr_pages; i++)
			list[i] = virt_to_page(pages[i]);
		buf->nr_pages = nr_pages;
		buf->snapshot = snapshot;
		buf->base = vmap(list, nr_pages, VM_MAP, PAGE_KERNEL);
	}
	kfree(list);
	if (buf && buf->base)
		return buf;
	kfree(buf);
	return NULL;
}

static void spe_free_aux(void *aux)
{
	struct spe_buf *buf = aux;

	vunmap(buf->base);
	kfree(buf);
}

static void spe_init(struct tp_pmu *p)
{
	p->pmu = (struct pmu){
		.module = THIS_MODULE,
		.capabilities = p->row->capabilities,
		.attr_groups = p->groups,
		/* As in the real driver: per-task events need the callbacks of a context. */
		.task_ctx_nr = perf_sw_context,
		.event_init = spe_event_init,
		.add = spe_add,
		.del = spe_del,
		.start = spe_start,
		.stop = spe_stop,
		.read = spe_read,
		.setup_aux = spe_setup_aux,
		.free_aux = spe_free_aux,
	};
}

static const struct tp_text spe_formats[] = {
	{ "ts_enable", "config:0" }, { "pa_enable", "config:1" }, { "pct_enable", "config:2" },
	{ "jitter", "config:16" }, { "branch_filter", "config:32" },
	{ "load_filter", "config:33" }, { "store_filter", "config:34" },
	{ "event_filter", "config1:0-63" }, { "min_latency", "config2:0-11" }, {}
};
static struct tp_text spe_caps[] = {
	{ "arch_inst", "0" }, { "ernd", "1" }, { "count_size", "12" }, { "min_interval", "1024" }, {}
};
static const struct tp_row spe_row = {
	.name = "arm_spe_0", .layout = TP_PER_CPU, .init = spe_init,
	.formats = spe_formats, .caps = spe_caps, .cpus_file = "cpumask",
	.cpus_offline = true,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
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

int tp_spe_register(void)
{
	int cpu, err;

	if (spe_on)
		return -EEXIST;
	err = spe_truth_init();
	if (err)
		return err;
	for_each_possible_cpu(cpu) {
		struct spe_cpu *c = per_cpu_ptr(&tp_spe_cpu, cpu);

		c->rng = 0x9e3779b97f4a7c15ULL * (cpu + 1);
		init_irq_work(&c->irq, full_irq);
		init_timer(&c->timer);
	}
	spe_caps[1].text = tp_ernd ? "1" : "0";
	err = tp_register_row(&spe_row, NULL, -1);
	if (err)
		spe_truth_exit();
	else
		WRITE_ONCE(spe_on, true);
	return err;
}

/* Called after the PMU is unregistered, when no event is left to start timer or interrupt. */
void tp_spe_exit(void)
{
	int cpu;

	if (!spe_on)
		return;
	for_each_possible_cpu(cpu) {
		hrtimer_cancel(&per_cpu_ptr(&tp_spe_cpu, cpu)->timer);
		irq_work_sync(&per_cpu_ptr(&tp_spe_cpu, cpu)->irq);
	}
	spe_truth_exit();
}
