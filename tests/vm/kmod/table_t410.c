// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * PMUs of NVIDIA Tegra410 (Vera) as Linux shows them: those of the arm_cspmu driver, of the
 * C2C and the CMEM latency drivers, and the unnamed PMU that older kernels show on Vera.
 */
#include "testpmu.h"

static const struct tp_event ucf_events[] = {
	EV(bus_cycles, 0x1d),
	EV(slc_allocate, 0xf0),
	EV(slc_wb, 0xf3),
	EV(slc_refill_rd, 0x109),
	EV(slc_refill_wr, 0x10a),
	EV(slc_hit_rd, 0x119),
	EV(slc_access_dataless, 0x183),
	EV(slc_access_atomic, 0x184),
	EV(slc_access_rd, 0x111),
	EV(slc_access_wr, 0x112),
	EV(slc_bytes_rd, 0x113),
	EV(slc_bytes_wr, 0x114),
	EV(mem_access_rd, 0x121),
	EV(mem_access_wr, 0x122),
	EV(mem_bytes_rd, 0x123),
	EV(mem_bytes_wr, 0x124),
	EV(local_snoop, 0x180),
	EV(ext_snp_access, 0x181),
	EV(ext_snp_evict, 0x182),
	EV(cycles, 0x100000000),
	{}
};

static const struct tp_event pcie_events[] = {
	EV(rd_bytes, 0x0),
	EV(wr_bytes, 0x1),
	EV(rd_req, 0x2),
	EV(wr_req, 0x3),
	EV(rd_cum_outs, 0x4),
	EV(cycles, 0x100000000),
	{}
};

static const struct tp_event pcie_tgt_events[] = {
	EV(rd_bytes, 0x0),
	EV(wr_bytes, 0x1),
	EV(rd_req, 0x2),
	EV(wr_req, 0x3),
	EV(cycles, 0x4),
	{}
};

static const struct tp_event cmem_events[] = {
	EV(cycles, 0x0),
	EV(rd_req, 0x1),
	EV(rd_cum_outs, 0x2),
	{}
};

static const struct tp_event c2c_gpu_events[] = {
	EV(cycles, 0x0),
	EV(in_rd_cum_outs, 0x1),
	EV(in_rd_req, 0x2),
	EV(in_wr_cum_outs, 0x3),
	EV(in_wr_req, 0x4),
	EV(out_rd_cum_outs, 0x5),
	EV(out_rd_req, 0x6),
	EV(out_wr_cum_outs, 0x7),
	EV(out_wr_req, 0x8),
	{}
};

static const struct tp_event c2c_cpu_events[] = {
	EV(cycles, 0x0),
	EV(in_rd_cum_outs, 0x1),
	EV(in_rd_req, 0x2),
	EV(out_rd_cum_outs, 0x5),
	EV(out_rd_req, 0x6),
	{}
};

static const struct tp_event c2c_cxl_events[] = {
	EV(cycles, 0x0),
	EV(in_rd_cum_outs, 0x1),
	EV(in_rd_req, 0x2),
	{}
};

static const struct tp_event generic_events[] = { EV(cycles, 0x100000000), {} };

static const struct tp_text ucf_formats[] = {
	{ "event", "config:0-32" },
	{ "src_loc_noncpu", "config1:0" },
	{ "src_loc_cpu", "config1:1" },
	{ "src_rem", "config1:2" },
	{ "dst_loc_cmem", "config1:8" },
	{ "dst_loc_gmem", "config1:9" },
	{ "dst_loc_other", "config1:10" },
	{ "dst_rem", "config1:11" },
	{}
};

static const struct tp_text pcie_formats[] = {
	{ "event", "config:0-32" },
	{ "src_rp_mask", "config1:0-7" },
	{ "src_bdf", "config1:8-23" },
	{ "src_bdf_en", "config1:24" },
	{ "dst_loc_cmem", "config2:0" },
	{ "dst_loc_gmem", "config2:1" },
	{ "dst_loc_pcie_p2p", "config2:2" },
	{ "dst_loc_pcie_cxl", "config2:3" },
	{ "dst_rem", "config2:4" },
	{}
};

