//! Reads the raw file with Debian's perf, which can decode SPE on every machine.

use std::{fs::File, path::Path, process::Command};

use perf_event_open_sys::bindings::{self, perf_event_attr};
use test_support::{Fields, Tree};

use super::{
    super::{
        EventDescription, RawFile, Sink as _,
        perf_data::TimeConversion,
        raw_file::RawHead,
        wire::{SAMPLE_TYPE, Stamp, build},
    },
    FakeKernel, Rounds, cell, test_buffer,
};
use crate::machine::{Machine, Roots};

/// PMU type of the SPE in the file: a value that occurs nowhere else in it.
const SPE: u32 = 77;

/// perf, if it can be run.
fn perf() -> Option<Command> {
    let version = Command::new("perf").arg("--version").output();
    if !version.is_ok_and(|output| output.status.success()) {
        println!("skipped: perf cannot be run; install linux-perf");
        return None;
    }
    let mut perf = Command::new("perf");
    perf.arg("--no-pager");
    Some(perf)
}

/// Runs perf. Returns its output and its warnings.
fn run(perf: &mut Command) -> (String, String) {
    let output = perf.output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    let (printed, warnings) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{perf:?}: {printed}{warnings}");
    (printed, warnings)
}

/// A machine with two nodes of two Neoverse N1 cores each, and its memory.
fn machine(sys: &Tree, proc: &Tree) -> Machine {
    for (file, text) in [("online", "0-3"), ("possible", "0-5")] {
        sys.write(&format!("devices/system/cpu/{file}"), text);
    }
    sys.write("devices/system/node/online", "0-1");
    sys.write("devices/system/memory/block_size_bytes", "8000000");
    for cpu in 0..4 {
        let cpu_dir = format!("devices/system/cpu/cpu{cpu}");
        let midr = "0x00000000413fd0c1";
        sys.write(&format!("{cpu_dir}/regs/identification/midr_el1"), midr);
        for (name, text) in [
            ("core_id", cpu.to_string()),
            ("physical_package_id", (cpu / 2).to_string()),
            ("package_cpus_list", ["0-1", "2-3"][cpu / 2].to_owned()),
            ("core_cpus_list", cpu.to_string()),
        ] {
            sys.write(&format!("{cpu_dir}/topology/{name}"), text);
        }
    }
    for (node, cpus) in [(0, "0-1"), (1, "2-3")] {
        let node_dir = format!("devices/system/node/node{node}");
        sys.write(&format!("{node_dir}/cpulist"), cpus);
        let meminfo = format!("Node {node} MemTotal: 4194304 kB\nNode {node} MemFree: 1024 kB\n");
        sys.write(&format!("{node_dir}/meminfo"), meminfo);
        for block in 32 * node..32 * (node + 1) {
            sys.dir(&format!("{node_dir}/memory{block}"));
        }
    }
    for (name, text) in [("osrelease", "6.12.0-test"), ("hostname", "node-7")] {
        proc.write(&format!("sys/kernel/{name}"), text);
    }
    proc.write("meminfo", "MemTotal:        8388608 kB\n");
    let roots = Roots {
        sys: sys.path().to_owned(),
        proc: proc.path().to_owned(),
        ..Roots::default()
    };
    Machine::at(roots)
}

/// The SPE event, and the event that follows tasks; both with `sample_id_all`. `ids` are the ids of
/// each event.
fn events(ids: [&[u64]; 2]) -> Vec<EventDescription> {
    let attr = |type_, config| perf_event_attr {
        type_,
        config,
        sample_type: SAMPLE_TYPE,
        ..Default::default()
    };
    let mut spe = attr(SPE, 1 | 3 << 33);
    spe.__bindgen_anon_1.sample_period = 1024;
    spe.set_disabled(1);
    let mut follow = attr(bindings::PERF_TYPE_SOFTWARE, 9);
    follow.set_comm(1);
    follow.set_task(1);
    follow.set_mmap(1);
    follow.set_mmap2(1);
    follow.set_mmap_data(1);
    let descriptions = [spe, follow].into_iter().zip(ids).map(|(mut attr, ids)| {
        attr.set_sample_id_all(1);
        EventDescription {
            attr,
            ids: ids.to_vec(),
        }
    });
    descriptions.collect()
}

fn begin(path: &Path, machine: &Machine) -> RawFile {
    let events = events([&[70], &[80]]);
    let names = ["arm_spe_0/load_filter=1/", "dummy:u"].map(str::to_owned);
    let raw = RawHead {
        pmu_type: SPE,
        per_thread: false,
        // A tick is 40 ns.
        time: Some(TimeConversion {
            zero: 1_000_000_000,
            mult: 40 << 20,
            shift: 20,
        }),
        events: names.into_iter().zip(events).collect(),
        command: &["pmuscope".to_owned(), "mem".to_owned(), "a b".to_owned()],
    };
    RawFile::with_head(File::create(path).unwrap(), machine, raw).unwrap()
}

