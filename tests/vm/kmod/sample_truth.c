// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The mix of operations that ibs_op and cpu sample, and the account of raised samples by
 * operation, and of executed operations by cgroup.
 */
#include <linux/percpu.h>
#include <linux/perf_event.h>

#include "sample.h"

static struct sample_op ops[SAMPLE_OPS];
static unsigned int nr_ops; /* read by ticks, written by control */
static u64 ops_per_tick = 100000, tick_us = 1000, lose_every;

struct sample_owner {
	u64 cgroup;
	u64 executed[SAMPLE_KINDS];
};

struct sample_account {
	u64 raised[SAMPLE_KINDS][SAMPLE_OPS];	/* samples with this operation */
	u64 others[SAMPLE_KINDS];		/* samples without an access */
	u64 next[SAMPLE_KINDS];			/* position in the mix */
	u64 due[SAMPLE_KINDS], lost[SAMPLE_KINDS];
	struct sample_owner owners[SAMPLE_OWNERS];
	u64 unknown;				/* executed by cgroups without an entry */
};

static DEFINE_PER_CPU(struct sample_account, accounts);

u64 sample_ops_per_tick(void)
{
	return READ_ONCE(ops_per_tick);
}

u64 sample_tick_ns(void)
{
	return READ_ONCE(tick_us) * NSEC_PER_USEC;
}

/* Whether to drop the next sample, as a busy kernel does. */
bool sample_loses(enum sample_kind kind)
{
	struct sample_account *a = this_cpu_ptr(&accounts);
	u64 every = READ_ONCE(lose_every);

	if (!every || ++a->due[kind] % every)
		return false;
	a->lost[kind]++;
	return true;
}

static bool op_matches(enum sample_kind kind, const struct sample_op *op, u64 least)
{
	union perf_mem_data_src src = { .val = op->data_src };

	if (kind == SAMPLE_LOADS)
		return src.mem_op & PERF_MEM_OP_LOAD && op->latency >= least;
	if (kind == SAMPLE_STORES)
		return src.mem_op & PERF_MEM_OP_STORE;
	return kind == SAMPLE_IBS;
}

/* The next operation of the mix of a cgroup; NULL if it has none of the kind. */
const struct sample_op *sample_pick(enum sample_kind kind, u64 cgroup, u64 least)
{
	struct sample_account *a = this_cpu_ptr(&accounts);
	unsigned int i, n = smp_load_acquire(&nr_ops);
	u64 owner = 0, all = 0, at;

	for (i = 0; i < n; i++)
		if (ops[i].cgroup == cgroup)
			owner = cgroup;
	for (i = 0; i < n; i++)
		if (ops[i].cgroup == owner && op_matches(kind, &ops[i], least))
			all += ops[i].weight;
	if (!all) {
		a->others[kind]++;
		return NULL;
	}
	at = a->next[kind]++ % all;
	for (i = 0; i < n; i++) {
		if (ops[i].cgroup != owner || !op_matches(kind, &ops[i], least))
			continue;
		if (at < ops[i].weight)
			break;
		at -= ops[i].weight;
	}
	a->raised[kind][i]++;
	return &ops[i];
}

void sample_executed(enum sample_kind kind, u64 cgroup, u64 n)
{
	struct sample_account *a = this_cpu_ptr(&accounts);
	unsigned int i;

	for (i = 0; i < SAMPLE_OWNERS; i++) {
		struct sample_owner *o = &a->owners[i];

		if (!o->cgroup)
			o->cgroup = cgroup;
		if (o->cgroup == cgroup) {
			o->executed[kind] += n;
			return;
		}
	}
	a->unknown += n;
}

static int add_op(const char *args)
{
	struct sample_op op;

	if (sscanf(args, "%lli %u %lli %lli %lli", &op.cgroup, &op.weight, &op.data_src,
		   &op.latency, &op.addr) != 5 || !op.weight)
		return -EINVAL;
	if (nr_ops == SAMPLE_OPS)
		return -ENOSPC;
	ops[nr_ops] = op;
	smp_store_release(&nr_ops, nr_ops + 1);
	return 0;
}

/* `sample ...` of the control file. */
int tp_sample_command(const char *args)
{
	char word[16];
	int cpu;
	u64 n;

	if (sscanf(args, "%15s", word) != 1)
		return -EINVAL;
	args = strstr(args, word) + strlen(word);
	if (!strcmp(word, "op"))
		return add_op(args);
	if (!strcmp(word, "reset")) {
		/* The caller has closed all events. */
		smp_store_release(&nr_ops, 0);
		for_each_possible_cpu(cpu)
			memset(per_cpu_ptr(&accounts, cpu), 0, sizeof(struct sample_account));
		return 0;
	}
	if (sscanf(args, "%lli", &n) != 1)
		return -EINVAL;
	if (!strcmp(word, "ops_per_tick")) {
		WRITE_ONCE(ops_per_tick, n);
		return 0;
	}
	if (!strcmp(word, "lose_every")) {
		WRITE_ONCE(lose_every, n);
		return 0;
	}
	if (!strcmp(word, "tick_us") && n) {
		WRITE_ONCE(tick_us, n);
		return 0;
	}
	return -EINVAL;
}

static const char *const kinds[SAMPLE_KINDS] = {
	"ibs_op", "mem-loads", "mem-loads-aux", "mem-stores",
};

void tp_sample_show_truth(struct seq_file *s)
{
	unsigned int kind, i;
	int cpu;

	for_each_possible_cpu(cpu) {
		struct sample_account *a = per_cpu_ptr(&accounts, cpu);

		for (kind = 0; kind < SAMPLE_KINDS; kind++) {
			for (i = 0; i < nr_ops; i++)
				seq_printf(s, "raised %d %s %llu %#llx %llu %#llx %llu\n", cpu,
					   kinds[kind], ops[i].cgroup, ops[i].data_src,
					   ops[i].latency, ops[i].addr, a->raised[kind][i]);
			seq_printf(s, "others %d %s %llu\n", cpu, kinds[kind], a->others[kind]);
			seq_printf(s, "lost %d %s %llu\n", cpu, kinds[kind], a->lost[kind]);
			for (i = 0; i < SAMPLE_OWNERS && a->owners[i].cgroup; i++)
				seq_printf(s, "executed %d %s %llu %llu\n", cpu, kinds[kind],
					   a->owners[i].cgroup, a->owners[i].executed[kind]);
		}
		seq_printf(s, "unknown %d %llu\n", cpu, a->unknown);
	}
}
