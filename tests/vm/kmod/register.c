// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Registers PMUs from rows, and moves uncore events when their CPU goes offline.
 */
#include <linux/cpuhotplug.h>
#include <linux/namei.h>
#include <linux/slab.h>

#include "testpmu.h"

LIST_HEAD(tp_pmus);
static enum cpuhp_state hotplug_state;

/* perf core would log a stack trace for a second PMU of the same name. */
static bool name_taken(const char *name)
{
	char path_name[96];
	struct path path;

	snprintf(path_name, sizeof(path_name), "/sys/bus/event_source/devices/%s", name);
	if (kern_path(path_name, 0, &path))
		return false;
	path_put(&path);
	return true;
}

static void init_boxes(struct tp_pmu *p)
{
	bool per_cpu = p->row->layout == TP_PER_CPU;
	unsigned int i;
	int cpu;

	for (i = 0; i < p->nr_boxes; i++) {
		struct tp_box *box = &p->boxes[i];

		raw_spin_lock_init(&box->lock);
		box->cpu = -1;
		box->socket = per_cpu ? tp_socket_of(i) : p->socket >= 0 ? p->socket : i;
		for_each_possible_cpu(cpu) {
			if (per_cpu ? cpu != i : tp_socket_of(cpu) != box->socket)
				continue;
			if (!cpumask_test_cpu(cpu, &p->cpus))
				continue;
			cpumask_set_cpu(cpu, &box->cpus);
			if (box->cpu < 0 && cpu_online(cpu))
				box->cpu = cpu;
		}
		box->t_since = tp_mono();
		box->w_since = tp_oncpu_weighted(&box->cpus, box->t_since);
	}
}

/*
 * Looks to users like an unbound driver: the PMU's directory is gone and its events stop.
 * The PMU itself stays registered until the module is unloaded, since its events may still
 * be open.
 */
int tp_vanish(struct tp_pmu *p)
{
	unsigned int i, n;

	if (p->vanished)
		return -ENODEV;
	p->vanished = true;
	for (i = 0; i < p->nr_boxes; i++) {
		struct tp_box *box = &p->boxes[i];

		/* Disabling an event removes it from the array. */
		for (n = box->nr_active; n--;)
			perf_event_disable(box->active[n]);
	}
	device_del(p->pmu.dev);
	return 0;
}

static void destroy(struct tp_pmu *p)
{
	struct tp_spec *s, *next;

	/* perf removes the directory itself, so it has to exist again. */
	if (p->vanished && device_add(p->pmu.dev))
		pr_err("testpmu: %s does not come back\n", p->name);
	if (p->registered)
		perf_pmu_unregister(&p->pmu);
	list_for_each_entry_safe(s, next, &p->specs, node)
		kfree(s);
	tp_sysfs_free(p);
	kvfree(p->boxes);
	kfree(p);
}

/*
 * Up to 6.1 core PMUs of several kinds share the CPUs' contexts, and each driver has to set
 * itself as the PMU of its CPUs' contexts (as x86_pmu_update_cpu_context does).
 */
static void set_context_pmu(struct tp_pmu *p)
{
#ifdef PERF_PMU_CAP_HETEROGENEOUS_CPUS
	int cpu;

	if (p->row->kinds)
		for_each_cpu(cpu, &p->cpus)
			per_cpu_ptr(p->pmu.pmu_cpu_context, cpu)->ctx.pmu = &p->pmu;
#endif
}

