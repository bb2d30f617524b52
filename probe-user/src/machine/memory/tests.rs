//! Files of the kernel, and malformed ones.

use std::{fs, os::unix::fs::MetadataExt as _};

use test_support::Tree;

use super::*;
use crate::sys::roots::Roots;

/// A machine with these mounts; `/cg` stands for their directory.
fn machine(tree: &Tree, mounts: &str) -> Machine {
    let at = tree.join("cg").display().to_string();
    let mounts = mounts.replace("/cg", &at);
    tree.write("proc/self/mountinfo", mounts);
    tree.write(
        "proc/meminfo",
        "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 400 kB\n",
    );
    Machine::at(Roots::below(tree.path()))
}

const V2: &str = "41 31 0:38 / /cg rw - cgroup2 cgroup2 rw\n";
const HYBRID: &str = "41 31 0:38 / /cg/unified rw - cgroup2 cgroup2 rw\n\
                      15 31 0:32 / /cg/memory rw - cgroup cgroup rw,memory\n";

/// Reads these cgroups, in their order.
fn read_cgroups(reader: &MemoryReader, paths: &[&str]) -> MemoryReading {
    let Subjects::Cgroups { cgroup2, .. } = &reader.subjects else {
        unreachable!("it reads cgroups")
    };
    let metadata = |path: &str| fs::metadata(cgroup2.directory(path)?).ok();
    // 7 is the id of no directory.
    let id = |path| CgroupId(metadata(path).map_or(7, |directory| directory.ino()));
    let ids: Vec<CgroupId> = paths.iter().map(|path| id(*path)).collect();
    let cgroups = ids.iter().copied().zip(paths.iter().copied());
    let mut read = reader.read(cgroups, [].into_iter(), None);
    // Inode numbers come in any order.
    let position = |holder| {
        ids.iter()
            .position(|id| MemoryHolder::Cgroup(*id) == holder)
    };
    read.held.sort_by_key(|(holder, _)| position(*holder));
    read
}

#[test]
fn the_lowest_limit_of_the_ancestors_applies() {
    let tree = Tree::new();
    let machine = machine(&tree, V2);
    tree.write("cg/cgroup.controllers", "cpu io memory pids\n");
    tree.write("cg/pod/memory.max", "4096\n");
    for (name, limit) in [("a", "max"), ("b", "8192"), ("c", "1024")] {
        tree.write(&format!("cg/pod/{name}/memory.max"), format!("{limit}\n"));
        tree.write(&format!("cg/pod/{name}/memory.current"), "512\n");
    }
    tree.write(
        "cg/pod/a/memory.stat",
        "anon 100\nfile 200\nshmem 50\nanon_thp 64\nfile_thp 16\nshmem_thp 8\n",
    );
    tree.write("cg/pod/a/memory.peak", "600\n");
    let reader = MemoryReader::for_cgroups(&machine).unwrap();
    let read = read_cgroups(
        &reader,
        &["/pod/a", "/pod/b", "/pod/c", "/pod/gone", "/pod"],
    );
    assert_eq!(read.pages.unwrap().huge, None);
    tree.write(
        "sys/kernel/mm/transparent_hugepage/hpage_pmd_size",
        "2097152\n",
    );
    let pages = read_cgroups(&MemoryReader::for_cgroups(&machine).unwrap(), &[]).pages;
    assert_eq!(pages.unwrap().huge, Some(2 << 20));
    let limits: Vec<_> = read.held.iter().map(|(_, held)| held.limit).collect();
    assert_eq!(limits, [Some(4096), Some(4096), Some(1024)]);
    assert_eq!(
        read.held[0].1,
        MemoryUse {
            used: 512,
            anon: Some(100),
            file: Some(200),
            huge: Some(88),
            peak: Some(600),
            limit: Some(4096),
            age: None,
        }
    );
    // Before Linux 5.19 there is no peak; a missing number is None and not 0.
    assert_eq!((read.held[1].1.peak, read.held[1].1.anon), (None, None));
    let machine = read.machine.unwrap();
    assert_eq!(machine.used, 600 * 1024);
    assert_eq!(machine.limit, Some(1000 * 1024));
    fs::remove_file(tree.join("proc/meminfo")).unwrap();
    assert_eq!(read_cgroups(&reader, &[]).machine, None);
}

