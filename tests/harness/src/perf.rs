//! perf as a reference: writes a perf.data file around AUX bytes, and reads perf's output for it.

use std::{
    fs,
    io::{self, BufWriter},
    path::Path,
    process::Command,
};

use probe_user::samples::perf_data::{
    ATTR, FileEvent, FileHead, PerfData, SPE_SAMPLE, feature, text,
};

/// The PMU type in the file: an arbitrary number.
const PMU_TYPE: u32 = 77;

/// Writes the file that `perf record -e arm_spe_0//` would have written for `aux`, recorded on a
/// core with `midr`, without time.
pub fn write_file(path: &Path, aux: &[u8], midr: u64) -> io::Result<()> {
    let file = BufWriter::new(fs::File::create(path)?);
    // perf_event_attr: type, size, config, period, sample type (with TID, CPU and IDENTIFIER), read
    // format, flags (disabled, sample_id_all).
    let mut attr = Vec::new();
    for word in [PMU_TYPE, 128] {
        attr.extend(word.to_le_bytes());
    }
    let sample_type = SPE_SAMPLE & !(1 << 8) | 1 << 1 | 1 << 7 | 1 << 16;
    for word in [0, 1024, sample_type, 0, 1 | 1 << 18] {
        attr.extend(word.to_le_bytes());
    }
    attr.resize(ATTR, 0);
    let event = FileEvent {
        attr: attr.try_into().unwrap(),
        ids: vec![5],
    };
    let head = FileHead {
        pmu_type: PMU_TYPE,
        per_cpu: true,
        time: None,
        events: vec![event],
        features: vec![
            (feature::ARCH, text("aarch64")),
            (feature::CPUID, text(&format!("0x{midr:016x}"))),
        ],
    };
    let mut file = PerfData::begin(file, head)?;
    file.aux(0, 0, None, Some(0), aux)?;
    file.finish().map(drop)
}

/// perf's version as (major, minor), or why perf cannot be used.
pub fn version() -> Result<(u32, u32), String> {
    let output = Command::new("perf")
        .arg("--version")
        .output()
        .map_err(|e| format!("perf cannot be run: {e}; install linux-perf"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text
        .trim()
        .trim_start_matches("perf version ")
        .split('.')
        .map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(format!("perf states no version: {text:?}")),
    }
}

/// `perf report -D` on the file.
pub fn report_dump(path: &Path) -> Command {
    let mut perf = Command::new("perf");
    perf.args(["--no-pager", "report", "-D", "-i"]).arg(path);
    perf
}

/// `perf script` on the file: one line per memory record and per instruction.
pub fn script(path: &Path, itrace: &str) -> Command {
    let mut perf = Command::new("perf");
    perf.args([
        "--no-pager",
        "script",
        "--force",
        itrace,
        "-F",
        "event,ip,addr,phys_addr,weight,data_src",
        "-i",
    ])
    .arg(path);
    perf
}

/// The packets that perf prints for SPE data: offset and description, without padding.
pub fn packets(dump: &str) -> impl Iterator<Item = (usize, &str)> {
    // A line has ".  0000abcd: ", sixteen columns of three characters for bytes, and the
    // description. Lines of raw events have an offset of four digits.
    dump.lines().filter_map(|line| {
        let line = line.strip_prefix(".  ")?;
        let (offset, rest) = line.split_once(": ")?;
        if offset.len() < 8 {
            return None;
        }
        let offset = usize::from_str_radix(offset, 16).ok()?;
        let description = rest.get(48..)?.trim_start();
        (description != "PAD").then_some((offset, description))
    })
}
