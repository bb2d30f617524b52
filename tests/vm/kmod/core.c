// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Which events the core PMU accepts at open. It registers as PERF_TYPE_RAW, so it also
 * gets generic hardware events (PERF_TYPE_HARDWARE), and maps them.
 */
#include "testpmu.h"

struct tp_pmu *tp_core;
DEFINE_PER_CPU(struct tp_pmu *, tp_core_here);

int tp_core_event_init(struct perf_event *event)
{
	struct tp_pmu *p = to_tp_pmu(event->pmu);
	u64 config[3] = { event->attr.config, event->attr.config1, event->attr.config2 };
	struct tp_spec *spec;
	u32 excl = 0;
	u64 id;
	int err;

	/* As drivers of hybrid cores do. */
	if (event->cpu >= 0 && !cpumask_test_cpu(event->cpu, &p->cpus))
		return -ENOENT;
	if (event->attr.type == PERF_TYPE_HARDWARE) {
		u64 generic = event->attr.config & PERF_HW_EVENT_MASK;

		if (generic >= PERF_COUNT_HW_MAX || p->row->hw_map[generic] == TP_NO_EVENT)
			return -ENOENT;
		config[0] = p->row->hw_map[generic];
	} else if (event->attr.type != event->pmu->type) {
		return -ENOENT;
	}
	if (has_branch_stack(event))
		return -EOPNOTSUPP;

	id = config[0] & p->row->id_mask;
	err = tp_group_fits(event, id);
	if (err)
		return err;
	/* Only bits that the format names distinguish specs. */
	config[0] = id;
	if (event->attr.exclude_user)
		excl |= TP_EXCL_USER;
	if (event->attr.exclude_kernel)
		excl |= TP_EXCL_KERNEL;
	spec = tp_spec_get(p, config, excl);
	if (IS_ERR(spec))
		return PTR_ERR(spec);
	event->pmu_private = spec;
	event->hw.config = id;
	event->hw.idx = -1;
	return 0;
}
