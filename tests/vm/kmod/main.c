// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * testpmu: PMUs that look like real ones, refuse the same events, and count as a test
 * sets them. README.md: how to load it, set rates and read the true counts.
 */
#include <linux/module.h>

#include "testpmu.h"

static char *set = "grace";
module_param(set, charp, 0444);
MODULE_PARM_DESC(set, "PMUs to register: grace,tegra410,vera,intel,core,spe,ibs,pebs");

int tp_sockets = 2;
module_param_named(sockets, tp_sockets, int, 0444);
MODULE_PARM_DESC(sockets, "sockets; the CPUs are dealt to them in equal runs");

int tp_cha = 4, tp_iio = 4, tp_imc = 4, tp_rc = 2;
module_param_named(cha, tp_cha, int, 0444);
module_param_named(iio, tp_iio, int, 0444);
module_param_named(imc, tp_imc, int, 0444);
module_param_named(rc, tp_rc, int, 0444);
MODULE_PARM_DESC(cha, "uncore_cha_N PMUs");
MODULE_PARM_DESC(iio, "uncore_iio_N PMUs");
MODULE_PARM_DESC(imc, "uncore_imc_N PMUs");
MODULE_PARM_DESC(rc, "PCIe root complexes per socket (tegra410)");

int tp_ernd = 1;
module_param_named(ernd, tp_ernd, int, 0444);
MODULE_PARM_DESC(ernd,
		 "arm_spe_0: 0: jitter is added to each interval, 1: to where in it the sample is");

bool tp_rates = true;
module_param_named(rates, tp_rates, bool, 0644);
MODULE_PARM_DESC(rates, "0: an event that nobody gave a rate counts nothing");

int tp_broken = -1;
module_param_named(broken, tp_broken, int, 0444);
MODULE_PARM_DESC(broken, "core PMU: this counter, from 0 on, counts next to nothing");

static char *core = IS_ENABLED(CONFIG_ARM64) ? "arm" : "intel";
module_param(core, charp, 0444);
MODULE_PARM_DESC(core, "which core PMU `set=core` means: arm, intel or amd");

static char *core_name;
module_param(core_name, charp, 0444);
MODULE_PARM_DESC(core_name, "name of the core PMU (arm: armv8_pmuv3_0, else: cpu)");

static int core_type = PERF_TYPE_RAW;
module_param(core_type, int, 0444);
MODULE_PARM_DESC(core_type, "PMU type of the core PMU; -1: any free one");

int tp_socket_of(int cpu)
{
	return cpu * tp_sockets / num_possible_cpus();
}

static int register_rows(const struct tp_row *rows)
{
	int err = 0;

	for (; rows->name && !err; rows++)
		err = tp_register_row(rows, NULL, -1);
	return err;
}

static int register_core(void)
{
	if (!strcmp(core, "arm"))
		return tp_register_row(&tp_core_arm_row, core_name, core_type);
	if (!strcmp(core, "intel"))
		return tp_register_row(&tp_core_intel_row, core_name, core_type);
	if (!strcmp(core, "amd"))
		return tp_register_row(&tp_core_amd_row, core_name, core_type);
	pr_err("testpmu: core=%s is unknown; it is arm, intel or amd\n", core);
	return -EINVAL;
}

static int register_hybrid(void)
{
	int err = tp_register_row(&tp_hybrid_rows[0], NULL, PERF_TYPE_RAW);

	return err ?: tp_register_row(&tp_hybrid_rows[1], NULL, -1);
}

static int register_set(const char *name)
{
	if (!strcmp(name, "grace"))
		return register_rows(tp_grace_rows);
	if (!strcmp(name, "tegra410"))
		return register_rows(tp_t410_rows);
	if (!strcmp(name, "vera"))
		return tp_register_row(&tp_vera_row, NULL, -1);
	if (!strcmp(name, "intel"))
		return register_rows(tp_intel_rows);
	if (!strcmp(name, "core"))
		return register_core();
	if (!strcmp(name, "hybrid"))
		return register_hybrid();
	if (!strcmp(name, "spe"))
		return tp_spe_register();
	if (!strcmp(name, "ibs") || !strcmp(name, "pebs") || !strcmp(name, "pebs-noaux"))
		return tp_sample_register(name);
	pr_err("testpmu: set=%s is unknown; README.md has the list\n",
	       name);
	return -EINVAL;
}

static int register_sets(void)
{
	char buf[96], *rest = buf, *name;
	int err = 0;

	strscpy(buf, set, sizeof(buf));
	while (!err && (name = strsep(&rest, ",")))
		err = register_set(name);
	if (err == -EEXIST)
		pr_err("testpmu: set=%s names PMUs that exist already\n", set);
	if (!err)
		tp_oncpu_idle_counts(false);
	return err;
}

static int __init testpmu_init(void)
{
	int err;

	tp_sockets = clamp_t(int, tp_sockets, 1, num_possible_cpus());
	err = tp_oncpu_init();
	if (err)
		return err;
	err = register_sets();
	if (err)
		goto fail_sets;
	err = tp_hotplug_init();
	if (err)
		goto fail_sets;
	err = tp_control_init();
	if (err)
		goto fail_control;
	return 0;

fail_control:
	tp_hotplug_exit();
fail_sets:
	tp_oncpu_exit();
	tp_unregister_all();
	tp_spe_exit();
	tp_sample_exit();
	return err;
}

static void __exit testpmu_exit(void)
{
	tp_control_exit();
	tp_hotplug_exit();
	/* The probes are removed first, since they use the core PMU's boxes. */
	tp_oncpu_exit();
	tp_unregister_all();
	tp_spe_exit();
	tp_sample_exit();
}

module_init(testpmu_init);
module_exit(testpmu_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Test PMUs for pmuscope: known counts, real refusals");
