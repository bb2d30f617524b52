// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which events uncore PMUs accept at open. The checks are in the order of the real drivers,
 * since the order decides which error a user sees.
 */
#include "testpmu.h"

int tp_uncore_event_init(struct perf_event *event)
{
	struct tp_pmu *p = to_tp_pmu(event->pmu);
	const struct tp_row *row = p->row;
	u64 config[3] = { event->attr.config, event->attr.config1, event->attr.config2 };
	struct tp_spec *spec;
	unsigned int i;
	int err;
	u64 id;

	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	id = config[0] & row->id_mask;
	if (row->id_count && id >= row->id_count)
		return -ENOENT;
	if (is_sampling_event(event))
		return row->sampling_error;
	if (event->attach_state & PERF_ATTACH_TASK)
		return row->task_error;
	if (event->cpu < 0)
		return -EINVAL;

	for (i = 0; i < p->nr_boxes; i++)
		if (cpumask_test_cpu(event->cpu, &p->boxes[i].cpus))
			break;
	if (i == p->nr_boxes || p->boxes[i].cpu < 0)
		return -EINVAL;

	err = tp_group_fits(event, id);
	/* As in the real driver, an event without a group is refused only when it starts. */
	if (!err && row->admit && event->group_leader != event)
		err = row->admit(event, NULL, 0);
	if (err)
		return err;
	if (row->inherit)
		row->inherit(event, config);

	spec = tp_spec_get(p, config, 0);
	if (IS_ERR(spec))
		return PTR_ERR(spec);
	/* The event moves to the socket's reader CPU, whichever CPU was requested. */
	event->cpu = p->boxes[i].cpu;
	event->pmu_private = spec;
	event->hw.event_base = i;
	event->hw.config = id;
	event->hw.idx = -1;
	if (row->package_read)
		event->event_caps |= PERF_EV_CAP_READ_ACTIVE_PKG;
	return 0;
}
