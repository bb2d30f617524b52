//! Recognises printed names as events of the catalogue.

use std::sync::Arc;

use super::{super::recognise::recognise, CATALOGUE};
use crate::catalogue::PmuSpec;

fn pmu(family: &str, key: &str) -> &'static Arc<PmuSpec> {
    let mut families = CATALOGUE.families();
    let family = families.find(|known| known.name == family).unwrap();
    family.pmus.iter().find(|pmu| pmu.key == key).unwrap()
}

#[track_caller]
fn assert_event(family: &str, key: &str, printed: &str, event: &str, place: &str) {
    let known =
        recognise(printed, pmu(family, key)).unwrap_or_else(|| panic!("{printed} is not known"));
    assert_eq!(
        (known.event.as_str(), known.place.to_string().as_str()),
        (event, place),
        "{printed}"
    );
}

#[track_caller]
fn assert_unknown(family: &str, key: &str, printed: &str) {
    assert_eq!(recognise(printed, pmu(family, key)), None, "{printed}");
}

#[test]
fn events_of_coresight_pmus_are_recognized() {
    let scf =
        |printed, event, place| assert_event("nvidia-grace-scf", "scf", printed, event, place);
    scf("nvidia_scf_pmu_0/cmem_rd_data/", "CMEM_RD_DATA", "socket 0");
    scf("nvidia_scf_pmu_1/CMEM_RD_DATA/", "CMEM_RD_DATA", "socket 1");
    scf("nvidia_scf_pmu_1/event=0x1a5/", "CMEM_RD_DATA", "socket 1");
    scf("nvidia_scf_pmu_0/event=cycles/", "CYCLES", "socket 0");
    scf("nvidia_scf_pmu_0/cycles,name=x/", "CYCLES", "socket 0");
    scf("CMEM_RD_DATA", "CMEM_RD_DATA", "");
    scf(
        "nvidia_scf_pmu_0/socket_1_rd_access/",
        "SOCKET_n_RD_ACCESS",
        "socket 0 to socket 1",
    );
    scf(
        "nvidia_scf_pmu_1/event=0x12d/",
        "SOCKET_n_RD_ACCESS",
        "socket 1 to socket 0",
    );
    scf(
        "nvidia_scf_pmu_1/event=0x12f/",
        "SOCKET_n_RD_ACCESS",
        "socket 1 to socket 2",
    );
    assert_unknown("nvidia-grace-scf", "scf", "nvidia_scf_pmu_0/event=0x131/");
    assert_unknown("nvidia-grace-scf", "scf", "nvidia_ucf_pmu_0/cycles/");
    assert_unknown("nvidia-grace-scf", "scf", "nvidia_scf_pmu_x/cycles/");
    let pcie =
        |printed, event, place| assert_event("nvidia-grace-pcie", "pcie", printed, event, place);
    pcie(
        "nvidia_pcie_pmu_1/rd_bytes_rem,root_port=0x4/",
        "RD_BYTES_REM",
        "socket 1 root_port=0x4",
    );
    pcie(
        "nvidia_pcie_pmu_1/rd_bytes_rem/",
        "RD_BYTES_REM",
        "socket 1",
    );
    assert_unknown(
        "nvidia-grace-pcie",
        "pcie",
        "nvidia_pcie_pmu_0_rc_1/rd_bytes/",
    );
    assert_event(
        "tegra410-pcie",
        "pcie",
        "nvidia_pcie_pmu_0_rc_1/event=0x1,src_rp_mask=0x3,dst_loc_cmem=0x1/",
        "WR_BYTES",
        "nvidia_pcie_pmu_0_rc_1 dst_loc_cmem=0x1 src_rp_mask=0x3",
    );
}

/// An entry of the catalogue that includes the printed filter is preferred to the entry without it.
#[test]
fn the_entry_with_the_filter_is_recognized() {
    let ucf = |printed, event, place| assert_event("tegra410-ucf", "ucf", printed, event, place);
    ucf("nvidia_ucf_pmu_0/mem_bytes_rd/", "MEM_BYTES_RD", "socket 0");
    ucf(
        "nvidia_ucf_pmu_0/mem_bytes_rd,src_loc_cpu=1/",
        "CPU_MEM_BYTES_RD",
        "socket 0",
    );
    ucf(
        "nvidia_ucf_pmu_0/event=0x123,src_loc_cpu=0x1/",
        "CPU_MEM_BYTES_RD",
        "socket 0",
    );
    ucf(
        "nvidia_ucf_pmu_0/mem_bytes_rd,dst_rem=1/",
        "MEM_BYTES_RD",
        "socket 0 dst_rem=0x1",
    );
}

