//! Feature sections of perf.data files: the machine and the recording (tools/perf/util/header.c).
//! `perf mem report` and `perf c2c report` need the NUMA nodes.

use std::{fs, path::Path};

use super::perf_data::{ATTR, feature, text, words, words32};
use crate::machine::{Machine, cpus::CpuList};

/// The sections that do not change during a recording, without those that this machine does not
/// provide.
pub(super) fn machine_sections(
    machine: &Machine,
    command: &[String],
    events: &[(String, [u8; ATTR])],
) -> Vec<(u32, Vec<u8>)> {
    let kernel = |name: &str| machine.proc(&format!("sys/kernel/{name}"));
    let version = format!("pmuscope {}", env!("CARGO_PKG_VERSION"));
    let midr = machine.midr(0).map(|midr| format!("{midr:#018x}"));
    let sections = [
        (feature::HOSTNAME, kernel("hostname").map(|it| text(&it))),
        (feature::OSRELEASE, kernel("osrelease").map(|it| text(&it))),
        (feature::VERSION, Some(text(&version))),
        (feature::ARCH, Some(text(std::env::consts::ARCH))),
        (feature::NRCPUS, cpus(machine)),
        // perf decodes data sources by this.
        (feature::CPUID, Some(text(&midr.unwrap_or_default()))),
        (feature::TOTAL_MEM, total_memory(machine)),
        (feature::CMDLINE, Some(strings(command))),
        (feature::EVENT_DESC, Some(descriptions(events))),
        (feature::CPU_TOPOLOGY, cpu_topology(machine)),
        (feature::NUMA_TOPOLOGY, nodes(machine)),
        (feature::PMU_MAPPINGS, pmus(machine)),
        (feature::MEM_TOPOLOGY, memory(machine)),
    ];
    let present = |(bit, section): (u32, Option<Vec<u8>>)| Some((bit, section?));
    sections.into_iter().filter_map(present).collect()
}

/// Encodes a number in 32 bits.
fn encoded_count(number: usize) -> Vec<u8> {
    words32(&[u32::try_from(number).unwrap_or(u32::MAX)])
}

/// Encodes a list of strings: their number, then each string.
fn strings(strings: &[String]) -> Vec<u8> {
    let mut section = encoded_count(strings.len());
    section.extend(strings.iter().flat_map(|string| text(string)));
    section
}

/// The length of perf's tables of CPUs: the highest number of a possible CPU, plus one.
fn cpu_table_length(machine: &Machine) -> Option<u32> {
    Some(machine.possible().ok()?.last()? + 1)
}

fn cpus(machine: &Machine) -> Option<Vec<u8>> {
    let online = u32::try_from(machine.online().ok()?.len()).ok()?;
    Some(words32(&[cpu_table_length(machine)?, online]))
}

/// The field `name` of `/proc/meminfo`, or of a NUMA node's meminfo, in kB.
fn kilobytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.split_once(name))?.1;
    line.split_whitespace().next()?.parse().ok()
}

fn total_memory(machine: &Machine) -> Option<Vec<u8>> {
    let meminfo = machine.proc("meminfo")?;
    Some(words(&[kilobytes(&meminfo, "MemTotal:")?]))
}

fn descriptions(events: &[(String, [u8; ATTR])]) -> Vec<u8> {
    let mut section = encoded_count(events.len());
    section.extend(encoded_count(ATTR));
    for (name, attr) in events {
        section.extend(attr);
        // No ids here, since the file's attributes have them.
        section.extend(encoded_count(0));
        section.extend(text(name));
    }
    section
}

/// The CPU lists of packages, then of cores, then core and package of each CPU.
fn cpu_topology(machine: &Machine) -> Option<Vec<u8>> {
    let topology =
        |cpu: u32, name: &str| machine.sys(&format!("devices/system/cpu/cpu{cpu}/topology/{name}"));
    let online = machine.online().ok()?;
    let mut section = Vec::new();
    for name in ["package_cpus_list", "core_cpus_list"] {
        let mut lists: Vec<String> = online
            .iter()
            .filter_map(|cpu| topology(cpu, name))
            .collect();
        lists.dedup();
        lists.sort_unstable();
        lists.dedup();
        section.extend(strings(&lists));
    }
    for cpu in 0..cpu_table_length(machine)? {
        let number = |name| topology(cpu, name).and_then(|text| text.parse::<i32>().ok());
        // -1 for an offline CPU, as in perf's own files.
        let [core, package] = ["core_id", "physical_package_id"].map(number);
        let [core, package] = [core, package].map(|it| it.unwrap_or(-1).cast_unsigned());
        section.extend(words32(&[core, package]));
    }
    Some(section)
}

/// The NUMA nodes.
fn node_numbers(machine: &Machine) -> Option<CpuList> {
    let list = machine.sys("devices/system/node/online")?;
    list.parse().ok()
}

