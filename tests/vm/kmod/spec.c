// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Specs: events with their filters, and the rates at which they count.
 *
 * The default rate, in counts per ms of box time, depends on every bit that a
 * user can set, so that a wrong bit changes the count:
 *
 *   cycle event      1000000 * (1 + socket) + instance
 *   any other        (1000 + fold(id, 16)) * F1 * F2 * (1 + socket) + instance
 *   F1, F2           1 if the PMU has no such filter, else by the PMU's table:
 *                    mostly factor(filter, 12) and factor(filter, 8), with the
 *                    driver's default mask if no bit is set
 *   fold(x, n)       XOR of all n-bit pieces of x
 *   factor(x, n)     fold(x, n), or 2^n where that is 0
 *
 * A port mask counts the sum of its ports' counts.
 * Rows may have their own rates (core PMUs). `rates=0` makes every default 0.
 */
#include <linux/slab.h>

#include "testpmu.h"

unsigned int tp_user_permille = 1000;

static u64 fold(u64 x, unsigned int bits)
{
	u64 r = 0;

	for (; x; x >>= bits)
		r ^= x & (BIT_ULL(bits) - 1);
	return r;
}

u64 tp_factor(u64 filter, unsigned int bits)
{
	return fold(filter, bits) ?: BIT_ULL(bits);
}

/* The counters that an event may use, as bits. */
u64 tp_event_mask(const struct tp_pmu *p, u64 id)
{
	if (p->row->constraint)
		return p->row->constraint(p->row, id);
	return BIT_ULL(p->row->counters) - 1;
}

static u64 default_rate(const struct tp_pmu *p, const u64 config[3], int box)
{
	const struct tp_row *row = p->row;
	struct tp_factors f = { 1, 1 };
	int socket = p->boxes[box].socket;
	u64 id = config[0] & row->id_mask;
	const struct tp_event *e;

	if (!tp_rates)
		return 0;
	for (e = row->events; e && e->name; e++)
		if (e->rate && e->id == id)
			return e->rate;
	if (row->layout == TP_PER_CPU)
		return 1000 + fold(id, 16);
	if (id == row->cycles_event)
		return 1000000 * (1 + socket) + p->instance;
	if (row->factors)
		row->factors(config, &f);
	if (row->f1_mask)
		f.f1 = tp_factor((config[1] & row->f1_mask) ?: row->f1_mask, 12);
	if (row->f2_mask)
		f.f2 = tp_factor((config[2] & row->f2_mask) ?: row->f2_mask, 8);
	return (1000 + fold(id, 16)) * f.f1 * f.f2 * (1 + socket) + p->instance;
}

/* The user part of a rate is rounded down; the kernel part is the rest. */
static u64 split(u64 rate, u32 excl)
{
	u64 user = rate / 1000 * tp_user_permille + rate % 1000 * tp_user_permille / 1000;

	switch (excl) {
	case 0:
		return rate;
	case TP_EXCL_KERNEL:
		return user;
	case TP_EXCL_USER:
		return rate - user;
	default:
		return 0;
	}
}

static struct tp_spec *find(struct tp_pmu *p, const u64 config[3], u32 excl)
{
	struct tp_spec *s;

	list_for_each_entry(s, &p->specs, node)
		if (s->config[0] == config[0] && s->config[1] == config[1] &&
		    s->config[2] == config[2] && s->excl == excl)
			return s;
	return NULL;
}

static struct tp_spec *get_locked(struct tp_pmu *p, const u64 config[3], u32 excl)
{
	struct tp_spec *base, *s = find(p, config, excl);
	unsigned int i;

