//! Files of the kernel, and malformed ones.

use std::{fs, os::unix::fs::MetadataExt as _};

use proptest::prelude::*;
use test_support::Tree;

use super::{CgroupCounter::*, *};
use crate::{machine::Machine, sys::roots::Roots};

/// A reader of all counters of a machine with these mounts; `/cg` stands for their directory.
fn reader(tree: &Tree, mounts: &str) -> PressureReader {
    let at = tree.join("cg").display().to_string();
    tree.write("proc/self/mountinfo", mounts.replace("/cg", &at));
    PressureReader::new(&Machine::at(Roots::below(tree.path())), &CgroupCounter::ALL).unwrap()
}

const V2: &str = "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n";
const HYBRID: &str = "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n\
                      15 31 0:32 / /cg/cpu rw - cgroup cgroup rw,cpu,cpuacct\n";

fn read(reader: &PressureReader, path: &str) -> CgroupCounts {
    let directory = reader.cgroup2.directory(path).unwrap();
    let id = CgroupId(fs::metadata(directory).unwrap().ino());
    let reading = reader.read([(id, path)].into_iter());
    assert_eq!(reading.cgroups.len(), 1);
    reading.cgroups[0].1
}

const PRESSURE: &str = "some avg10=1.53 avg60=0.30 avg300=0.01 total=4072\n\
                        full avg10=0.00 avg60=0.00 avg300=0.00 total=17\n";

#[test]
fn all_files_of_cgroup2_are_read() {
    let tree = Tree::new();
    for resource in ["cpu", "memory", "io"] {
        tree.write(&format!("cg/a/{resource}.pressure"), PRESSURE);
        tree.write(&format!("proc/pressure/{resource}"), PRESSURE);
    }
    tree.write(
        "cg/a/cpu.stat",
        "usage_usec 9\nnr_periods 20\nnr_throttled 7\nthrottled_usec 654\n",
    );
    tree.write("cg/a/cpu.max", "50000 100000\n");
    tree.write(
        "cg/a/memory.events",
        "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
    );
    tree.write(
        "cg/a/memory.stat",
        "anon 1\nworkingset_refault_anon 8\nworkingset_refault_file 9\n",
    );
    tree.write(
        "cg/a/io.stat",
        "259:0 rbytes=4096 wbytes=512 rios=1 wios=2 dbytes=7 dios=7\n8:16\n\
         253:1 rbytes=4 wbytes=0 rios=3 wios=0 dbytes=0 dios=0\n",
    );
    let reader = reader(&tree, V2);
    let counts = read(&reader, "/a");
    let values = CgroupCounter::ALL.map(|counter| counts.get(counter).unwrap());
    assert_eq!(
        values,
        [
            4072, 17, 4072, 17, 4072, 17, 20, 7, 654_000, 2, 3, 4, 5, 17, 4100, 512, 4, 2
        ]
    );
    assert_eq!(counts.quota, Some(0.5));
    let machine = reader.read([].into_iter()).machine;
    assert_eq!(machine.get(CpuSome), Some(4072));
    assert_eq!(
        (machine.get(CpuFull), machine.get(IoFull)),
        (None, Some(17))
    );
}

#[test]
fn the_cpu_controller_of_v1_is_read() {
    let tree = Tree::new();
    tree.write("cg/unified/a/cpu.stat", "usage_usec 9\n");
    tree.write(
        "cg/cpu/a/cpu.stat",
        "nr_periods 20\nnr_throttled 7\nthrottled_time 654\n",
    );
    tree.write("cg/cpu/a/cpu.cfs_quota_us", "20000\n");
    tree.write("cg/cpu/a/cpu.cfs_period_us", "100000\n");
    let reader = reader(&tree, HYBRID);
    let counts = read(&reader, "/a");
    assert_eq!(counts.get(Throttled), Some(654));
    assert_eq!((counts.get(Periods), counts.quota), (Some(20), Some(0.2)));
    tree.write("cg/cpu/a/cpu.cfs_quota_us", "-1\n");
    assert_eq!(read(&reader, "/a").quota, None);
}

/// Counts that a kernel without a controller or without pressure does not report are not 0.
#[test]
fn missing_counts_are_unknown() {
    let tree = Tree::new();
    tree.write("cg/a/cpu.max", "max 100000\n");
    tree.write(
        "cg/a/cpu.pressure",
        "some total=\nfull avg10=0.00 total=x\n\n",
    );
    tree.write(
        "cg/a/cpu.stat",
        "nr_periods\nnr_throttled -1\nthrottled_usec 99999999999999999999\n",
    );
    let reader = reader(&tree, V2);
    assert_eq!(read(&reader, "/a"), CgroupCounts::default());
    // Another cgroup is at the path of the first, and none at that of the second.
    let reading = reader.read([(CgroupId(7), "/a"), (CgroupId(8), "/gone")].into_iter());
    assert!(reading.cgroups.is_empty());
    assert_eq!(reading.machine, CgroupCounts::default());
}

fn counts() -> impl Strategy<Value = CgroupCounts> {
    let count = prop_oneof![
        Just(None),
        any::<u64>().prop_map(Some),
        (0..9_u64).prop_map(Some)
    ];
    (prop::array::uniform18(count), prop::option::of(0.1..64.0))
        .prop_map(|(counts, quota)| CgroupCounts { counts, quota })
}

proptest! {
    /// The earlier count plus the difference is the later count, or the difference is unknown.
    #[test]
    fn a_difference_is_exact_or_unknown(earlier in counts(), later in counts()) {
        let added = later.since(&earlier);
        for counter in CgroupCounter::ALL {
            let [earlier, later] = [&earlier, &later].map(|it| it.get(counter));
            match (earlier, later) {
                (Some(earlier), Some(later)) if earlier <= later => {
                    prop_assert_eq!(added.get(counter), Some(later - earlier));
                }
                _ => prop_assert_eq!(added.get(counter), None),
            }
        }
        prop_assert_eq!(added.quota, later.quota);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(some|full| |=|[0-9]{1,22}|total|max|\n){0,12}") {
        let tree = Tree::new();
        for file in ["cpu.pressure", "cpu.stat", "cpu.max", "memory.events", "io.stat"] {
            tree.write(&format!("cg/a/{file}"), &text);
        }
        read(&reader(&tree, V2), "/a");
    }
}
