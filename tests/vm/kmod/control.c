// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * The control files, in debugfs under testpmu/ (mount -t debugfs none DIR).
 *
 * control (write, one command per write; numbers decimal or 0x...):
 *   rate PMU CONFIG CONFIG1 CONFIG2 PER_MS [BOX]      counts per ms of box time
 *   taskrate PMU CONFIG CONFIG1 CONFIG2 PER_MS [BOX]  ... of weighted task time
 *   add PMU CONFIG CONFIG1 CONFIG2 N [BOX]            N counts, now, exactly
 *   watch tgid|cgroup ID WEIGHT     account a process or cgroup; weight may be 0
 *   unwatch                         forget all watched ones and their times
 *   vanish PMU                      remove its directory and stop its events
 *   split PERMILLE                  core PMU: user part of every count
 *   idle 0|1                        core PMU: whether the idle task counts
 *   spe KEY VALUE                   arm_spe_0: one of the settings in README.md
 *   spe clear                       remove all operations from the mix
 *   spe op TGID WEIGHT load|store|branch|other OP SOURCE|- TOTAL SPREAD ISSUE XLAT EVENTS
 *                                   [ADDRESS]
 *                                   add an operation; TGID 0: for all processes
 *                                   that have no operations of their own
 *   spe reset                       empty the account and the statistics
 *   sample ops_per_tick N, sample tick_us N
 *                                   ibs_op, cpu: operations that a running task
 *                                   executes
 *   sample lose_every N             drop every n-th sample
 *   sample op CGROUP WEIGHT DATA_SRC LATENCY ADDRESS
 *                                   add an operation; CGROUP 0: for all cgroups
 *                                   that have no operations of their own
 *   sample reset                    remove all operations, empty the account
 * PMU is a name or a glob (uncore_cha_*). BOX is the socket for Intel uncore, the
 * CPU for the core PMU, 0 for the others; without it the command is for all boxes.
 * A command that fails gives the errno of the write: ENODEV no such PMU, ENXIO no
 * such box, ERANGE number too large, EINVAL syntax error.
 *
 * counters (read): one line per event and box that was ever opened or set, with its
 * rates and its counter, which also runs while the event is closed.
 * tasks (read): watched processes and cgroups, with their ns on each CPU.
 * spe_truth (read): what arm_spe_0 wrote per CPU, thread, class and data source.
 * spe_stats (read): samples, records, chunks and losses per CPU.
 * sample_truth (read): per CPU and event, the samples that ibs_op and cpu raised of
 * each operation, the samples without an access, and the operations that each cgroup
 * executed.
 */
#include <linux/debugfs.h>
#include <linux/glob.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "testpmu.h"

static struct dentry *dir;

enum verb { RATE, TASKRATE, ADD };

static int apply(enum verb verb, const char *pmu, const u64 config[3], u64 n, int box)
{
	struct tp_pmu *p;
	int err = -ENODEV;

	list_for_each_entry(p, &tp_pmus, node) {
		if (p->row->init || !glob_match(pmu, p->name))
			continue;
		if (verb == ADD)
			err = tp_spec_add(p, config, box, n);
		else
			err = tp_spec_rate(p, config, box, n, verb == TASKRATE);
		if (err)
			return err;
	}
	return err;
}

