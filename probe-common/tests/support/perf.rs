//! perf as a judge: a perf.data file around AUX bytes, and what perf says about them.

use std::{
    fs,
    io::{self, BufWriter, Write as _},
    path::Path,
    process::Command,
};

/// The PMU type in the file; nothing else here has that number.
const PMU_TYPE: u32 = 77;
const EVENT_ID: u64 = 5;

const RECORD_AUXTRACE_INFO: u32 = 70;
const RECORD_AUXTRACE: u32 = 71;
const AUXTRACE_ARM_SPE: u32 = 4;
const FEATURE_ARCH: u32 = 6;
const FEATURE_CPUID: u32 = 9;

const HEADER: u64 = 104;
/// `struct perf_event_attr` as of Linux 5.13 to 6.12.
const ATTR: u64 = 128;
const SECTION: u64 = 16;

/// Writes the file that `perf record -e arm_spe_0//` would have written for `aux`,
/// recorded on a core with `midr`, without time.
pub fn write_file(path: &Path, aux: &[u8], midr: u64) -> io::Result<()> {
    let mut file = BufWriter::new(fs::File::create(path)?);
    let attrs = HEADER;
    let ids = attrs + ATTR + SECTION;
    let data = ids + 8;
    let mut events = Vec::new();

    // PERF_RECORD_AUXTRACE_INFO: type, reserved, the PMU's type, "per CPU maps".
    record(&mut events, RECORD_AUXTRACE_INFO, 32);
    words32(&mut events, &[AUXTRACE_ARM_SPE, 0]);
    words(&mut events, &[u64::from(PMU_TYPE), 1]);
    // PERF_RECORD_AUXTRACE: size, offset, reference, then index, tid, cpu, reserved; the bytes follow.
    record(&mut events, RECORD_AUXTRACE, 48);
    words(&mut events, &[aux.len() as u64, 0, 0]);
    words32(&mut events, &[0, u32::MAX, 0, 0]);
    let data_size = (events.len() + aux.len()) as u64;

    let mut header = b"PERFILE2".to_vec();
    words(&mut header, &[HEADER, ATTR + SECTION]);
    words(&mut header, &[attrs, ATTR + SECTION, data, data_size, 0, 0]);
    words(
        &mut header,
        &[1 << FEATURE_ARCH | 1 << FEATURE_CPUID, 0, 0, 0],
    );
    // perf_event_attr: type, size, config, period, sample type (IP, TID, ADDR,
    // CPU, WEIGHT, DATA_SRC, IDENTIFIER, PHYS_ADDR), read format, flags (disabled, sample_id_all).
    let mut attr = Vec::new();
    words32(&mut attr, &[PMU_TYPE, 128]);
    let sample_type = [0, 1, 3, 7, 14, 15, 16, 19]
        .iter()
        .fold(0, |bits, bit| bits | 1u64 << bit);
    words(&mut attr, &[0, 1024, sample_type, 0, 1 | 1 << 18]);
    attr.resize(128, 0);
    words(&mut attr, &[ids, 8]);
    words(&mut attr, &[EVENT_ID]);

    file.write_all(&header)?;
    file.write_all(&attr)?;
    file.write_all(&events)?;
    file.write_all(aux)?;
    let features = [text("aarch64"), text(&format!("0x{midr:016x}"))];
    let mut at = data + data_size + SECTION * features.len() as u64;
    for feature in &features {
        let size = feature.len() as u64;
        let mut section = Vec::new();
        words(&mut section, &[at, size]);
        file.write_all(&section)?;
        at += size;
    }
    for feature in &features {
        file.write_all(feature)?;
    }
    file.flush()
}

/// A string feature: its length, then itself, padded with zeros.
fn text(value: &str) -> Vec<u8> {
    let size = (value.len() + 1).next_multiple_of(64);
    let mut bytes = u32::try_from(size).unwrap().to_le_bytes().to_vec();
    bytes.extend(value.as_bytes());
    bytes.resize(4 + size, 0);
    bytes
}

fn record(bytes: &mut Vec<u8>, kind: u32, size: u16) {
    words32(bytes, &[kind]);
    bytes.extend([0, 0]);
    bytes.extend(size.to_le_bytes());
}

fn words(bytes: &mut Vec<u8>, words: &[u64]) {
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

fn words32(bytes: &mut Vec<u8>, words: &[u32]) {
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// perf's version as (major, minor), or why it cannot judge.
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

/// The packets that perf prints for SPE data: place and description, padding left out.
pub fn packets(dump: &str) -> impl Iterator<Item = (usize, &str)> {
    // ".  0000abcd: " (raw events have four digits) and at least sixteen times three characters of bytes.
    dump.lines().filter_map(|line| {
        let line = line.strip_prefix(".  ")?;
        let (place, rest) = line.split_once(": ")?;
        if place.len() < 8 {
            return None;
        }
        let place = usize::from_str_radix(place, 16).ok()?;
        let description = rest.get(48..)?.trim_start();
        (description != "PAD").then_some((place, description))
    })
}