fn nodes(machine: &Machine) -> Option<Vec<u8>> {
    let nodes = node_numbers(machine)?;
    let mut section = encoded_count(nodes.len());
    for node in nodes.iter() {
        let file = |name: &str| machine.sys(&format!("devices/system/node/node{node}/{name}"));
        let meminfo = file("meminfo").unwrap_or_default();
        let [total, free] =
            ["MemTotal:", "MemFree:"].map(|name| kilobytes(&meminfo, name).unwrap_or(0));
        section.extend(words32(&[node]));
        section.extend(words(&[total, free]));
        section.extend(text(&file("cpulist").unwrap_or_default()));
    }
    Some(section)
}

fn pmus(machine: &Machine) -> Option<Vec<u8>> {
    let pmus: Vec<_> = machine.pmus().ok()?.iter().collect();
    let mut section = encoded_count(pmus.len());
    for pmu in pmus {
        section.extend(words32(&[pmu.type_]));
        section.extend(text(&pmu.name));
    }
    Some(section)
}

/// Blocks of physical memory of each node; None for kernels without memory hotplug, which do not
/// list them.
fn memory(machine: &Machine) -> Option<Vec<u8>> {
    let size = machine.sys("devices/system/memory/block_size_bytes")?;
    let block = u64::from_str_radix(&size, 16).ok()?;
    let nodes: Vec<(u32, Vec<usize>)> = node_numbers(machine)?
        .iter()
        .map(|node| (node, blocks(machine.sysfs(), node)))
        .filter(|(_, blocks)| !blocks.is_empty())
        .collect();
    let mut section = words(&[1, block, nodes.len() as u64]);
    for (node, blocks) in nodes {
        let size = blocks.iter().max().map_or(0, |last| last + 1);
        let mut bits = vec![0_u64; size.div_ceil(64)];
        for block in blocks {
            bits[block / 64] |= 1 << (block % 64);
        }
        section.extend(words(&[node.into(), size as u64, size as u64]));
        section.extend(words(&bits));
    }
    Some(section)
}

/// Numbers of the memory blocks of a node.
fn blocks(sysfs: &Path, node: u32) -> Vec<usize> {
    let directory = sysfs.join(format!("devices/system/node/node{node}"));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("memory")?.parse().ok()
    };
    // Limits block numbers, since the bitmap has a bit for each number up to the largest.
    entries
        .filter_map(number)
        .filter(|block| *block < 1 << 24)
        .collect()
}

/// An entry of the build-id section, for a user-space file or for the kernel.
pub(super) fn build_id(path: &str, id: &[u8], kernel: bool) -> Vec<u8> {
    /// `PERF_RECORD_HEADER_BUILD_ID`
    const TYPE: u32 = 67;
    /// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the entry has the size of its id.
    const SIZED: u32 = 1 << 15;
    let size = 36 + (path.len() + 1).next_multiple_of(64);
    let misc = SIZED | if kernel { 1 } else { 2 };
    let mut entry = words32(&[TYPE, misc | u32::try_from(size).unwrap_or(0) << 16]);
    // The pid of a virtual machine; -1 for the host.
    entry.extend(words32(&[u32::MAX]));
    let mut field = [0; 24];
    let length = id.len().min(20);
    field[..length].copy_from_slice(&id[..length]);
    field[20] = u8::try_from(length).unwrap_or(0);
    entry.extend(field);
    entry.extend(path.as_bytes());
    entry.resize(size, 0);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_field_of_a_build_id_entry_is_its_length() {
        for path in ["/a", &"x".repeat(63), &"x".repeat(64)] {
            let entry = build_id(path, &[7; 20], false);
            assert_eq!(entry.len() % 64, 36);
            let size = u16::from_ne_bytes([entry[6], entry[7]]);
            assert_eq!(usize::from(size), entry.len());
            assert_eq!((entry[32], entry.last()), (20, Some(&0)));
        }
    }

    /// Two nodes, one without memory.
    #[test]
    fn memory_blocks_of_nodes_are_bitmaps() {
        use test_support::Tree;

        use crate::machine::Roots;
        let sys = Tree::new();
        sys.write("devices/system/memory/block_size_bytes", "8000000\n");
        sys.write("devices/system/node/online", "0-1\n");
        for block in [0, 1, 65] {
            sys.dir(&format!("devices/system/node/node0/memory{block}"));
        }
        sys.dir("devices/system/node/node0/memory_failure");
        sys.dir("devices/system/node/node1");
        let roots = Roots {
            sys: sys.path().to_owned(),
            ..Roots::default()
        };
        let section = memory(&Machine::at(roots)).unwrap();
        // Version, block size, number of nodes; then node 0, the size of its bitmap in bits
        // (twice), and the bitmap.
        assert_eq!(section, words(&[1, 0x800_0000, 1, 0, 66, 66, 3, 2]));
    }
}