static const struct tp_text pcie_tgt_formats[] = {
	{ "event", "config:0-2" },
	{ "dst_rp_mask", "config:3-10" },
	{ "dst_addr_en", "config:11" },
	{ "dst_addr_base", "config1:0-63" },
	{ "dst_addr_mask", "config2:0-63" },
	{}
};

static const struct tp_text cmem_formats[] = { { "event", "config:0-1" }, {} };
static const struct tp_text c2c_formats[] = { { "event", "config:0-3" }, {} };
static const struct tp_text c2c_gpu_formats[] = {
	{ "event", "config:0-3" }, { "gpu_mask", "config1:0-1" }, {}
};
static const struct tp_text generic_formats[] = {
	{ "event", "config:0-32" }, { "filter", "config1:0-31" },
	{ "filter2", "config2:0-31" }, {}
};

static const struct tp_text ucf_files[] = { { "identifier", "2cf2036b" }, {} };
static const struct tp_text pcie_files[] = { { "identifier", "1030136b" }, {} };
static const struct tp_text pcie_tgt_files[] = { { "identifier", "1070036b" }, {} };
static const struct tp_text cmem_files[] = { { "identifier", "NVDA2021" }, {} };
static const struct tp_text nvlink_files[] = {
	{ "identifier", "NVDA2023" }, { "peer", "nr_gpu=2" }, {}
};
static const struct tp_text nvclink_files[] = {
	{ "identifier", "NVDA2022" }, { "peer", "nr_cpu=1" }, {}
};
static const struct tp_text nvdlink_files[] = {
	{ "identifier", "NVDA2020" }, { "peer", "nr_cxlmem=1" }, {}
};

/* f1: source bits 0-2 and destination bits 8-11; no source or destination set means all. */
static void ucf_factors(const u64 config[3], struct tp_factors *f)
{
	u64 src = config[1] & 0x7, dst = config[1] & 0xf00;

	f->f1 = tp_factor((src ?: 0x7) | (dst ?: 0xf00), 12);
}

#define PCIE_RP 0xffULL
#define PCIE_BDF 0x1ffff00ULL	/* src_bdf and src_bdf_en */
#define PCIE_BDF_EN BIT_ULL(24)

static u64 pcie_bdf(u64 config1)
{
	return config1 & PCIE_BDF_EN ? config1 & PCIE_BDF : 0;
}

/* f1: the BDF if it is enabled, else the root port mask; f2: the destinations. */
static void pcie_factors(const u64 config[3], struct tp_factors *f)
{
	u64 bdf = pcie_bdf(config[1]);

	f->f1 = tp_factor(bdf ?: (config[1] & PCIE_RP) ?: PCIE_RP, 12);
	f->f2 = tp_factor((config[2] & 0x1f) ?: 0x1f, 8);
}

/* A sibling without a filter gets the leader's. */
static void pcie_inherit(const struct perf_event *event, u64 config[3])
{
	if (!config[1])
		config[1] = pcie_bdf(event->group_leader->attr.config1);
}

static u64 pcie_effective_bdf(const struct perf_event *event)
{
	const struct perf_event *leader = event->group_leader;

	return pcie_bdf(event->attr.config1 ?: leader->attr.config1);
}

/* Root port and BDF filters exclude each other; all counters share one BDF value. */
static int pcie_admit(struct perf_event *event, struct perf_event *const *active,
		      unsigned int n)
{
	u64 bdf = pcie_effective_bdf(event);
	unsigned int i;

	if (event->attr.config == BIT_ULL(32))
		return 0;
	if (bdf && (event->attr.config1 & PCIE_RP))
		return -EINVAL;
	if (bdf != pcie_bdf(event->group_leader->attr.config1))
		return -EINVAL;
	for (i = 0; i < n; i++)
		if (active[i]->attr.config != BIT_ULL(32) &&
		    pcie_effective_bdf(active[i]) != bdf)
			return -EINVAL;
	return 0;
}

#define TGT_ADDR_EN BIT_ULL(11)
#define TGT_ADDR_SLOTS 8

/* f1: root ports and, as bit 8, the address filter; f2: address and its mask. */
static void pcie_tgt_factors(const u64 config[3], struct tp_factors *f)
{
	u64 ports = config[0] >> 3 & 0xff;
	bool addr = config[0] & TGT_ADDR_EN;

	f->f1 = tp_factor(addr ? ports | BIT(8) : ports ?: 0xff, 12);
	if (addr)
		f->f2 = tp_factor(config[1] ^ (config[2] << 3 | config[2] >> 61), 8);
}

