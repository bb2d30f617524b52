// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The struct pmu callbacks that uncore and core rows share: add, del, start, stop, read,
 * enable and disable, and the transactions of group reads.
 *
 * perf calls them with interrupts off on the box's CPU. A read may also come from another
 * CPU of the package (Intel uncore), so a box has a lock. An event has its spec in
 * pmu_private and the index of its box in hw.event_base.
 */
#include "testpmu.h"

static struct tp_box *event_box(struct perf_event *event)
{
	return &to_tp_pmu(event->pmu)->boxes[event->hw.event_base];
}

static struct tp_value *event_value(struct perf_event *event)
{
	struct tp_spec *s = event->pmu_private;

	return &s->v[event->hw.event_base];
}

/* The box of this CPU's callbacks, or NULL. */
static struct tp_box *local_box(struct pmu *pmu)
{
	struct tp_pmu *p = to_tp_pmu(pmu);
	int cpu = smp_processor_id();
	unsigned int i;

	if (p->row->layout == TP_PER_CPU)
		return &p->boxes[cpu];
	for (i = 0; i < p->nr_boxes; i++)
		if (p->boxes[i].cpu == cpu)
			return &p->boxes[i];
	return NULL;
}

/* What the event shows of n counts. A broken counter counts one in 524,288, as the last
 * counter of a real virtual PMU did.
 */
static u64 shown_counts(const struct perf_event *event, u64 n)
{
	bool broken = tp_broken >= 0 && event->hw.idx == tp_broken;

	return broken ? n >> 19 : n;
}

static void update(struct perf_event *event)
{
	struct tp_box *box = event_box(event);
	struct tp_value *v = event_value(event);
	unsigned long flags;

	raw_spin_lock_irqsave(&box->lock, flags);
	tp_value_update(box, v);
	local64_add(shown_counts(event, v->val - local64_read(&event->hw.prev_count)),
		    &event->count);
	local64_set(&event->hw.prev_count, v->val);
	raw_spin_unlock_irqrestore(&box->lock, flags);
}

static void tp_start(struct perf_event *event, int flags)
{
	struct tp_box *box = event_box(event);
	struct tp_value *v = event_value(event);
	unsigned long irq;

	raw_spin_lock_irqsave(&box->lock, irq);
	tp_value_update(box, v);
	local64_set(&event->hw.prev_count, v->val);
	event->hw.state = 0;
	raw_spin_unlock_irqrestore(&box->lock, irq);
}

static void tp_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	update(event);
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static void tp_read(struct perf_event *event)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		update(event);
}

/*
 * The counter for a new event: the first free one, as kernel drivers allocate them.
 * Cycles get the counter that only they may use.
 */
static int counter_index(const struct tp_pmu *p, const struct perf_event *event,
			 const struct tp_box *box)
{
	u64 mask = tp_event_mask(p, event->hw.config), cycles = BIT_ULL(p->row->counters);
	unsigned int i;

	if (!p->row->numbered)
		return -1;
	for (i = 0; i < box->nr_active; i++)
		if (box->active[i]->hw.idx >= 0)
			mask &= ~BIT_ULL(box->active[i]->hw.idx);
	if (!mask)
		return -1;
	return mask & cycles ? p->row->counters : __ffs64(mask);
}

static int tp_add(struct perf_event *event, int flags)
{
	struct tp_pmu *p = to_tp_pmu(event->pmu);
	u64 masks[TP_MAX_ACTIVE];
	struct tp_box *box;
	unsigned long irq;
	unsigned int i;
	int err = 0;

	if (p->row->layout == TP_PER_CPU)
		event->hw.event_base = smp_processor_id();
	box = event_box(event);

	raw_spin_lock_irqsave(&box->lock, irq);
	for (i = 0; i < box->nr_active; i++)
		masks[i] = tp_event_mask(p, box->active[i]->hw.config);
	if (i < TP_MAX_ACTIVE)
		masks[i] = tp_event_mask(p, event->hw.config);
	if (i == TP_MAX_ACTIVE || !tp_fits(masks, i + 1))
		err = -EAGAIN;
	else if (p->row->admit)
		err = p->row->admit(event, box->active, box->nr_active);
	if (!err) {
		event->hw.idx = counter_index(p, event, box);
		box->active[box->nr_active++] = event;
	}
	raw_spin_unlock_irqrestore(&box->lock, irq);
	if (err)
		return err;

	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		tp_start(event, PERF_EF_RELOAD);
	perf_event_update_userpage(event);
	return 0;
}

