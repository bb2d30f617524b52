// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * A PMU's directory under /sys/bus/event_source/devices, built from its row.
 */
#include <linux/slab.h>

#include "testpmu.h"

struct tp_attr {
	struct list_head node;	/* in tp_pmu.attrs */
	struct device_attribute attr;
	char name[40];
	char text[80];
};

struct tp_alloc {
	struct attribute_group group;
	struct attribute *attrs[];
};

static ssize_t text_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n", container_of(attr, struct tp_attr, attr)->text);
}

static ssize_t cpumask_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct tp_pmu *p = to_tp_pmu(dev_get_drvdata(dev));
	cpumask_var_t mask;
	unsigned int i;
	ssize_t n;

	if (!zalloc_cpumask_var(&mask, GFP_KERNEL))
		return -ENOMEM;
	for (i = 0; i < p->nr_boxes; i++)
		if (p->row->cpus_offline)
			cpumask_or(mask, mask, &p->boxes[i].cpus);
		else if (p->boxes[i].cpu >= 0)
			cpumask_set_cpu(p->boxes[i].cpu, mask);
	n = sysfs_emit(buf, "%*pbl\n", cpumask_pr_args(mask));
	free_cpumask_var(mask);
	return n;
}

static ssize_t associated_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	struct tp_pmu *p = to_tp_pmu(dev_get_drvdata(dev));

	return sysfs_emit(buf, "%*pbl\n", cpumask_pr_args(&p->boxes[0].cpus));
}

static struct attribute *new_attr(struct tp_pmu *p, const char *name, const char *text,
				  ssize_t (*show)(struct device *, struct device_attribute *,
						  char *))
{
	struct tp_attr *a = kzalloc(sizeof(*a), GFP_KERNEL);

	if (!a)
		return NULL;
	strscpy(a->name, name, sizeof(a->name));
	/* Some texts contain the instance number. */
	snprintf(a->text, sizeof(a->text), text, p->instance);
	sysfs_attr_init(&a->attr.attr);
	a->attr.attr.name = a->name;
	a->attr.attr.mode = 0444;
	a->attr.show = show;
	list_add_tail(&a->node, &p->attrs);
	return &a->attr.attr;
}

/* A group with space for n attributes; name NULL: the PMU's directory itself. */
static struct tp_alloc *new_group(struct tp_pmu *p, const char *name, unsigned int n)
{
	struct tp_alloc *g = kzalloc(struct_size(g, attrs, n + 1), GFP_KERNEL);
	unsigned int i = 0;

	if (!g)
		return NULL;
	g->group.name = name;
	g->group.attrs = g->attrs;
	while (p->groups[i])
		i++;
	p->groups[i] = &g->group;
	return g;
}

static int add_texts(struct tp_pmu *p, struct tp_alloc *g, unsigned int at,
		     const struct tp_text *t)
{
	for (; t && t->name; t++)
		if (!(g->attrs[at++] = new_attr(p, t->name, t->text, text_show)))
			return -ENOMEM;
	return 0;
}

static unsigned int count_texts(const struct tp_text *t)
{
	unsigned int n = 0;

	while (t && t[n].name)
		n++;
	return n;
}

static int build_texts(struct tp_pmu *p, const char *name, const struct tp_text *t)
{
	struct tp_alloc *g;

	if (!t)
		return 0;
	g = new_group(p, name, count_texts(t));
	return g ? add_texts(p, g, 0, t) : -ENOMEM;
}

static int build_events(struct tp_pmu *p)
{
	const struct tp_event *e = p->row->events;
	struct tp_alloc *g;
	unsigned int n = 0;
	char text[40];

	if (p->row->event_texts)
		return build_texts(p, "events", p->row->event_texts);
	if (!e)
		return 0;
	while (e[n].name)
		n++;
	g = new_group(p, "events", n);
	if (!g)
		return -ENOMEM;
	for (n = 0; e[n].name; n++) {
		snprintf(text, sizeof(text), p->row->event_fmt, e[n].id);
		if (!(g->attrs[n] = new_attr(p, e[n].name, text, text_show)))
			return -ENOMEM;
	}
	return 0;
}

/* cpumask, associated_cpus, die<N> and the row's own files. */
static int build_top(struct tp_pmu *p)
{
	const struct tp_row *row = p->row;
	unsigned int n = 0, i;
	struct tp_alloc *g;
	char name[16], text[16];

	g = new_group(p, NULL, count_texts(row->files) + 2 + tp_sockets);
	if (!g)
		return -ENOMEM;
	if (row->cpus_file &&
	    !(g->attrs[n++] = new_attr(p, row->cpus_file, "", cpumask_show)))
		return -ENOMEM;
	if (row->associated_cpus &&
	    !(g->attrs[n++] = new_attr(p, "associated_cpus", "", associated_show)))
		return -ENOMEM;
	for (i = 0; row->dies && i < tp_sockets; i++) {
		/* PCI segment:bus of the stack on that die; each stack has 0x10 buses. */
		snprintf(name, sizeof(name), "die%u", i);
		snprintf(text, sizeof(text), "%04x:%02x", 0, i * 0x80 + p->instance * 0x10);
		if (!(g->attrs[n++] = new_attr(p, name, text, text_show)))
			return -ENOMEM;
	}
	return add_texts(p, g, n, row->files);
}

int tp_sysfs_build(struct tp_pmu *p)
{
	int err = build_texts(p, "format", p->row->formats);

	err = err ?: build_events(p);
	err = err ?: build_texts(p, "caps", p->row->caps);
	return err ?: build_top(p);
}

void tp_sysfs_free(struct tp_pmu *p)
{
	struct tp_attr *a, *next;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(p->groups) && p->groups[i]; i++) {
		kfree(container_of(p->groups[i], struct tp_alloc, group));
		p->groups[i] = NULL;
	}
	list_for_each_entry_safe(a, next, &p->attrs, node)
		kfree(a);
	INIT_LIST_HEAD(&p->attrs);
}