#[test]
fn events_of_intel_are_recognized() {
    let cha = |printed, place| {
        assert_event(
            "intel-spr",
            "cha",
            printed,
            "UNC_CHA_TOR_INSERTS.IO_ITOM",
            place,
        );
    };
    cha("UNC_CHA_TOR_INSERTS.IO_ITOM", "");
    cha("unc_cha_tor_inserts.io_itom", "");
    cha("uncore_cha_17/event=0x35,umask=0xcc43ff04/", "");
    cha("uncore_cha/event=0x35,umask=0xcc43ff04/", "");
    cha("uncore_cha_3/UNC_CHA_TOR_INSERTS.IO_ITOM/", "");
    assert_unknown(
        "intel-spr",
        "cha",
        "uncore_cha_17/event=0x35,umask=0xcc43ff05/",
    );
    assert_unknown("intel-spr", "cha", "uncore_cha_17/event=0x35/");
    assert_event(
        "intel-spr",
        "cha",
        "uncore_cha_0/event=0x1/",
        "UNC_CHA_CLOCKTICKS",
        "",
    );
    let iio = |printed, place| {
        assert_event(
            "intel-spr",
            "iio",
            printed,
            "UNC_IIO_DATA_REQ_OF_CPU.MEM_READ.PARTn",
            place,
        );
    };
    iio("unc_iio_data_req_of_cpu.mem_read.part3", "part 3");
    iio(
        "uncore_iio_2/event=0x83,umask=0x04,ch_mask=0x10,fc_mask=0x7/",
        "uncore_iio_2 part 4",
    );
    iio(
        "uncore_iio_2/event=0x83,umask=0x04,ch_mask=0xff,fc_mask=0x7/",
        "uncore_iio_2 ch_mask=0xff",
    );
    assert_event(
        "intel-spr",
        "imc",
        "uncore_imc/cas_count_read/",
        "UNC_M_CAS_COUNT.RD",
        "",
    );
    assert_event(
        "intel-spr",
        "imc",
        "uncore_imc_4/cas_count_write/",
        "UNC_M_CAS_COUNT.WR",
        "",
    );
    let unit = recognise("uncore_imc_4/cas_count_write/", pmu("intel-spr", "imc"))
        .unwrap()
        .unit;
    assert_eq!(unit.as_deref(), Some("uncore_imc_4"));
}

#[test]
fn events_of_cores_are_recognized() {
    let v2 = |printed, event| assert_event("neoverse-v2", "core", printed, event, "");
    v2("cpu_cycles", "CPU_CYCLES");
    v2("CPU_CYCLES", "CPU_CYCLES");
    v2("cycles", "CPU_CYCLES");
    v2("armv8_pmuv3_0/inst_retired/", "INST_RETIRED");
    v2("armv8_pmuv3_0/event=0x8/", "INST_RETIRED");
    v2("r80c0", "FP_SCALE_OPS_SPEC");
    v2("r80C1", "FP_FIXED_OPS_SPEC");
    v2("r11", "CPU_CYCLES");
    assert_unknown("neoverse-v2", "core", "nvidia_scf_pmu_0/cycles/");
    let modified = recognise("instructions:u", pmu("neoverse-v2", "core")).unwrap();
    assert_eq!(
        (modified.event.as_str(), modified.modifiers.as_str()),
        ("INST_RETIRED", "u")
    );
    let modified = recognise("armv8_pmuv3_0/inst_retired/k", pmu("neoverse-v2", "core")).unwrap();
    assert_eq!(modified.modifiers, "k");
    // The raw codes of the family's source, with the bits that perf replaces.
    let snb = |printed, event| assert_event("intel-snb-stalls", "core", printed, event, "");
    snb("r1c3010e", "UOPS_ISSUED.STALL_CYCLES");
    snb("r01a2", "RESOURCE_STALLS.ANY");
    snb("r44304a3", "CYCLE_ACTIVITY.CYCLES_NO_DISPATCH");
    snb("r1c302b1", "UOPS_DISPATCHED.STALL_CYCLES_CORE");
    snb("r54305a3", "CYCLE_ACTIVITY.STALL_CYCLES_L2_PENDING");
    snb("cpu/event=0xa2,umask=0x8/", "RESOURCE_STALLS.SB");
    assert_unknown("intel-snb-stalls", "core", "r54305a4");
}

/// Every event of the catalogue is recognised by the name that perf prints for it.
#[test]
fn every_event_is_recognized_as_perf_prints_it() {
    for family in CATALOGUE.families() {
        for spec in &family.pmus {
            // The encoding of a sampled event does not identify it.
            let counted = spec
                .events
                .iter()
                .filter(|(_, event_spec)| event_spec.sampled.is_none());
            for (event, event_spec) in counted {
                let instance = match spec.pattern.to_string().as_str() {
                    "{core}" => "cpu".to_owned(),
                    pattern => pattern
                        .replace("{socket}", "1")
                        .replace("{rc}", "2")
                        .replace("{unit}", "3"),
                };
                let mut text = event_spec
                    .perf
                    .replace("{pmu}", &instance)
                    .replace("{peer}", "0")
                    .replace("{part_mask}", "0x8");
                for (filter, value) in &spec.defaults {
                    text = text.replace(&format!("{{{filter}}}"), &format!("{value:#x}"));
                }
                let known = recognise(&text, spec).unwrap_or_else(|| panic!("{text}"));
                assert_eq!(known.event, *event, "{text}");
                assert_eq!(known.place.filters, spec.defaults, "{text}");
            }
        }
    }
}