static void tp_del(struct perf_event *event, int flags)
{
	struct tp_box *box = event_box(event);
	unsigned long irq;
	unsigned int i;

	tp_stop(event, PERF_EF_UPDATE);
	raw_spin_lock_irqsave(&box->lock, irq);
	for (i = 0; i < box->nr_active; i++)
		if (box->active[i] == event) {
			box->active[i] = box->active[--box->nr_active];
			break;
		}
	event->hw.idx = -1;
	raw_spin_unlock_irqrestore(&box->lock, irq);
	perf_event_update_userpage(event);
}

static void tp_enable(struct pmu *pmu)
{
	struct tp_box *box = local_box(pmu);

	if (box)
		tp_box_unlatch(box, TP_LATCH_PMU);
}

static void tp_disable(struct pmu *pmu)
{
	struct tp_box *box = local_box(pmu);

	if (box)
		tp_box_latch(box, TP_LATCH_PMU, tp_mono());
}

/* A group read sees one instant. Other transactions need no work. */
static void tp_start_txn(struct pmu *pmu, unsigned int flags)
{
	struct tp_box *box = local_box(pmu);

	if (box && (flags & PERF_PMU_TXN_READ))
		tp_box_latch(box, TP_LATCH_READ, tp_mono());
}

static void end_txn(struct pmu *pmu)
{
	struct tp_box *box = local_box(pmu);

	if (box)
		tp_box_unlatch(box, TP_LATCH_READ);
}

static int tp_commit_txn(struct pmu *pmu)
{
	end_txn(pmu);
	return 0;
}

static void tp_cancel_txn(struct pmu *pmu)
{
	end_txn(pmu);
}

/*
 * Checks, as real drivers do at open, that an event and its group can count at once.
 * Groups with hardware events of other PMUs are refused.
 */
int tp_group_fits(struct perf_event *event, u64 id)
{
	struct perf_event *leader = event->group_leader, *e;
	struct tp_pmu *p = to_tp_pmu(event->pmu);
	u64 masks[TP_MAX_ACTIVE];
	unsigned int n = 0;

	masks[n++] = tp_event_mask(p, id);
	if (leader != event) {
		if (leader->pmu == event->pmu)
			masks[n++] = tp_event_mask(p, leader->hw.config);
		else if (!is_software_event(leader))
			return -EINVAL;
		for_each_sibling_event(e, leader) {
			if (is_software_event(e))
				continue;
			if (e->pmu != event->pmu || n == TP_MAX_ACTIVE)
				return -EINVAL;
			masks[n++] = tp_event_mask(p, e->hw.config);
		}
	}
	return tp_fits(masks, n) ? 0 : -EINVAL;
}

/*
 * Up to 6.1 all PMUs with hardware events of tasks share one context, and the kernel warns
 * of a second PMU without PERF_PMU_CAP_HETEROGENEOUS_CPUS. With the flag, on arm64 this PMU
 * would start and stop together with QEMU's own. So on arm64 it has no such context, and
 * refuses per-task events.
 */
#if defined(PERF_PMU_CAP_HETEROGENEOUS_CPUS) && defined(CONFIG_ARM64)
#define TP_CORE_CONTEXT perf_invalid_context
#else
#define TP_CORE_CONTEXT perf_hw_context
#endif

void tp_count_init(struct tp_pmu *p)
{
	p->pmu = (struct pmu){
		.module = THIS_MODULE,
		.capabilities = p->row->capabilities,
		.attr_groups = p->groups,
		.task_ctx_nr = p->row->layout == TP_PER_CPU ? TP_CORE_CONTEXT
							    : perf_invalid_context,
		.event_init = p->row->layout == TP_PER_CPU ? tp_core_event_init
							   : tp_uncore_event_init,
		.pmu_enable = tp_enable,
		.pmu_disable = tp_disable,
		.add = tp_add,
		.del = tp_del,
		.start = tp_start,
		.stop = tp_stop,
		.read = tp_read,
		.start_txn = tp_start_txn,
		.commit_txn = tp_commit_txn,
		.cancel_txn = tp_cancel_txn,
	};
}
