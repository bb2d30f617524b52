// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The clock of a box and the counters that run on it.
 *
 * A counter is exact: val = rate * t / 1e6, and the remainder is kept, so that the
 * order and number of reads never changes a count. A latch stops the box's clock at
 * one instant between two calls, without losing time. It is set while the PMU is
 * disabled (a group starts and stops as one, as on hardware), during a group read,
 * and for all programs on the sched_switch tracepoint.
 */
#include <linux/ktime.h>
#include <linux/string.h>

#include "testpmu.h"

/* CLOCK_MONOTONIC in ns, readable from any context. */
u64 tp_mono(void)
{
	return ktime_get_mono_fast_ns();
}

static u64 since(u64 now, u64 then)
{
	/* The fast clock may step back by a few ns when the timekeeper updates. */
	return now > then ? now - then : 0;
}

void tp_box_time(struct tp_box *box, u64 *t, u64 *w)
{
	u64 now;

	*t = box->t;
	*w = box->w;
	if (box->idle)
		return;
	now = box->latch ?: tp_mono();
	*t += since(now, box->t_since);
	*w += tp_oncpu_weighted(&box->cpus, now) - box->w_since;
}

/* The core PMU's clock stops while the idle task runs. */
void tp_box_idle(struct tp_box *box, bool idle)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&box->lock, flags);
	if (idle != box->idle) {
		if (idle)
			tp_box_time(box, &box->t, &box->w);
		box->idle = idle;
		box->t_since = box->latch ?: tp_mono();
		box->w_since = tp_oncpu_weighted(&box->cpus, box->t_since);
	}
	raw_spin_unlock_irqrestore(&box->lock, flags);
}

/* Latches may nest; the outermost one sets the instant. */
void tp_box_latch(struct tp_box *box, u32 reason, u64 now)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&box->lock, flags);
	if (!box->latched)
		box->latch = now;
	box->latched |= reason;
	raw_spin_unlock_irqrestore(&box->lock, flags);
}

void tp_box_unlatch(struct tp_box *box, u32 reason)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&box->lock, flags);
	box->latched &= ~reason;
	if (!box->latched)
		box->latch = 0;
	raw_spin_unlock_irqrestore(&box->lock, flags);
}

/* rate < 2^43, so that each product stays below 2^63. */
static void advance(u64 *val, u64 *carry, u64 rate, u64 ns)
{
	u64 ms = ns / TP_NS_PER_MS, rest = ns % TP_NS_PER_MS;
	u64 part = rate * rest + *carry;

	*val += rate * ms + part / TP_NS_PER_MS;
	*carry = part % TP_NS_PER_MS;
}

/* Advances a counter to the box's present time. */
void tp_value_update(struct tp_box *box, struct tp_value *v)
{
	u64 t, w;

	tp_box_time(box, &t, &w);
	if (t > v->last_t) {
		advance(&v->val, &v->carry, v->rate, t - v->last_t);
		v->last_t = t;
	}
	if (w > v->last_w) {
		advance(&v->val, &v->task_carry, v->task_rate, w - v->last_w);
		v->last_w = w;
	}
}

/* Finds a counter for event i, moving other events to other counters if needed. */
static bool assign_counter(const u64 *masks, unsigned int i, u64 *visited, s8 *owner)
{
	u64 left;

	while ((left = masks[i] & ~*visited)) {
		unsigned int c = __ffs64(left);

		*visited |= BIT_ULL(c);
		if (owner[c] < 0 || assign_counter(masks, owner[c], visited, owner)) {
			owner[c] = i;
			return true;
		}
	}
	return false;
}

/*
 * Whether n events can all count at once; masks[i] is the set of counters that event i
 * may use. A bipartite matching by augmenting paths; the recursion is at most n deep.
 */
bool tp_fits(const u64 *masks, unsigned int n)
{
	s8 owner[64];
	unsigned int i;

	memset(owner, -1, sizeof(owner));
	for (i = 0; i < n; i++) {
		u64 visited = 0;

		if (!assign_counter(masks, i, &visited, owner))
			return false;
	}
	return true;
}