/// ns of perf's clock at a count of the timer, by the time conversion of [`begin`].
const fn nanos(ticks: u64) -> u64 {
    1_000_000_000 + ticks * 40
}

/// Time, thread and address of each sample.
type ExpectedSamples = Vec<(u64, u32, u64)>;

/// Writes the records of two CPUs over 40 rounds into `raw`, with event ids added on the way.
/// Returns the samples.
fn record(raw: &RawFile) -> ExpectedSamples {
    let mut cpu_buffers = [test_buffer(0, 16384, 65536), test_buffer(1, 16384, 65536)];
    let mut kernels = [
        FakeKernel { head: 0, cpu: 0 },
        FakeKernel { head: 0, cpu: 1 },
    ];
    let mut rounds = Rounds::new(true);
    for tid in [50, 51] {
        let mut body = build::words32(&[50, tid]);
        body.extend(format!("task{tid}\0\0").as_bytes());
        let stamp = Stamp {
            pid: 50,
            tid,
            time: 1_000_000_000,
            cpu: 0,
        };
        let comm = build::record(bindings::PERF_RECORD_COMM, &body, stamp);
        assert!(cpu_buffers[0].buffer.ring.push(&comm));
    }
    let mut expected = Vec::new();
    let mut ticks = 25_000;
    // 40 rounds wrap the AUX area several times.
    for round in 0..40_u64 {
        for (cpu_buffer, kernel) in cpu_buffers.iter().zip(&mut kernels) {
            // One CPU is idle for some rounds.
            if kernel.cpu == 1 && round % 8 > 1 {
                continue;
            }
            let tid = 50 + u32::try_from(round % 2).unwrap();
            let mut cells = Vec::new();
            for _ in 0..80 {
                ticks += 7;
                let address = 0xffff_0000_u64 + ticks * 8;
                cells.extend(cell(Some(tid), address, ticks));
                expected.push((nanos(ticks), tid, address));
            }
            // perf's clock at the end of the AUX bytes.
            let stamp = Stamp {
                pid: 50,
                tid,
                time: nanos(ticks) + 1,
                cpu: kernel.cpu,
            };
            let record = kernel.announcement(&cells, 0, stamp);
            assert!(
                cpu_buffer.buffer.ring.push(&record) && cpu_buffer.buffer.ring.push_aux(&cells)
            );
            kernel.head += cells.len() as u64;
        }
        // The file lists the event id 7 of records from `build` only from here on.
        raw.events(events([&[70, 7], &[80, u64::MAX - round]]));
        rounds.round(&mut cpu_buffers, raw, round == 39);
    }
    assert_eq!(rounds.counts.samples, expected.len() as u64);
    expected.sort_unstable();
    expected
}

/// Time, thread and address of every sample, as perf decodes them.
fn run_script(mut perf: Command, path: &Path) -> (ExpectedSamples, String) {
    perf.args(["script", "--force", "--itrace=i1i", "--ns"]);
    perf.args(["-F", "comm,tid,time,addr", "-i"]).arg(path);
    let (printed, warnings) = run(&mut perf);
    let mut found: ExpectedSamples = printed.lines().filter_map(parse_sample).collect();
    found.sort_unstable();
    (found, warnings)
}

