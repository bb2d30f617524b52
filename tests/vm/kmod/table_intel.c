// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Uncore PMUs of Intel SPR/EMR, with the formats of Linux's intel_uncore driver. The driver
 * lists no events/ for them. A PMU has a box on every socket; cpumask names one CPU of each.
 */
#include "testpmu.h"

static const struct tp_text cha_formats[] = {
	{ "event", "config:0-7" }, { "umask", "config:8-15,32-63" },
	{ "tid_en", "config:16" }, { "edge", "config:18" }, { "inv", "config:23" },
	{ "thresh", "config:24-31" }, { "filter_tid", "config1:0-9" }, {}
};
static const struct tp_text iio_formats[] = {
	{ "event", "config:0-7" }, { "umask", "config:8-15" }, { "edge", "config:18" },
	{ "inv", "config:23" }, { "thresh", "config:24-35" },
	{ "ch_mask", "config:36-47" }, { "fc_mask", "config:48-50" }, {}
};
static const struct tp_text imc_formats[] = {
	{ "event", "config:0-7" }, { "umask", "config:8-15,32-55" },
	{ "edge", "config:18" }, { "inv", "config:23" }, { "thresh", "config:24-31" }, {}
};

static const struct tp_text cha_files[] = { { "alias", "uncore_type_0_%d" }, {} };
static const struct tp_text iio_files[] = { { "alias", "uncore_type_1_%d" }, {} };
static const struct tp_text imc_files[] = { { "alias", "uncore_type_6_%d" }, {} };

#define TID_EN BIT_ULL(16)

/* f1: the upper umask; f2: edge, inv, thresh and, if enabled, the thread filter. */
static void cha_factors(const u64 config[3], struct tp_factors *f)
{
	u64 tid = config[0] & TID_EN ? config[1] & 0x3ff : 0;

	f->f1 = tp_factor(config[0] >> 32, 12);
	f->f2 = tp_factor((config[0] >> 16 & 0xffff) << 10 | tid, 8);
}

/* f1: ch_mask; f2: fc_mask, edge, inv and thresh. */
static void iio_factors(const u64 config[3], struct tp_factors *f)
{
	f->f1 = tp_factor(config[0] >> 36 & 0xfff, 12);
	f->f2 = tp_factor((config[0] >> 48 & 0x7) | (config[0] >> 16 & 0xfffff) << 3, 8);
}

static void imc_factors(const u64 config[3], struct tp_factors *f)
{
	f->f1 = tp_factor(config[0] >> 32 & 0xffffff, 12);
	f->f2 = tp_factor(config[0] >> 16 & 0xffff, 8);
}

/* TOR_OCCUPANCY (0x36) counts in counter 0 only. */
static u64 cha_constraint(const struct tp_row *row, u64 id)
{
	return (id & 0xff) == 0x36 ? BIT(0) : 0xf;
}

/* DATA_REQ_OF_CPU (0x83) in counters 0 and 1, DATA_REQ_BY_CPU (0xc0) in 2 and 3. */
static u64 iio_constraint(const struct tp_row *row, u64 id)
{
	switch (id & 0xff) {
	case 0x83:
		return 0x3;
	case 0xc0:
		return 0xc;
	default:
		return 0xf;
	}
}

#define INTEL(_name, _instances, _formats, _files, _factors)		\
	.name = _name, .layout = TP_PER_INSTANCE,	\
	.instances = _instances, .formats = _formats, .files = _files,	\
	.cpus_file = "cpumask", .counters = 4, .id_mask = 0xffff,	\
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE,			\
	.sampling_error = -EINVAL, .task_error = -EINVAL,		\
	.package_read = true, .factors = _factors

const struct tp_row tp_intel_rows[] = {
	{
		INTEL("uncore_cha_%d", &tp_cha, cha_formats, cha_files, cha_factors),
		.cycles_event = 0x1, .constraint = cha_constraint,
	},
	{
		INTEL("uncore_iio_%d", &tp_iio, iio_formats, iio_files, iio_factors),
		.cycles_event = 0x1, .constraint = iio_constraint, .dies = true,
	},
	{
		INTEL("uncore_imc_%d", &tp_imc, imc_formats, imc_files, imc_factors),
		.cycles_event = 0x101,
	},
	{}
};