static struct tp_pmu *create(const struct tp_row *row, const char *name, int socket,
			     int instance, int type)
{
	struct tp_pmu *p = kzalloc(sizeof(*p), GFP_KERNEL);
	int err = -ENOMEM, cpu;

	if (!p)
		return ERR_PTR(err);
	INIT_LIST_HEAD(&p->specs);
	INIT_LIST_HEAD(&p->attrs);
	mutex_init(&p->lock);
	p->row = row;
	p->socket = socket;
	p->instance = instance;
	for_each_possible_cpu(cpu)
		if (!row->kinds || cpu % row->kinds == row->kind)
			cpumask_set_cpu(cpu, &p->cpus);
	strscpy(p->name, name, sizeof(p->name));
	p->nr_boxes = row->layout == TP_PER_CPU ? nr_cpu_ids : socket < 0 ? tp_sockets : 1;
	p->boxes = kvcalloc(p->nr_boxes, sizeof(*p->boxes), GFP_KERNEL);
	if (!p->boxes)
		goto fail;
	init_boxes(p);
	err = tp_sysfs_build(p);
	if (err)
		goto fail;
	if (row->init)
		row->init(p);
	else
		tp_count_init(p);
	if (name_taken(p->name)) {
		pr_err("testpmu: a PMU named %s exists already; load with another set= or core_name=\n",
		       p->name);
		err = -EEXIST;
		goto fail;
	}
	err = perf_pmu_register(&p->pmu, p->name, type);
	if (err)
		goto fail;
	p->registered = true;
	set_context_pmu(p);
	return p;
fail:
	destroy(p);
	return ERR_PTR(err);
}

/*
 * Registers every instance of a row. `name`, if given, replaces the row's name (core PMU
 * only). `type` is the PMU type, or -1 for any.
 */
int tp_register_row(const struct tp_row *row, const char *name, int type)
{
	int instances = row->instances ? *row->instances : 1;
	bool all_sockets = row->layout == TP_PER_INSTANCE || row->layout == TP_PER_CPU;
	int sockets = all_sockets ? 1 : tp_sockets;
	char buf[48];
	int s, i, cpu;

	for (s = 0; s < sockets; s++)
		for (i = 0; i < instances; i++) {
			struct tp_pmu *p;

			if (row->layout == TP_PER_INSTANCE)
				snprintf(buf, sizeof(buf), row->name, i);
			else
				snprintf(buf, sizeof(buf), name ?: row->name, s, i);
			p = create(row, buf, all_sockets ? -1 : s, i, type);
			if (IS_ERR(p))
				return PTR_ERR(p);
			list_add_tail(&p->node, &tp_pmus);
			if (!row->hw_map)
				continue;
			WRITE_ONCE(tp_core, p);
			for_each_cpu(cpu, &p->cpus)
				WRITE_ONCE(per_cpu(tp_core_here, cpu), p);
		}
	return 0;
}

void tp_unregister_all(void)
{
	struct tp_pmu *p, *next;

	list_for_each_entry_safe(p, next, &tp_pmus, node) {
		list_del(&p->node);
		destroy(p);
	}
}

/* A CPU came online: it becomes the reader of boxes without one. */
static int cpu_online_cb(unsigned int cpu)
{
	struct tp_pmu *p;
	unsigned int i;

	list_for_each_entry(p, &tp_pmus, node)
		for (i = 0; i < p->nr_boxes; i++)
			if (p->boxes[i].cpu < 0 && cpumask_test_cpu(cpu, &p->boxes[i].cpus))
				p->boxes[i].cpu = cpu;
	return 0;
}

/* A CPU goes offline: its uncore events move to another CPU of the socket. */
static int cpu_offline_cb(unsigned int cpu)
{
	struct tp_pmu *p;
	unsigned int i;

	list_for_each_entry(p, &tp_pmus, node)
		for (i = 0; i < p->nr_boxes; i++) {
			struct tp_box *box = &p->boxes[i];
			unsigned int to;

			if (box->cpu != cpu)
				continue;
			to = nr_cpu_ids;
			if (p->row->layout != TP_PER_CPU)
				for_each_cpu_and(to, &box->cpus, cpu_online_mask)
					if (to != cpu)
						break;
			if (to >= nr_cpu_ids) {
				box->cpu = -1;
				continue;
			}
			perf_pmu_migrate_context(&p->pmu, cpu, to);
			box->cpu = to;
		}
	return 0;
}

int tp_hotplug_init(void)
{
	int state = cpuhp_setup_state_nocalls(CPUHP_AP_ONLINE_DYN, "testpmu:online",
					      cpu_online_cb, cpu_offline_cb);

	if (state < 0)
		return state;
	hotplug_state = state;
	return 0;
}

void tp_hotplug_exit(void)
{
	cpuhp_remove_state_nocalls(hotplug_state);
}