	if (s)
		return s;
	/* The whole event comes first: the rates of its parts are parts of its rates. */
	base = excl ? get_locked(p, config, 0) : NULL;
	if (IS_ERR(base))
		return base;
	if (p->nr_specs >= TP_MAX_SPECS)
		return ERR_PTR(-ENOSPC);
	s = kzalloc(struct_size(s, v, p->nr_boxes), GFP_KERNEL);
	if (!s)
		return ERR_PTR(-ENOMEM);
	memcpy(s->config, config, sizeof(s->config));
	s->excl = excl;
	for (i = 0; i < p->nr_boxes; i++) {
		struct tp_box *box = &p->boxes[i];
		struct tp_value *v = &s->v[i];
		unsigned long flags;

		v->rate = base ? split(base->v[i].rate, excl) : default_rate(p, config, i);
		v->task_rate = base ? split(base->v[i].task_rate, excl) : 0;
		raw_spin_lock_irqsave(&box->lock, flags);
		tp_box_time(box, &v->last_t, &v->last_w);
		raw_spin_unlock_irqrestore(&box->lock, flags);
	}
	list_add_tail(&s->node, &p->specs);
	p->nr_specs++;
	return s;
}

/* Finds or makes the spec, which exists until the module is unloaded. */
struct tp_spec *tp_spec_get(struct tp_pmu *p, const u64 config[3], u32 excl)
{
	struct tp_spec *s;

	mutex_lock(&p->lock);
	s = get_locked(p, config, excl);
	mutex_unlock(&p->lock);
	return s;
}

static void set_rate(struct tp_box *box, struct tp_value *v, u64 rate, bool task)
{
	unsigned long flags;

	raw_spin_lock_irqsave(&box->lock, flags);
	tp_value_update(box, v);
	if (task)
		v->task_rate = rate;
	else
		v->rate = rate;
	raw_spin_unlock_irqrestore(&box->lock, flags);
}

/* Sets the rate of an event, with its user and kernel parts; box -1: every box. */
int tp_spec_rate(struct tp_pmu *p, const u64 config[3], int box, u64 rate, bool task)
{
	struct tp_spec *s;
	int i, err = 0;

	if (rate >= TP_RATE_MAX)
		return -ERANGE;
	if (box >= (int)p->nr_boxes)
		return -ENXIO;
	mutex_lock(&p->lock);
	s = get_locked(p, config, 0);
	if (IS_ERR(s))
		err = PTR_ERR(s);
	else
		list_for_each_entry(s, &p->specs, node) {
			if (memcmp(s->config, config, sizeof(s->config)))
				continue;
			for (i = 0; i < p->nr_boxes; i++)
				if (box < 0 || box == i)
					set_rate(&p->boxes[i], &s->v[i], split(rate, s->excl),
						 task);
		}
	mutex_unlock(&p->lock);
	return err;
}

/* Adds exactly n to an event's counter on one box (-1: on every box). */
int tp_spec_add(struct tp_pmu *p, const u64 config[3], int box, u64 n)
{
	struct tp_spec *s;
	unsigned long flags;
	int i;

	if (box >= (int)p->nr_boxes)
		return -ENXIO;
	s = tp_spec_get(p, config, 0);
	if (IS_ERR(s))
		return PTR_ERR(s);
	for (i = 0; i < p->nr_boxes; i++) {
		if (box >= 0 && box != i)
			continue;
		raw_spin_lock_irqsave(&p->boxes[i].lock, flags);
		tp_value_update(&p->boxes[i], &s->v[i]);
		s->v[i].val += n;
		raw_spin_unlock_irqrestore(&p->boxes[i].lock, flags);
	}
	return 0;
}

/* Changes the user part of every event of the core PMU. */
int tp_spec_set_split(unsigned int permille)
{
	struct tp_pmu *p = tp_core;
	struct tp_spec *s, *base;
	int i;

	if (permille > 1000)
		return -ERANGE;
	tp_user_permille = permille;
	if (!p)
		return 0;
	mutex_lock(&p->lock);
	list_for_each_entry(s, &p->specs, node) {
		if (!s->excl)
			continue;
		base = find(p, s->config, 0);
		for (i = 0; i < p->nr_boxes; i++)
			set_rate(&p->boxes[i], &s->v[i], split(base->v[i].rate, s->excl), false);
	}
	mutex_unlock(&p->lock);
	return 0;
}
