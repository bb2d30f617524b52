// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * PMUs of NVIDIA Grace (Tegra241) as Linux shows them. Names, formats, events and filter
 * masks: drivers/perf/arm_cspmu/nvidia_cspmu.c in Linux. The SCF has 8 counters (DCPerf);
 * the number of the others is not published and chosen here.
 */
#include "testpmu.h"

static const struct tp_event scf_events[] = {
	EV(bus_cycles, 0x1d),
	EV(scf_cache_allocate, 0xf0),
	EV(scf_cache_refill, 0xf1),
	EV(scf_cache, 0xf2),
	EV(scf_cache_wb, 0xf3),
	EV(socket_0_rd_data, 0x101),
	EV(socket_1_rd_data, 0x102),
	EV(socket_2_rd_data, 0x103),
	EV(socket_3_rd_data, 0x104),
	EV(socket_0_wb_data, 0x109),
	EV(socket_1_wb_data, 0x10a),
	EV(socket_2_wb_data, 0x10b),
	EV(socket_3_wb_data, 0x10c),
	EV(socket_0_rd_outstanding, 0x115),
	EV(socket_1_rd_outstanding, 0x116),
	EV(socket_2_rd_outstanding, 0x117),
	EV(socket_3_rd_outstanding, 0x118),
	EV(socket_0_rd_access, 0x12d),
	EV(socket_1_rd_access, 0x12e),
	EV(socket_2_rd_access, 0x12f),
	EV(socket_3_rd_access, 0x130),
	EV(socket_0_wb_access, 0x135),
	EV(socket_1_wb_access, 0x136),
	EV(socket_2_wb_access, 0x137),
	EV(socket_3_wb_access, 0x138),
	EV(socket_0_wr_access, 0x139),
	EV(socket_1_wr_access, 0x13a),
	EV(socket_2_wr_access, 0x13b),
	EV(socket_3_wr_access, 0x13c),
	EV(gmem_rd_data, 0x16d),
	EV(gmem_rd_access, 0x16e),
	EV(gmem_rd_outstanding, 0x16f),
	EV(gmem_wb_data, 0x173),
	EV(gmem_wb_access, 0x174),
	EV(gmem_wr_data, 0x179),
	EV(gmem_wr_access, 0x17b),
	EV(socket_0_wr_data, 0x17c),
	EV(socket_1_wr_data, 0x17d),
	EV(socket_2_wr_data, 0x17e),
	EV(socket_3_wr_data, 0x17f),
	EV(gmem_wr_total_bytes, 0x1a0),
	EV(remote_socket_wr_total_bytes, 0x1a1),
	EV(remote_socket_rd_data, 0x1a2),
	EV(remote_socket_rd_outstanding, 0x1a3),
	EV(remote_socket_rd_access, 0x1a4),
	EV(cmem_rd_data, 0x1a5),
	EV(cmem_rd_access, 0x1a6),
	EV(cmem_rd_outstanding, 0x1a7),
	EV(cmem_wb_data, 0x1ab),
	EV(cmem_wb_access, 0x1ac),
	EV(cmem_wr_data, 0x1b1),
	EV(cmem_wr_access, 0x1ca),
	EV(cmem_wr_total_bytes, 0x1db),
	EV(cycles, 0x100000000),
	{}
};

/* PCIe, NVLink-C2C0/1 and CNVLink share one list. */
static const struct tp_event mcf_events[] = {
	EV(rd_bytes_loc, 0x0),
	EV(rd_bytes_rem, 0x1),
	EV(wr_bytes_loc, 0x2),
	EV(wr_bytes_rem, 0x3),
	EV(total_bytes_loc, 0x4),
	EV(total_bytes_rem, 0x5),
	EV(rd_req_loc, 0x6),
	EV(rd_req_rem, 0x7),
	EV(wr_req_loc, 0x8),
	EV(wr_req_rem, 0x9),
	EV(total_req_loc, 0xa),
	EV(total_req_rem, 0xb),
	EV(rd_cum_outs_loc, 0xc),
	EV(rd_cum_outs_rem, 0xd),
	EV(cycles, 0x100000000),
	{}
};

static const struct tp_text scf_formats[] = { { "event", "config:0-32" }, {} };
static const struct tp_text pcie_formats[] = {
	{ "event", "config:0-32" }, { "root_port", "config1:0-9" }, {}
};
static const struct tp_text c2c_formats[] = {
	{ "event", "config:0-32" }, { "port", "config1:0-1" }, {}
};
static const struct tp_text cnvlink_formats[] = {
	{ "event", "config:0-32" }, { "rem_socket", "config1:0-3" }, {}
};

/* PMIIDR: product id and implementer 0x36b. */
static const struct tp_text scf_files[] = { { "identifier", "2cf0036b" }, {} };
static const struct tp_text pcie_files[] = { { "identifier", "1030036b" }, {} };
static const struct tp_text c2c1_files[] = { { "identifier", "1040036b" }, {} };
static const struct tp_text c2c0_files[] = { { "identifier", "1050036b" }, {} };
static const struct tp_text cnvlink_files[] = { { "identifier", "1060036b" }, {} };

/* The cycle event counts only in the cycle counter, the others only in the others. */
u64 tp_cspmu_constraint(const struct tp_row *row, u64 id)
{
	return id == row->cycles_event ? BIT_ULL(row->counters) : BIT_ULL(row->counters) - 1;
}

#define GRACE(_name, _events, _formats, _files, _counters, _f1_mask) {	\
	.name = _name, TP_CSPMU,			\
	.events = _events, .formats = _formats, .files = _files,	\
	.counters = _counters, .f1_mask = _f1_mask,			\
}

const struct tp_row tp_grace_rows[] = {
	GRACE("nvidia_scf_pmu_%d", scf_events, scf_formats, scf_files, 8, 0),
	GRACE("nvidia_pcie_pmu_%d", mcf_events, pcie_formats, pcie_files, 4, 0x3ff),
	GRACE("nvidia_nvlink_c2c0_pmu_%d", mcf_events, c2c_formats, c2c0_files, 4, 0x3),
	GRACE("nvidia_nvlink_c2c1_pmu_%d", mcf_events, c2c_formats, c2c1_files, 4, 0x3),
	GRACE("nvidia_cnvlink_pmu_%d", mcf_events, cnvlink_formats, cnvlink_files, 4, 0xf),
	{}
};