static bool same_address(const struct perf_event *a, const struct perf_event *b)
{
	return a->attr.config1 == b->attr.config1 && a->attr.config2 == b->attr.config2;
}

/* There are 8 address filters; events with the same address share one. */
static int pcie_tgt_admit(struct perf_event *event, struct perf_event *const *active,
			  unsigned int n)
{
	unsigned int used = 0, i, j;

	if (!(event->attr.config & TGT_ADDR_EN))
		return 0;
	for (i = 0; i < n; i++) {
		if (!(active[i]->attr.config & TGT_ADDR_EN))
			continue;
		if (same_address(active[i], event))
			return 0;
		for (j = 0; j < i; j++)
			if ((active[j]->attr.config & TGT_ADDR_EN) &&
			    same_address(active[i], active[j]))
				break;
		used += j == i;
	}
	return used < TGT_ADDR_SLOTS ? 0 : -EINVAL;
}

/* The C2C and CMEM latency drivers have 32 counters for any event, and refuse unknown ids. */
#define T410_MMIO(_name, _events, _formats, _files, _id_mask, _ids)	\
	.name = _name, .layout = TP_PER_SOCKET,	\
	.events = _events, .event_fmt = "event=0x%llx",			\
	.formats = _formats, .files = _files,				\
	.cpus_file = "cpumask", .associated_cpus = true,		\
	.counters = 32, .cycles_event = 0, .id_mask = _id_mask, .id_count = _ids, \
	.capabilities = PERF_PMU_CAP_NO_EXCLUDE | PERF_PMU_CAP_NO_INTERRUPT, \
	.sampling_error = -EOPNOTSUPP

const struct tp_row tp_t410_rows[] = {
	{
		.name = "nvidia_ucf_pmu_%d", TP_CSPMU,
		.events = ucf_events, .formats = ucf_formats, .files = ucf_files,
		.counters = 8, .factors = ucf_factors,
	},
	{
		.name = "nvidia_pcie_pmu_%d_rc_%d", TP_CSPMU,
		.layout = TP_PER_SOCKET_INSTANCE, .instances = &tp_rc,
		.events = pcie_events, .formats = pcie_formats, .files = pcie_files,
		.counters = 4, .factors = pcie_factors,
		.admit = pcie_admit, .inherit = pcie_inherit,
	},
	{
		.name = "nvidia_pcie_tgt_pmu_%d_rc_%d", TP_CSPMU,
		.layout = TP_PER_SOCKET_INSTANCE, .instances = &tp_rc,
		.events = pcie_tgt_events, .formats = pcie_tgt_formats,
		.files = pcie_tgt_files,
		/* More counters than address filters, so that both limits can be met. */
		.counters = 10, .cycles_event = 4, .id_mask = 0x7,
		.factors = pcie_tgt_factors, .admit = pcie_tgt_admit,
	},
	{
		T410_MMIO("nvidia_cmem_latency_pmu_%d", cmem_events, cmem_formats,
			  cmem_files, 0x3, 3),
		.task_error = -EOPNOTSUPP,
	},
	{
		T410_MMIO("nvidia_nvlink_c2c_pmu_%d", c2c_gpu_events, c2c_gpu_formats,
			  nvlink_files, 0xff, 9),
		.task_error = -EINVAL, .f1_mask = 0x3,
	},
	{
		T410_MMIO("nvidia_nvclink_pmu_%d", c2c_cpu_events, c2c_formats,
			  nvclink_files, 0xff, 9),
		.task_error = -EINVAL,
	},
	{
		T410_MMIO("nvidia_nvdlink_pmu_%d", c2c_cxl_events, c2c_formats,
			  nvdlink_files, 0xff, 9),
		.task_error = -EINVAL,
	},
	{}
};

/* The PMU that a kernel without the Tegra410 tables shows on Vera, found by its identifier. */
const struct tp_row tp_vera_row = {
	.name = "nvidia_uncore_pmu_%d", TP_CSPMU,
	.events = generic_events, .formats = generic_formats, .files = ucf_files,
	.counters = 8, .f1_mask = 0xffffffff, .f2_mask = 0xffffffff,
};
