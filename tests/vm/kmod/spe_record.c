// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Takes one sample: chooses an operation from the mix, filters it, writes its record.
 *
 * A record is 64 bytes. Its packets (Arm ARM, DDI 0487, "Statistical Profiling Extension
 * Sample Record Specification") are at the offsets that real cores use: PC 0, context 14,
 * operation 19, events 21, issue and total latency 24 and 27; for loads and stores VA 30,
 * translation latency 39, PA 42, data source 51; for branches the target 30; timestamp 55,
 * or END as the last byte. Packed records have the same packets without gaps, padded after
 * the last one. Dense records are also packed, but padded before their last packet, to a
 * multiple of 4 bytes only (a dump of a KVM guest of 2020 has 32 and 44).
 *
 * Timestamps count CNTVCT on arm64 and ns of CLOCK_MONOTONIC elsewhere.
 */
#include <linux/math64.h>
#include <linux/sched.h>
#include <linux/string.h>
#ifdef CONFIG_ARM64
#include <clocksource/arm_arch_timer.h>
#endif

#include "spe.h"

#define NS BIT_ULL(63)
#define ADDRESS GENMASK_ULL(55, 0)

/* xorshift64, with a state for each CPU, so that records are reproducible. */
u64 spe_random(struct spe_cpu *c)
{
	c->rng ^= c->rng << 13;
	c->rng ^= c->rng >> 7;
	c->rng ^= c->rng << 17;
	return c->rng;
}

u64 spe_clock(void)
{
#ifdef CONFIG_ARM64
	return arch_timer_read_counter();
#else
	return tp_mono();
#endif
}

static u32 clock_hz(void)
{
#ifdef CONFIG_ARM64
	return arch_timer_get_cntfrq();
#else
	return NSEC_PER_SEC;
#endif
}

u64 spe_clock_ns(u64 ticks)
{
	return mul_u64_u32_div(ticks, NSEC_PER_SEC, clock_hz());
}

static const struct spe_op *choose(struct spe_cpu *c, const struct spe_settings *set, u32 tgid)
{
	u64 weights = 0, at;
	unsigned int i;
	u32 owner = 0;

	for (i = 0; i < set->nr_ops; i++)
		if (set->ops[i].tgid == tgid)
			owner = tgid;
	for (i = 0; i < set->nr_ops; i++)
		if (set->ops[i].tgid == owner)
			weights += set->ops[i].weight;
	if (!weights)
		return NULL;
	at = spe_random(c) % weights;
	for (i = 0; i < set->nr_ops; i++) {
		if (set->ops[i].tgid != owner)
			continue;
		if (at < set->ops[i].weight)
			return &set->ops[i];
		at -= set->ops[i].weight;
	}
	return NULL;
}

static bool passes_filters(const struct perf_event_attr *attr, const struct spe_op *op, u16 total,
		   bool user)
{
	static const u64 filter[] = { SPE_LOAD_FILTER, SPE_STORE_FILTER, SPE_BRANCH_FILTER, 0 };
	u64 types = attr->config & (SPE_LOAD_FILTER | SPE_STORE_FILTER | SPE_BRANCH_FILTER);

	if (user ? attr->exclude_user : attr->exclude_kernel)
		return false;
	if (types && !(types & filter[op->class]))
		return false;
	if ((op->events & attr->config1) != attr->config1)
		return false;
	return total >= (attr->config2 & 0xfff);
}

struct writer {
	u8 *out;
	unsigned int at;
	bool packed;
};

/* Writes a packet at `offset`, or without a gap; `width` payload bytes, little endian. */
static void packet(struct writer *w, unsigned int offset, u8 header, unsigned int width,
		   u64 payload)
{
	if (!w->packed)
		w->at = offset;
	w->out[w->at++] = header;
	while (width--) {
		w->out[w->at++] = payload;
		payload >>= 8;
	}
}

u64 spe_room(const struct spe_settings *set)
{
	return set->layout == SPE_CELLS ? SPE_RECORD : SPE_ROOM;
}

/* Chooses the record's layout and pads before it; returns whether it is dense. */
static bool choose_layout(struct spe_cpu *c, const struct spe_settings *set)
{
	u64 random, gap = 0;

	if (set->layout != SPE_MIXED)
		return set->layout == SPE_DENSE;
	random = spe_random(c);
	if (random & 1)
		gap = roundup(c->pos, SPE_RECORD) - c->pos;
	else if (random & 2)
		gap = (random >> 8) % 32;
	/* Leaves room for a record. */
	if (gap <= SPE_ROOM - SPE_RECORD) {
		memset(c->base + c->pos, 0, gap);
		c->pos += gap;
	}
	return random & 4;
}

/* The offset from the operation's address that a thread's walk has reached. */
static u64 walk_offset(const struct spe_op *op, const struct task_struct *task, u64 now_ns)
{
	u64 slice, walk_ns, along;

	if (!op->span)
		return 0;
	slice = div_u64(op->span, op->slices);
	walk_ns = (u64)op->walk_ms * NSEC_PER_MSEC;
	div64_u64_rem(now_ns, walk_ns, &along);
	return (slice * (task->pid % op->slices) + div64_u64(slice * along, walk_ns)) & ~7ULL;
}

static void write_record(struct spe_cpu *c, const struct spe_settings *set,
			 struct task_struct *task, const struct spe_op *op, u16 total, bool user,
			 u64 ago_ns, bool invalid)
{
	u64 ago = mul_u64_u32_div(ago_ns, clock_hz(), NSEC_PER_SEC);
	static const u8 header[] = { 0x49, 0x49, 0x4a, 0x48 };
	const struct perf_event *event = c->event;
	bool timed;
	u64 el = user ? 0 : set->context == SPE_CTX_EL2 ? 2 : 1;
	u64 pc = user ? 0x0000aaaa00000000ULL + ((u64)task->pid << 12)
		      : 0xffff800080000000ULL;
	u64 data = user ? 0x0000ffff00000000ULL + ((u64)task->pid << 16)
			: 0xffff000000000000ULL;
	bool dense = choose_layout(c, set);
	struct writer w = { .out = c->base + c->pos, .packed = set->packed || dense };

	memset(w.out, 0, SPE_RECORD);
	pc += (op - set->ops) * 4;
	data += spe_random(c) % 0x10000 & ~7ULL;
	if (op->address)
		data = op->address + walk_offset(op, task, spe_clock_ns(c->last) - ago_ns);
	if (invalid && c->stats.invalid % 2)
		data = 0;
	packet(&w, 0, 0xb0, 8, (pc & ADDRESS) | el << 61 | NS);
	if (event->hw.config && set->context != SPE_CTX_NONE)
		packet(&w, 14, set->context == SPE_CTX_EL2 ? 0x65 : 0x64, 4, task->pid);
	packet(&w, 19, header[op->class], 1, op->op);
	packet(&w, 21, 0x52, 2, op->events);
	packet(&w, 24, 0x99, 2, op->issue);
	packet(&w, 27, 0x98, 2, total);
	if (op->class == SPE_BRANCH)
		packet(&w, 30, 0xb1, 8, ((pc + 0x40) & ADDRESS) | el << 61 | NS);
	if (op->class == SPE_LOAD || op->class == SPE_STORE) {
		packet(&w, 30, 0xb2, 8, data);
		packet(&w, 39, 0x9a, 2, op->xlat);
		if (event->attr.config & SPE_PA_ENABLE)
			packet(&w, 42, 0xb3, 8, (data & 0xffffffffffULL) | NS);
		if (op->source != SPE_NO_SOURCE && set->source_bytes == 1)
			packet(&w, 51, 0x43, 1, op->source);
		else if (op->source != SPE_NO_SOURCE)
			packet(&w, 51, 0x53, 2, op->source);
	}
	timed = (event->attr.config & SPE_TS_ENABLE) && set->timestamps;
	if (dense)
		w.at = roundup(w.at + (timed ? 9 : 1), 4) - (timed ? 9 : 1);
	if (timed)
		packet(&w, 55, 0x71, 8, invalid && data ? 0 : c->last - ago);
	else
		packet(&w, 63, 0x01, 0, 0);
	c->pos += dense ? w.at : SPE_RECORD;
}

void spe_sample(struct spe_cpu *c, const struct spe_settings *set, struct task_struct *task,
		u64 ago_ns)
{
	const struct spe_op *op;
	u16 total;
	bool user;
	int i;

	c->stats.taken++;
	op = choose(c, set, task->tgid);
	if (!op) {
		c->stats.filtered++;
		return;
	}
	user = spe_random(c) % 1000 < set->user_permille;
	total = min_t(u64, op->total + spe_random(c) % (op->spread + 1), SPE_MAX_LATENCY);
	if (!passes_filters(&c->event->attr, op, total, user)) {
		c->stats.filtered++;
		return;
	}
	c->stats.written++;
	if (set->garbage_every && c->stats.written % set->garbage_every == 0) {
		for (i = 0; i < SPE_RECORD; i += 8) {
			u64 noise = spe_random(c);

			memcpy(c->base + c->pos + i, &noise, 8);
		}
		c->stats.garbage++;
		c->pos += SPE_RECORD;
	} else if (set->invalid_every && c->stats.written % set->invalid_every == 0 &&
		   (op->class == SPE_LOAD || op->class == SPE_STORE)) {
		c->stats.invalid++;
		write_record(c, set, task, op, total, user, ago_ns, true);
	} else {
		write_record(c, set, task, op, total, user, ago_ns, false);
		spe_truth_add(c, task, op, total);
	}
}
