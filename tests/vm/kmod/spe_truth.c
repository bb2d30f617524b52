// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The settings of arm_spe_0, and the account of the records that it wrote.
 *
 * The account is exact. Each CPU has a table that only it changes, with a row per
 * {thread, class, data source}. Read it after the event is disabled, or while the watched
 * threads do not run.
 */
#include <linux/hash.h>
#include <linux/mutex.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "spe.h"

const char *const spe_class_names[4] = { "load", "store", "branch", "other" };
struct spe_settings __rcu *spe_settings;
static DEFINE_MUTEX(settings_mutex);

static const struct spe_settings defaults = {
	.ops_per_ms = 1000000,
	.user_permille = 1000,
	.context = SPE_CTX_EL2,
	.timestamps = 1,
	.source_bytes = 1,
	.tick_us = 1000,
	.nr_ops = 8,
	/* events: RETIRED, L1D_ACCESS, L1D_REFILL, TLB_ACCESS, LLC_ACCESS, LLC_MISS, ... */
	.ops = {
		{ 0, 40, SPE_LOAD, 0x00, 0x0, 4, 4, 2, 1, 0x0016 },
		{ 0, 10, SPE_LOAD, 0x00, 0x8, 12, 8, 2, 1, 0x001e },
		{ 0, 5, SPE_LOAD, 0x00, 0xb, 60, 40, 3, 1, 0x011e },
		{ 0, 4, SPE_LOAD, 0x00, 0xe, 200, 300, 4, 2, 0x031e },
		{ 0, 1, SPE_LOAD, 0x00, 0xd, 600, 600, 4, 2, 0x071e },
		{ 0, 15, SPE_STORE, 0x01, SPE_NO_SOURCE, 6, 6, 2, 1, 0x0016 },
		{ 0, 15, SPE_BRANCH, 0x01, SPE_NO_SOURCE, 3, 3, 1, 0, 0x0002 },
		{ 0, 10, SPE_OTHER, 0x00, SPE_NO_SOURCE, 2, 4, 1, 0, 0x0002 },
	},
};

void spe_truth_add(struct spe_cpu *c, struct task_struct *task, const struct spe_op *op,
		   u16 total)
{
	u32 key = task->pid * 4u + op->class + ((u32)op->source << 20);
	u32 at = hash_32(key, 32), i;

	for (i = 0; i < SPE_TRUTH_ROWS; i++, at++) {
		struct spe_truth_row *r = &c->truth[at % SPE_TRUTH_ROWS];

		if (!r->samples) {
			r->tid = task->pid;
			r->tgid = task->tgid;
			r->class = op->class;
			r->source = op->source;
		} else if (r->tid != task->pid || r->tgid != task->tgid ||
			   r->class != op->class || r->source != op->source) {
			continue;
		}
		r->samples++;
		r->total += total;
		r->issue += op->issue;
		r->xlat += op->class == SPE_LOAD || op->class == SPE_STORE ? op->xlat : 0;
		return;
	}
	c->stats.truth_lost++;
}

static struct spe_settings *copy_settings(void)
{
	return kmemdup(rcu_dereference_protected(spe_settings, lockdep_is_held(&settings_mutex)),
		       sizeof(struct spe_settings), GFP_KERNEL);
}

static void publish(struct spe_settings *new)
{
	struct spe_settings *old;

	old = rcu_replace_pointer(spe_settings, new, lockdep_is_held(&settings_mutex));
	kfree_rcu(old, rcu);
}

static void reset_cpu(void *unused)
{
	struct spe_cpu *c = this_cpu_ptr(&tp_spe_cpu);

	memset(c->truth, 0, SPE_TRUTH_ROWS * sizeof(*c->truth));
	memset(&c->stats, 0, sizeof(c->stats));
}

static int set_field(struct spe_settings *s, const char *key, u64 value)
{
	const struct {
		const char *key;
		u64 *field, min, max;
	} fields[] = {
		{ "ops_per_ms", &s->ops_per_ms, 0, 1000000000 },
		{ "user_permille", &s->user_permille, 0, 1000 },
		{ "context", &s->context, SPE_CTX_NONE, SPE_CTX_EL2 },
		{ "timestamps", &s->timestamps, 0, 1 },
		{ "packed", &s->packed, 0, 1 },
		{ "layout", &s->layout, SPE_CELLS, SPE_MIXED },
		{ "source_bytes", &s->source_bytes, 1, 2 },
		{ "collision_every", &s->collision_every, 0, U64_MAX },
		{ "loss_every", &s->loss_every, 0, U64_MAX },
		{ "unreadable_every", &s->unreadable_every, 0, U64_MAX },
		{ "garbage_every", &s->garbage_every, 0, U64_MAX },
		{ "invalid_every", &s->invalid_every, 0, U64_MAX },
		{ "tick_us", &s->tick_us, 100, 1000000 },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(fields); i++) {
		if (strcmp(fields[i].key, key))
			continue;
		if (value < fields[i].min || value > fields[i].max)
			return -ERANGE;
		*fields[i].field = value;
		return 0;
	}
	return -EINVAL;
}

