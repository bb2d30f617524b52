// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Core PMUs: Neoverse V2 as Linux's arm64 driver shows it (events/ lists only the
 * architected events; others are opened by number), and `cpu` with the encoding and the
 * events/ of Linux's x86 driver, like Intel's or like AMD's. Each has six programmable
 * counters. Arm's and Intel's have one more, which only cycles may use.
 */
#include "testpmu.h"

static const struct tp_event v2_events[] = {
	EV(sw_incr, 0x0),
	EV(l1i_cache_refill, 0x1),
	EV(l1i_tlb_refill, 0x2),
	EV(l1d_cache_refill, 0x3),
	EV(l1d_cache, 0x4),
	EV(l1d_tlb_refill, 0x5),
	{ "inst_retired", 0x8, 6000000 },
	EV(exc_taken, 0x9),
	EV(exc_return, 0xa),
	EV(cid_write_retired, 0xb),
	EV(br_mis_pred, 0x10),
	{ "cpu_cycles", 0x11, 3000000 },
	EV(br_pred, 0x12),
	EV(mem_access, 0x13),
	EV(l1i_cache, 0x14),
	EV(l1d_cache_wb, 0x15),
	EV(l2d_cache, 0x16),
	EV(l2d_cache_refill, 0x17),
	EV(l2d_cache_wb, 0x18),
	EV(bus_access, 0x19),
	EV(memory_error, 0x1a),
	EV(inst_spec, 0x1b),
	EV(ttbr_write_retired, 0x1c),
	EV(bus_cycles, 0x1d),
	EV(l2d_cache_allocate, 0x20),
	EV(br_retired, 0x21),
	EV(br_mis_pred_retired, 0x22),
	EV(stall_frontend, 0x23),
	EV(stall_backend, 0x24),
	EV(l1d_tlb, 0x25),
	EV(l1i_tlb, 0x26),
	EV(l3d_cache_allocate, 0x29),
	EV(l3d_cache_refill, 0x2a),
	EV(l3d_cache, 0x2b),
	EV(l2d_tlb_refill, 0x2d),
	EV(l2d_tlb, 0x2f),
	EV(remote_access, 0x31),
	EV(dtlb_walk, 0x34),
	EV(itlb_walk, 0x35),
	EV(ll_cache_rd, 0x36),
	EV(ll_cache_miss_rd, 0x37),
	EV(l1d_cache_lmiss_rd, 0x39),
	EV(op_retired, 0x3a),
	EV(op_spec, 0x3b),
	EV(stall, 0x3c),
	EV(stall_slot_backend, 0x3d),
	EV(stall_slot_frontend, 0x3e),
	EV(stall_slot, 0x3f),
	EV(sample_pop, 0x4000),
	EV(sample_feed, 0x4001),
	EV(sample_filtrate, 0x4002),
	EV(sample_collision, 0x4003),
	EV(cnt_cycles, 0x4004),
	EV(stall_backend_mem, 0x4005),
	EV(l1i_cache_lmiss, 0x4006),
	EV(l2d_cache_lmiss_rd, 0x4009),
	EV(l3d_cache_lmiss_rd, 0x400b),
	EV(trb_wrap, 0x400c),
	EV(trcextout0, 0x4010),
	EV(trcextout1, 0x4011),
	EV(trcextout2, 0x4012),
	EV(trcextout3, 0x4013),
	EV(cti_trigout4, 0x4018),
	EV(cti_trigout5, 0x4019),
	EV(cti_trigout6, 0x401a),
	EV(cti_trigout7, 0x401b),
	EV(ldst_align_lat, 0x4020),
	EV(ld_align_lat, 0x4021),
	EV(st_align_lat, 0x4022),
	EV(mem_access_checked, 0x4024),
	EV(mem_access_checked_rd, 0x4025),
	EV(mem_access_checked_wr, 0x4026),
	{}
};

static const struct tp_text v2_formats[] = {
	{ "event", "config:0-15" }, { "long", "config1:0" }, { "rdpmc", "config1:1" }, {}
};
static const struct tp_text v2_caps[] = {
	{ "slots", "0x00000008" }, { "bus_slots", "0x00000000" },
	{ "bus_width", "0x00000000" }, {}
};

/* Generic hardware events, in the order of enum perf_hw_id. */
static const u64 v2_hw_map[PERF_COUNT_HW_MAX] = {
	0x11, 0x08, 0x04, 0x03, 0x21, 0x22, 0x1d, 0x23, 0x24, TP_NO_EVENT,
};