static int command(char *line)
{
	char verb[16], word[48];
	u64 config[3], n;
	int box = -1, fields;

	if (sscanf(line, "%15s", verb) != 1)
		return -EINVAL;
	line = strim(line) + strlen(verb);
	if (!strcmp(verb, "unwatch")) {
		tp_oncpu_clear();
		return 0;
	}
	if (!strcmp(verb, "watch")) {
		if (sscanf(line, "%47s %lli %lli", word, &config[0], &n) != 3)
			return -EINVAL;
		if (strcmp(word, "tgid") && strcmp(word, "cgroup"))
			return -EINVAL;
		return tp_oncpu_watch(!strcmp(word, "cgroup"), config[0], n);
	}
	if (!strcmp(verb, "vanish")) {
		struct tp_pmu *p;

		if (sscanf(line, "%47s", word) != 1)
			return -EINVAL;
		list_for_each_entry(p, &tp_pmus, node)
			if (glob_match(word, p->name))
				return tp_vanish(p);
		return -ENODEV;
	}
	if (!strcmp(verb, "split") || !strcmp(verb, "idle")) {
		if (sscanf(line, "%lli", &n) != 1)
			return -EINVAL;
		if (*verb == 's')
			return tp_spec_set_split(min_t(u64, n, UINT_MAX));
		if (n > 1)
			return -EINVAL;
		tp_oncpu_idle_counts(n);
		return 0;
	}
	if (!strcmp(verb, "spe"))
		return tp_spe_command(line);
	if (!strcmp(verb, "sample"))
		return tp_sample_command(line);
	fields = sscanf(line, "%47s %lli %lli %lli %lli %i", word, &config[0], &config[1],
			&config[2], &n, &box);
	if (fields < 5 || (fields == 6 && box < 0))
		return -EINVAL;
	if (!strcmp(verb, "rate"))
		return apply(RATE, word, config, n, box);
	if (!strcmp(verb, "taskrate"))
		return apply(TASKRATE, word, config, n, box);
	if (!strcmp(verb, "add"))
		return apply(ADD, word, config, n, box);
	return -EINVAL;
}

static ssize_t control_write(struct file *file, const char __user *from, size_t len,
			     loff_t *pos)
{
	char *line;
	int err;

	if (len > 256)
		return -EINVAL;
	line = memdup_user_nul(from, len);
	if (IS_ERR(line))
		return PTR_ERR(line);
	err = command(line);
	kfree(line);
	return err ?: len;
}

static const struct file_operations control_fops = {
	.owner = THIS_MODULE,
	.open = simple_open,
	.write = control_write,
};

static int counters_show(struct seq_file *s, void *unused)
{
	struct tp_spec *spec;
	struct tp_pmu *p;
	unsigned long flags;
	unsigned int i;

	seq_puts(s, "pmu box config config1 config2 excl rate taskrate count\n");
	list_for_each_entry(p, &tp_pmus, node) {
		mutex_lock(&p->lock);
		list_for_each_entry(spec, &p->specs, node)
			for (i = 0; i < p->nr_boxes; i++) {
				struct tp_value v;

				raw_spin_lock_irqsave(&p->boxes[i].lock, flags);
				tp_value_update(&p->boxes[i], &spec->v[i]);
				v = spec->v[i];
				raw_spin_unlock_irqrestore(&p->boxes[i].lock, flags);
				seq_printf(s, "%s %u %#llx %#llx %#llx %s %llu %llu %llu\n",
					   p->name, i, spec->config[0], spec->config[1],
					   spec->config[2],
					   spec->excl == TP_EXCL_USER	? "u" :
					   spec->excl == TP_EXCL_KERNEL ? "k" :
					   spec->excl			? "uk" : "-",
					   v.rate, v.task_rate, v.val);
			}
		mutex_unlock(&p->lock);
	}
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static int tasks_show(struct seq_file *s, void *unused)
{
	tp_oncpu_show(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(tasks);

static int spe_truth_show(struct seq_file *s, void *unused)
{
	tp_spe_show_truth(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(spe_truth);

static int spe_stats_show(struct seq_file *s, void *unused)
{
	tp_spe_show_stats(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(spe_stats);

static int sample_truth_show(struct seq_file *s, void *unused)
{
	tp_sample_show_truth(s);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(sample_truth);

int tp_control_init(void)
{
	dir = debugfs_create_dir("testpmu", NULL);
	if (IS_ERR(dir)) {
		pr_err("testpmu: debugfs has no room for testpmu/ (%ld)\n", PTR_ERR(dir));
		return PTR_ERR(dir);
	}
	debugfs_create_file("control", 0200, dir, NULL, &control_fops);
	debugfs_create_file("counters", 0400, dir, NULL, &counters_fops);
	debugfs_create_file("tasks", 0400, dir, NULL, &tasks_fops);
	debugfs_create_file("spe_truth", 0400, dir, NULL, &spe_truth_fops);
	debugfs_create_file("spe_stats", 0400, dir, NULL, &spe_stats_fops);
	debugfs_create_file("sample_truth", 0400, dir, NULL, &sample_truth_fops);
	return 0;
}

void tp_control_exit(void)
{
	debugfs_remove(dir);
}