/// perf finds every sample of two CPUs, over several rounds.
#[test]
fn perf_reads_the_raw_file() {
    let (Some(scripted), Some(mut report)) = (perf(), perf()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let (sys, proc) = (Tree::new(), Tree::new());
    let raw = begin(&path, &machine(&sys, &proc));
    let expected = record(&raw);
    raw.finish().unwrap();
    let (found, warnings) = run_script(scripted, &path);
    assert_eq!(found.len(), expected.len(), "{warnings}");
    assert_eq!(found, expected);
    let (text, _) = run(report.args(["report", "-D", "-i"]).arg(&path));
    // One record in each of 40 rounds of CPU 0, and in 10 rounds of CPU 1.
    assert_eq!(text.matches("PERF_RECORD_AUX ").count(), 50);
    assert_eq!(text.matches("PERF_RECORD_FINISHED_ROUND").count(), 40);
}

/// The recorder is killed after a round, while it writes more data into the file.
#[test]
fn perf_reads_the_raw_file_of_a_killed_recording() {
    let Some(scripted) = perf() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let (sys, proc) = (Tree::new(), Tree::new());
    let raw = begin(&path, &machine(&sys, &proc));
    let expected = record(&raw);
    // The writer's buffer is smaller, so a part of these bytes reaches the file. The remaining
    // bytes are lost with the process.
    raw.ring(&[0x55; 100_000]).unwrap();
    // No destructor runs in a killed process.
    std::mem::forget(raw);
    let (found, warnings) = run_script(scripted, &path);
    assert_eq!(found, expected, "{warnings}");
}

/// Time in ns, thread and address in a line such as `task50    50    1.001000280: ffff...`.
fn parse_sample(line: &str) -> Option<(u64, u32, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [comm, tid, time, address] = words[..] else {
        return None;
    };
    let tid: u32 = tid.parse().ok()?;
    assert_eq!(comm, format!("task{tid}"));
    let (seconds, nanos) = time.trim_end_matches(':').split_once('.')?;
    let nanos: u64 = nanos.parse().ok()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    Some((
        seconds.parse::<u64>().ok()? * 1_000_000_000 + nanos,
        tid,
        address,
    ))
}

/// Two threads on two sockets write and read one cache line of a mapped file: `perf mem report`
/// names the file, and `perf c2c report` the line.
#[test]
fn perf_names_data_and_shared_lines() {
    let (Some(mut mem), Some(mut c2c), Some(mut header)) = (perf(), perf(), perf()) else {
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let (sys, proc) = (Tree::new(), Tree::new());
    let maps = "400000-402000 r-xp 00000000 fe:01 7 /bin/true\n\
                7f0000000000-7f0000010000 rw-s 00000000 fe:01 8 /data/shared table.db\n";
    proc.write("60/maps", maps);
    for tid in [60, 61] {
        proc.write(&format!("60/task/{tid}/comm"), "app\n");
    }
    let raw = begin(&path, &machine(&sys, &proc));
    raw.ring(&super::super::synthesized_events::synthesize(
        proc.path(),
        60,
        80,
    ))
    .unwrap();
    raw.events(events([&[70, 7], &[80]]));
    let mut cpu_buffers = [test_buffer(0, 16384, 65536), test_buffer(2, 16384, 65536)];
    let mut ticks = 25_000;
    for (tid, cpu_buffer) in [60, 61].into_iter().zip(&cpu_buffers) {
        let mut cells = Vec::new();
        for n in 0..100_u64 {
            ticks += 7;
            let store = n % 2 == 0;
            cells.extend(
                Fields {
                    pc: Some(0x40_1000 | 1 << 63),
                    context_el2: Some(tid),
                    operation: Some((1, store.into())),
                    // Event bits: retired, first-level access. Loads have the bit of a miss too,
                    // and a peer as data source.
                    events: Some((1, if store { 6 } else { 0xe })),
                    total_latency: Some(200),
                    virtual_address: Some(0x7f00_0000_1000 + 8 * u64::from(tid % 2)),
                    physical_address: Some(1 << 63 | 0x1000),
                    data_source: (!store).then_some((0, 9)),
                    timestamp: Some(ticks),
                    ..Fields::default()
                }
                .neoverse(),
            );
        }
        let kernel = FakeKernel {
            head: 0,
            cpu: cpu_buffer.buffer.cpu.unwrap(),
        };
        let stamp = Stamp {
            pid: 60,
            tid,
            time: nanos(ticks) + 1,
            cpu: kernel.cpu,
        };
        let record = kernel.announcement(&cells, 0, stamp);
        assert!(cpu_buffer.buffer.ring.push(&record) && cpu_buffer.buffer.ring.push_aux(&cells));
    }
    let mut rounds = Rounds::new(true);
    rounds.round(&mut cpu_buffers, &raw, true);
    assert_eq!(rounds.counts.samples, 200);
    raw.finish().unwrap();

    let (printed, warnings) = run(header
        .args(["report", "--header-only", "-I", "-i"])
        .arg(&path));
    println!("{printed}{warnings}");
    for line in [
        "# hostname : node-7",
        "# os release : 6.12.0-test",
        "# nrcpus online : 4",
        "# nrcpus avail : 6",
        "# cpuid : 0x00000000413fd0c1",
        "# total memory : 8388608 kB",
        "# cmdline : pmuscope mem a b",
        "# node0 meminfo  : total = 4194304 kB, free = 1024 kB",
        "# node1 cpu list : 2-3",
        "# memory nodes (nr 2, block size 0x8000000)",
    ] {
        assert!(printed.contains(line), "{line}: {printed}");
    }

    let sort = ["--sort", "mem,symbol_daddr,dso_daddr", "--stdio", "-i"];
    let (printed, warnings) = run(mem.args(["mem", "report", "--force"]).args(sort).arg(&path));
    println!("{printed}{warnings}");
    assert!(printed.contains("shared table.db"), "{printed}{warnings}");

    let c2c = c2c.args(["c2c", "report", "--stdio", "-d", "peer", "--force", "-i"]);
    let (printed, warnings) = run(c2c.arg(&path));
    println!("{printed}{warnings}");
    assert!(printed.contains("0x7f0000001000"), "{printed}{warnings}");
}