/* TGID WEIGHT CLASS OP SOURCE|- TOTAL SPREAD ISSUE XLAT EVENTS [ADDRESS [SPAN SLICES MS]] */
static int add_op(struct spe_settings *s, const char *args)
{
	char class[8], source[12];
	struct spe_op op = {};
	int op_code, i, found;

	found = sscanf(args, "%i %i %7s %i %11s %hi %hi %hi %hi %hi %lli %lli %i %i", &op.tgid,
		       &op.weight, class, &op_code, source, &op.total, &op.spread, &op.issue,
		       &op.xlat, &op.events, &op.address, &op.span, &op.slices, &op.walk_ms);
	if (found < 10 || found == 12 || found == 13)
		return -EINVAL;
	/* The product of a slice and a time must fit into 64 bits. */
	if (op.span && (!op.slices || !op.walk_ms || op.walk_ms > 1000 || op.span >> 34))
		return -ERANGE;
	i = match_string(spe_class_names, ARRAY_SIZE(spe_class_names), class);
	if (i < 0)
		return -EINVAL;
	op.class = i;
	op.op = op_code;
	op.source = SPE_NO_SOURCE;
	if (strcmp(source, "-") && kstrtos32(source, 0, &op.source))
		return -EINVAL;
	if (op.source > 0xffff || op.total > SPE_MAX_LATENCY || op.issue > SPE_MAX_LATENCY ||
	    op.xlat > SPE_MAX_LATENCY)
		return -ERANGE;
	if (s->nr_ops == SPE_MAX_OPS)
		return -ENOSPC;
	s->ops[s->nr_ops++] = op;
	return 0;
}

/* Executes a "spe ..." command (see control.c); `args` follows "spe". */
int tp_spe_command(const char *args)
{
	struct spe_settings *new;
	char key[24];
	int err = 0, used;
	u64 value;

	if (!rcu_access_pointer(spe_settings))
		return -ENODEV;
	if (sscanf(args, "%23s%n", key, &used) != 1)
		return -EINVAL;
	if (!strcmp(key, "reset")) {
		on_each_cpu(reset_cpu, NULL, 1);
		return 0;
	}
	mutex_lock(&settings_mutex);
	new = copy_settings();
	if (!new)
		err = -ENOMEM;
	else if (!strcmp(key, "clear"))
		new->nr_ops = 0;
	else if (!strcmp(key, "op"))
		err = add_op(new, args + used);
	else
		err = sscanf(args + used, "%lli", &value) == 1 ? set_field(new, key, value)
							       : -EINVAL;
	if (err)
		kfree(new);
	else
		publish(new);
	mutex_unlock(&settings_mutex);
	return err;
}

void tp_spe_show_truth(struct seq_file *s)
{
	unsigned int i;
	int cpu;

	seq_puts(s, "cpu tid tgid class source samples total issue xlat\n");
	if (!rcu_access_pointer(spe_settings))
		return;
	for_each_possible_cpu(cpu)
		for (i = 0; i < SPE_TRUTH_ROWS; i++) {
			const struct spe_truth_row *r = &per_cpu_ptr(&tp_spe_cpu, cpu)->truth[i];

			if (!r->samples)
				continue;
			seq_printf(s, "%d %u %u %s ", cpu, r->tid, r->tgid,
				   spe_class_names[r->class]);
			if (r->source == SPE_NO_SOURCE)
				seq_puts(s, "-");
			else
				seq_printf(s, "%#x", r->source);
			seq_printf(s, " %llu %llu %llu %llu\n", r->samples, r->total, r->issue,
				   r->xlat);
		}
}

void tp_spe_show_stats(struct seq_file *s)
{
	int cpu;

	seq_puts(s, "cpu taken filtered written garbage chunks bytes full collided lost_data "
		    "no_space blind_ns truth_lost invalid ops unreadable\n");
	for_each_possible_cpu(cpu) {
		const struct spe_stats *t = &per_cpu_ptr(&tp_spe_cpu, cpu)->stats;

		seq_printf(s, "%d %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu %llu\n",
			   cpu, t->taken, t->filtered, t->written, t->garbage, t->chunks,
			   t->bytes, t->full, t->collided, t->lost_data, t->no_space,
			   t->blind_ns, t->truth_lost, t->invalid, t->ops, t->unreadable);
	}
}

void spe_truth_exit(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		vfree(per_cpu_ptr(&tp_spe_cpu, cpu)->truth);
		per_cpu_ptr(&tp_spe_cpu, cpu)->truth = NULL;
	}
	kfree(rcu_replace_pointer(spe_settings, NULL, true));
}

int spe_truth_init(void)
{
	struct spe_settings *s = kmemdup(&defaults, sizeof(defaults), GFP_KERNEL);
	int cpu;

	rcu_assign_pointer(spe_settings, s);
	for_each_possible_cpu(cpu) {
		struct spe_cpu *c = per_cpu_ptr(&tp_spe_cpu, cpu);

		c->truth = vzalloc(SPE_TRUTH_ROWS * sizeof(*c->truth));
		if (!s || !c->truth) {
			spe_truth_exit();
			return -ENOMEM;
		}
	}
	return 0;
}