/* Each event is a sysfs string, since umask and cmask are separate fields. */
static const struct tp_text intel_events[] = {
	{ "cpu-cycles", "event=0x3c" },
	{ "instructions", "event=0xc0" },
	{ "cache-references", "event=0x2e,umask=0x4f" },
	{ "cache-misses", "event=0x2e,umask=0x41" },
	{ "branch-instructions", "event=0xc4" },
	{ "branch-misses", "event=0xc5" },
	{ "bus-cycles", "event=0x3c,umask=0x01" },
	{ "ref-cycles", "event=0x00,umask=0x03" },
	{}
};
static const struct tp_event intel_rates[] = {
	{ "cpu-cycles", 0x3c, 3000000 },
	{ "unhalted.thread", 0x200, 3000000 },
	{ "instructions", 0xc0, 6000000 },
	{ "inst_retired.any", 0x100, 6000000 },
	{ "ref-cycles", 0x300, 2000000 },
	{}
};
static const struct tp_text intel_formats[] = {
	{ "event", "config:0-7" }, { "umask", "config:8-15" }, { "edge", "config:18" },
	{ "pc", "config:19" }, { "inv", "config:23" }, { "cmask", "config:24-31" },
	{ "offcore_rsp", "config1:0-63" }, { "ldlat", "config1:0-15" }, {}
};
static const struct tp_text intel_caps[] = {
	{ "pmu_name", "sapphire_rapids" }, { "branches", "0" }, { "max_precise", "0" }, {}
};
static const u64 intel_hw_map[PERF_COUNT_HW_MAX] = {
	0x3c, 0xc0, 0x4f2e, 0x412e, 0xc4, 0xc5, 0x13c, TP_NO_EVENT, TP_NO_EVENT, 0x300,
};

/* Bits 8 to 11 of an event are bits 32 to 35 of config. */
static const struct tp_text amd_events[] = {
	{ "cpu-cycles", "event=0x76" },
	{ "instructions", "event=0xc0" },
	{ "cache-references", "event=0x60,umask=0xff" },
	{ "cache-misses", "event=0x64,umask=0x09" },
	{ "branch-instructions", "event=0xc2" },
	{ "branch-misses", "event=0xc3" },
	{ "stalled-cycles-frontend", "event=0xa9" },
	{ "ref-cycles", "event=0x120" },
	{}
};
static const struct tp_event amd_rates[] = {
	{ "cpu-cycles", 0x76, 3000000 },
	{ "instructions", 0xc0, 6000000 },
	{ "ref-cycles", 0x100000120, 2000000 },
	{}
};
static const struct tp_text amd_formats[] = {
	{ "event", "config:0-7,32-35" }, { "umask", "config:8-15" }, { "edge", "config:18" },
	{ "inv", "config:23" }, { "cmask", "config:24-31" }, {}
};
static const u64 amd_hw_map[PERF_COUNT_HW_MAX] = {
	0x76, 0xc0, 0xff60, 0x964, 0xc2, 0xc3, TP_NO_EVENT, 0xa9, TP_NO_EVENT, 0x100000120,
};

static u64 core_constraint(const struct tp_row *row, u64 id)
{
	u64 any = BIT_ULL(row->counters) - 1;

	return id == row->cycles_event ? any | BIT_ULL(row->counters) : any;
}

const struct tp_row tp_core_arm_row = {
	.name = "armv8_pmuv3_0", .layout = TP_PER_CPU,
	.events = v2_events, .event_fmt = "event=0x%04llx",
	.formats = v2_formats, .caps = v2_caps, .cpus_file = "cpus",
	.counters = 6, .cycles_event = 0x11, .id_mask = 0xffff,
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT,
	.constraint = core_constraint, .hw_map = v2_hw_map, .numbered = true,
};

/*
 * 6.1 allows only one PMU since boot with hardware events of tasks, unless the next has this
 * flag. Without it, the module loaded a second time would refuse per-task events. Not used on
 * arm64, where the PMU would share the context of QEMU's own, and start and stop with it.
 */
#ifdef PERF_PMU_CAP_HETEROGENEOUS_CPUS
#define TP_CAP_RELOAD PERF_PMU_CAP_HETEROGENEOUS_CPUS
#else
#define TP_CAP_RELOAD 0
#endif

#define TP_INTEL_CORE								\
	.layout = TP_PER_CPU,							\
	.events = intel_rates, .event_texts = intel_events,			\
	.formats = intel_formats, .caps = intel_caps,				\
	.counters = 6, .cycles_event = 0x3c, .id_mask = 0xff84ffff,		\
	.constraint = core_constraint, .hw_map = intel_hw_map, .numbered = true

/* The id mask drops the OS, USR, EN and INT bits of a raw code, as X86_RAW_EVENT_MASK does. */
const struct tp_row tp_core_intel_row = {
	.name = "cpu", TP_INTEL_CORE,
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT | TP_CAP_RELOAD,
};

const struct tp_row tp_core_amd_row = {
	.name = "cpu", .layout = TP_PER_CPU,
	.events = amd_rates, .event_texts = amd_events, .formats = amd_formats,
	.counters = 6, .id_mask = 0xfff84ffffULL,
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT | TP_CAP_RELOAD,
	.hw_map = amd_hw_map, .numbered = true,
};

/* Two kinds of core, as on Intel's hybrid CPUs. The first has the type of raw events. */
#define TP_HYBRID									\
	.cpus_file = "cpus", .kinds = 2,						\
	.capabilities = PERF_PMU_CAP_NO_INTERRUPT | PERF_PMU_CAP_EXTENDED_HW_TYPE |	\
			TP_CAP_RELOAD
const struct tp_row tp_hybrid_rows[] = {
	{ .name = "cpu_core", TP_INTEL_CORE, TP_HYBRID, .kind = 0 },
	{ .name = "cpu_atom", TP_INTEL_CORE, TP_HYBRID, .kind = 1 },
	{}
};