/// The numbers are from a cgroup of a real machine with v1.
#[test]
fn v1_is_read_if_it_has_the_memory_controller() {
    let tree = Tree::new();
    let machine = machine(&tree, HYBRID);
    tree.write("cg/unified/cgroup.controllers", "hugetlb\n");
    tree.write("cg/memory/box/memory.usage_in_bytes", "582504448\n");
    tree.write("cg/memory/box/memory.max_usage_in_bytes", "9021157376\n");
    let stat = "cache 1\nrss 2\nrss_huge 3\nhierarchical_memory_limit 9223372036854771712\n\
                total_cache 574971904\ntotal_rss 2027520\ntotal_rss_huge 0\n";
    tree.write("cg/memory/box/memory.stat", stat);
    fs::create_dir_all(tree.join("cg/unified/box")).unwrap();
    let reader = MemoryReader::for_cgroups(&machine).unwrap();
    let read = read_cgroups(&reader, &["/box", "/elsewhere"]);
    let expected = MemoryUse {
        used: 582_504_448,
        anon: Some(2_027_520),
        file: Some(574_971_904),
        huge: Some(0),
        peak: Some(9_021_157_376),
        limit: None,
        age: None,
    };
    assert_eq!(read.held.len(), 1);
    assert_eq!(read.held[0].1, expected);
}

/// The old id of a restarted container is known for some more pulls, while its path is already the
/// path of the new cgroup.
#[test]
fn a_removed_cgroup_does_not_get_the_memory_of_its_successor() {
    for mounts in [V2, HYBRID] {
        let tree = Tree::new();
        let machine = machine(&tree, mounts);
        let (cgroup2, controllers) = match mounts {
            V2 => ("cg", "memory\n"),
            _ => ("cg/unified", "hugetlb\n"),
        };
        tree.write(&format!("{cgroup2}/cgroup.controllers"), controllers);
        fs::create_dir_all(tree.join(cgroup2).join("box")).unwrap();
        tree.write("cg/box/memory.current", "512\n");
        tree.write("cg/memory/box/memory.usage_in_bytes", "512\n");
        let reader = MemoryReader::for_cgroups(&machine).unwrap();
        let id = CgroupId(fs::metadata(tree.join(cgroup2).join("box")).unwrap().ino());
        let gone = CgroupId(id.0 - 1);
        let both = [(gone, "/box"), (id, "/box")];
        let read = reader.read(both.into_iter(), [].into_iter(), None);
        let held: Vec<_> = read
            .held
            .iter()
            .map(|(holder, held)| (*holder, held.used))
            .collect();
        assert_eq!(held, [(MemoryHolder::Cgroup(id), 512)], "{mounts}");
    }
}

#[test]
fn without_a_controller_there_is_an_error() {
    let tree = Tree::new();
    let machine = machine(&tree, V2);
    tree.write("cg/cgroup.controllers", "cpu\n");
    let error = MemoryReader::for_cgroups(&machine).unwrap_err().to_string();
    assert!(error.contains("cgroup_enable=memory"), "{error}");
}

#[test]
fn processes_are_read_only_in_the_initial_pid_namespace() {
    let tree = Tree::new();
    let machine = machine(&tree, V2);
    fs::create_dir_all(tree.join("proc/self/ns")).unwrap();
    let link = tree.join("proc/self/ns/pid");
    std::os::unix::fs::symlink("pid:[4026532001]", &link).unwrap();
    let error = MemoryReader::for_processes(&machine)
        .unwrap_err()
        .to_string();
    assert!(error.contains("hostPID: true"), "{error}");
    fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink("pid:[4026531836]", &link).unwrap();
    let status = "Name:\tVmRSS: 9 kB\nVmHWM:\t    3000 kB\nVmRSS:\t    2000 kB\n\
                  RssAnon:\t     500 kB\nRssFile:\t    1400 kB\nRssShmem:\t     100 kB\n";
    tree.write("proc/5/status", status);
    tree.write("proc/2/status", "Name:\tkthreadd\n");
    tree.write(
        "proc/5/stat",
        format!("5 (a) b) S {} 100 0 1", "0 ".repeat(18).trim_end()),
    );
    let reader = MemoryReader::for_processes(&machine).unwrap();
    let read = reader.read([].into_iter(), [2, 5, 9].into_iter(), None);
    let expected = MemoryUse {
        used: 2_048_000,
        anon: Some(512_000),
        file: Some(1_536_000),
        huge: None,
        peak: Some(3_072_000),
        limit: None,
        age: read.held[0].1.age,
    };
    assert_eq!(read.held, [(MemoryHolder::Process(5), expected)]);
    assert!(expected.age.unwrap() > Duration::ZERO);
}

/// The processes of a command are one holder, among processes as among cgroups. The peak is the
/// largest peak of any of these processes, ended ones included.
#[test]
fn the_processes_of_a_command_are_one_holder() {
    let tree = Tree::new();
    let machine = machine(&tree, V2);
    tree.write("cg/cgroup.controllers", "memory\n");
    fs::create_dir_all(tree.join("proc/self/ns")).unwrap();
    let link = tree.join("proc/self/ns/pid");
    std::os::unix::fs::symlink("pid:[4026531836]", link).unwrap();
    for (id, peak, used) in [(5, 30, 20), (6, 8, 8), (7, 1, 1)] {
        let status =
            format!("VmHWM:\t{peak} kB\nVmRSS:\t{used} kB\nRssAnon:\t{used} kB\nRssFile:\t0 kB\n");
        tree.write(&format!("proc/{id}/status"), status);
    }
    let readers = [
        MemoryReader::for_processes(&machine).unwrap(),
        MemoryReader::for_cgroups(&machine).unwrap(),
    ];
    let read = |reader: &MemoryReader, running: &[u32], largest_ended| {
        let command = CommandProcesses {
            running: running.iter().copied().collect(),
            largest_ended,
        };
        let read = reader.read([].into_iter(), [5, 6, 7].into_iter(), Some(&command));
        let (of_command, others): (Vec<_>, Vec<_>) =
            { read.held.into_iter() }.partition(|(holder, _)| *holder == MemoryHolder::Command);
        let of_command = of_command.first().map(|(_, held)| *held);
        let kib = |bytes: Option<u64>| bytes.map(|bytes| bytes / 1024);
        let of_command = of_command.map(|it| [kib(Some(it.used)), kib(it.anon), kib(it.peak)]);
        (of_command, others.len())
    };
    for (reader, others) in readers.iter().zip([[1, 3, 3], [0; 3]]) {
        let both = [Some(28), Some(28), Some(30)];
        assert_eq!(read(reader, &[5, 6], None), (Some(both), others[0]));
        let ended = [Some(0), Some(0), Some(90)];
        assert_eq!(read(reader, &[], Some(90 * 1024)), (Some(ended), others[1]));
        // The only process ended before the first reading.
        assert_eq!(read(reader, &[9], None), (None, others[2]));
    }
}

/// This process' own status, as the kernel writes it.
#[test]
fn the_status_of_this_process_is_parsed() {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let held = parse_status(&status).unwrap();
    let (anon, file) = (held.anon.unwrap(), held.file.unwrap());
    assert_eq!(held.used, anon + file);
    assert!(held.peak.unwrap() >= held.used && anon > 0 && file > 0);
    let machine = parse_meminfo(&fs::read_to_string("/proc/meminfo").unwrap()).unwrap();
    assert!(machine.used < machine.limit.unwrap());
}

#[test]
fn a_value_that_is_no_number_is_unknown() {
    for text in [
        "",
        "VmRSS:",
        "VmRSS: kB",
        "VmRSS: -1 kB",
        "VmRSS: 1",
        "VmRSS: 18446744073709551615 kB",
    ] {
        assert_eq!(parse_status(text), None, "{text}");
    }
    assert_eq!(field("anon\nanon x\nanonymous 1\n", "anon"), None);
    assert_eq!(parse_meminfo("MemTotal: 1 kB\nMemAvailable: 2 kB\n"), None);
}
