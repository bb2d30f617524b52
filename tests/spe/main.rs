//! Compares the SPE decoder with perf, an independent decoder, on random records: every field that
//! perf prints and every sample that perf makes must be what the decoder gives.
//!
//! perf decodes SPE on any machine. These tests know the texts of perf 6.1 to 6.12.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use probe_common::spe::{
    Events, InstructionAddress, LoadStoreKind, Operation, Origin, PhysicalAddress, Record, Records,
    Source, SourceTable, VirtualAddress,
};
use test_harness::perf;
use test_support::Random;

const NEOVERSE_N1: u64 = 0x413f_d0c1;

/// Fields of `perf_mem_data_src`. Which level perf gives to remote data has changed since 6.1.
const REMOTE: u64 = 1 << 37;
const LEVEL: u64 = 0x3fff << 5 | 0xf << 33;

/// Records of each layout; the two layouts together make more than 100,000.
const RECORDS: usize = 60_000;

fn perf_can_judge() -> bool {
    match perf::version() {
        Ok(version @ (6, 1..=12)) => {
            println!("judge: perf {version:?}");
            true
        }
        Ok(version) => {
            println!("skipped: perf {version:?} may print other texts than 6.1 to 6.12 do");
            false
        }
        Err(reason) => {
            println!("skipped: {reason}");
            false
        }
    }
}

fn run(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Records that each fill a cell of 64 bytes.
fn cells(random: &mut Random) -> Vec<u8> {
    (0..RECORDS)
        .flat_map(|_| {
            let mut fields = random.fields();
            random.cell(&mut fields)
        })
        .collect()
}

/// Records of any size, some with packets that the architecture does not define.
fn free(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..RECORDS {
        if random.below(4) == 0 {
            let header = [0xb5, 0xb6, 0xb7, 0x9b, 0x9d, 0x9f, 0x66, 0x67];
            let header = header[usize::try_from(random.below(8)).unwrap()];
            bytes.push(header);
            let size = 1 << ((header >> 4) & 3);
            bytes.extend(&random.word().to_le_bytes()[..size]);
        }
        if random.below(8) == 0 {
            // An address packet whose index exists only in the extended header.
            bytes.extend([0x21 + random.byte() % 3, 0xb0 | random.byte() & 7]);
            bytes.extend(random.word().to_le_bytes());
        }
        let fields = random.fields();
        bytes.extend(random.record(&fields));
    }
    bytes
}

#[test]
fn every_field_is_what_perf_report_prints() {
    if !perf_can_judge() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    for (name, make) in [
        ("cells", cells as fn(&mut Random) -> Vec<u8>),
        ("free", free),
    ] {
        let aux = make(&mut Random(2_026));
        perf::write_file(&path, &aux, NEOVERSE_N1).unwrap();
        let dump = run(&mut perf::report_dump(&path));
        let names_previous_target = dump.contains(" PBT 0x");
        let mut packets = perf::packets(&dump);
        let mut count = 0;
        for record in Records::new(&aux) {
            let record = record.unwrap();
            let mut theirs: Vec<String> = Vec::new();
            let mut unnamed = 0;
            for (_, text) in packets.by_ref() {
                if is_unnamed(text, names_previous_target) {
                    unnamed += 1;
                } else if text != "END" {
                    theirs.push(without_new_names(text));
                }
                if text == "END" || text.starts_with("TS ") {
                    break;
                }
            }
            let mut ours = texts(&record, names_previous_target);
            ours.sort();
            theirs.sort();
            assert_eq!(ours, theirs, "{name}, record {count}");
            assert_eq!(record.skipped(), unnamed, "{name}, record {count}");
            count += 1;
        }
        assert_eq!(packets.next(), None, "{name}: perf found more");
        assert_eq!(count, RECORDS, "{name}");
    }
}

/// Whether perf's text describes a packet whose index the architecture does not define.
fn is_unnamed(text: &str, names_previous_target: bool) -> bool {
    match text.split_once(' ') {
        Some(("ADDR", rest)) => names_previous_target || !rest.ends_with("(4)"),
        Some(("LAT", rest)) => rest.trim_end().parse::<u16>().is_ok(),
        Some(("CONTEXT", rest)) => rest.ends_with("el3") || rest.ends_with("el4"),
        _ => false,
    }
}

/// Removes the names of load and store subclasses that perf 6.1 lacks and later versions print.
fn without_new_names(text: &str) -> String {
    let mut text = text.to_owned();
    for name in [" MTE-TAG", " MEMCPY", " MEMSET"] {
        text = text.replace(name, "");
    }
    text
}

/// The texts that perf prints for a record, one per packet except END.
fn texts(record: &Record, names_previous_target: bool) -> Vec<String> {
    let mut texts = Vec::new();
    let mut push = |text: Option<String>| texts.extend(text);
    let instruction = |name: &str, a: InstructionAddress| {
        let address = a.address() & ((1 << 56) - 1);
        let level = a.level() as u8;
        let non_secure = a.raw() >> 63;
        format!("{name} 0x{address:x} el{level} ns={non_secure}")
    };
    push(record.pc().map(|a| instruction("PC", a)));
    push(record.branch_target().map(|a| instruction("TGT", a)));
    push(record.previous_target().map(|a| {
        if names_previous_target {
            instruction("PBT", a)
        } else {
            format!("ADDR 0x{:x} (4)", a.raw())
        }
    }));
    push(record.virtual_address().map(|a| {
        let address = u64::from(a.tag()) << 56 | a.address() & ((1 << 56) - 1);
        format!("VA 0x{address:x}")
    }));
    push(record.physical_address().map(|a| {
        let (ns, ch) = (a.raw() >> 63, u8::from(a.tag_checked()));
        let (address, tag) = (a.address(), a.tag());
        format!("PA 0x{address:x} ns={ns} ch={ch} pat={tag:x}")
    }));
    push(record.context_el1().map(|c| format!("CONTEXT 0x{c:x} el1")));
    push(record.context_el2().map(|c| format!("CONTEXT 0x{c:x} el2")));
    push(record.total_latency().map(|n| format!("LAT {n} TOT")));
    push(record.issue_latency().map(|n| format!("LAT {n} ISSUE")));
    push(
        record
            .translation_latency()
            .map(|n| format!("LAT {n} XLAT")),
    );
    push(record.events().map(events));
    push(record.operation().map(operation));
    push(
        record
            .data_source()
            .map(|n| format!("DATA-SOURCE {}", n.cast_signed())),
    );
    push(
        record
            .timestamp()
            .map(|n| format!("TS {}", n.cast_signed())),
    );
    texts
}

fn events(events: Events) -> String {
    let names = [
        (Events::EXCEPTION, " EXCEPTION-GEN"),
        (Events::RETIRED, " RETIRED"),
        (Events::L1D_ACCESS, " L1D-ACCESS"),
        (Events::L1D_REFILL, " L1D-REFILL"),
        (Events::TLB_ACCESS, " TLB-ACCESS"),
        (Events::TLB_WALK, " TLB-REFILL"),
        (Events::NOT_TAKEN, " NOT-TAKEN"),
        (Events::MISPREDICTED, " MISPRED"),
        (Events::LLC_ACCESS, " LLC-ACCESS"),
        (Events::LLC_MISS, " LLC-REFILL"),
        (Events::REMOTE_ACCESS, " REMOTE-ACCESS"),
        (Events::MISALIGNED, " ALIGNMENT"),
        (Events::PARTIAL_PREDICATE, " SVE-PARTIAL-PRED"),
        (Events::EMPTY_PREDICATE, " SVE-EMPTY-PRED"),
    ];
    let happened = names.iter().filter(|(event, _)| events.contains(*event));
    happened.fold("EV".to_owned(), |text, (_, name)| text + name)
}

fn operation(operation: Operation) -> String {
    let flag = |on: bool, text: &'static str| if on { text } else { "" };
    match operation {
        Operation::Other(op) => match op.sve_bits() {
            Some(bits) => format!(
                "SVE-OTHER EVLEN {bits}{}{}",
                flag(op.sve_floating_point(), " FP"),
                flag(op.sve_predicated(), " PRED")
            ),
            // perf reads bit 0 as a conditional select also in SME and undefined operations.
            None if op.raw() & 1 != 0 => "OTHER COND-SELECT".to_owned(),
            None => "OTHER INSN-OTHER".to_owned(),
        },
        Operation::LoadStore(op) => {
            let what = if op.is_store() { "ST" } else { "LD" };
            let kind = match op.kind() {
                LoadStoreKind::General => " GP-REG".to_owned(),
                LoadStoreKind::SimdFp => " SIMD-FP".to_owned(),
                LoadStoreKind::Unspecified => " UNSPEC-REG".to_owned(),
                LoadStoreKind::SystemRegister => " NV-SYSREG".to_owned(),
                LoadStoreKind::Ordered {
                    atomic,
                    exclusive,
                    acquire_release,
                } => [
                    flag(atomic, " AT"),
                    flag(exclusive, " EXCL"),
                    flag(acquire_release, " AR"),
                ]
                .concat(),
                LoadStoreKind::Sve {
                    bits,
                    predicated,
                    gather_scatter,
                } => format!(
                    " EVLEN {bits}{}{}",
                    flag(predicated, " PRED"),
                    flag(gather_scatter, " SG")
                ),
                // See `without_new_names`; the control stack is newer still.
                LoadStoreKind::Tag
                | LoadStoreKind::Copy
                | LoadStoreKind::Set
                | LoadStoreKind::ControlStack { .. }
                | LoadStoreKind::Unknown => String::new(),
            };
            format!("{what}{kind}")
        }
        Operation::Branch(op) => {
            // perf 6.1 knows an indirect branch only where no newer bit is set.
            let indirect = op.raw() & 0xfe == 2;
            format!(
                "B{}{}",
                flag(op.is_conditional(), " COND"),
                flag(indirect && op.is_indirect(), " IND")
            )
        }
        Operation::Reserved(payload) => format!("OP-TYPE 0x{payload:x} (3)"),
    }
}

#[test]
fn every_sample_is_what_perf_script_makes() {
    if !perf_can_judge() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    let mut random = Random(612);
    let mut aux = Vec::new();
    for _ in 0..RECORDS {
        let mut fields = random.fields();
        // What a load/store consumer sees most: sources of the common table.
        fields.data_source = random.maybe(|r| (0, r.below(16)));
        // perf drops a record whose operation class it does not know.
        fields.operation = fields.operation.filter(|(class, _)| *class != 3);
        aux.extend(random.cell(&mut fields));
    }
    perf::write_file(&path, &aux, NEOVERSE_N1).unwrap();
    let script = run(&mut perf::script(&path, "--itrace=i1i"));
    let mut samples = script.lines().map(sample);
    // perf makes a sample of its empty record before it decodes the first one.
    assert_eq!(samples.next(), Some([0; 5]));
    for (at, record) in Records::new(&aux).enumerate() {
        let record = record.unwrap();
        let ours = [
            record.virtual_address().map_or(0, VirtualAddress::address),
            data_src(&record),
            record.total_latency().map_or(0, u64::from),
            record.pc().map_or(0, InstructionAddress::address),
            record
                .physical_address()
                .map_or(0, PhysicalAddress::address),
        ];
        let mut theirs = samples.next();
        // Before "perf arm-spe: Fix load-store operation checking" perf takes SVE operations
        // and conditional branches for loads or stores: the bits of its own enum overlap.
        let is_access = matches!(record.operation(), None | Some(Operation::LoadStore(_)));
        if let Some(sample) = theirs.as_mut() {
            if !is_access {
                sample[1] = 0;
            } else if sample[1] & REMOTE != 0 {
                sample[1] &= !LEVEL;
            }
        }
        assert_eq!(theirs, Some(ours), "record {at}: {record:?}");
    }
    assert_eq!(samples.next(), None, "perf found more");
}

/// `instructions: ADDR DATA_SRC |text| WEIGHT IP PHYS`, numbers but the weight in hex.
fn sample(line: &str) -> [u64; 5] {
    let (_, columns) = line.split_once(':').unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let first: Vec<&str> = columns.split_whitespace().take(2).collect();
    let last: Vec<&str> = columns.split_whitespace().rev().take(3).collect();
    let ([addr, data_src], [phys, ip, weight]) = (&first[..], &last[..]) else {
        panic!("perf printed {line:?}");
    };
    let weight = weight.parse().unwrap();
    [hex(addr), hex(data_src), weight, hex(ip), hex(phys)]
}

/// `perf_mem_data_src` as perf fills it on a common core.
fn data_src(record: &Record) -> u64 {
    let Some(Operation::LoadStore(op)) = record.operation() else {
        return 0;
    };
    let events = record.events().unwrap_or_default();
    // Fields: operation, level, snoop, TLB, level number, remote, snoop extension.
    let build = |op: u64, level: u64, snoop: u64, number: u64, remote: u64, peer: u64| {
        let tlb = match (
            events.contains(Events::TLB_ACCESS),
            events.contains(Events::TLB_WALK),
        ) {
            (_, true) => 0x20 | 4,
            (true, false) => 0x20 | 2,
            (false, false) => 0,
        };
        op | level << 5 | snoop << 19 | tlb << 26 | number << 33 | remote << 37 | peer << 38
    };
    if op.is_store() {
        return build(4, 1, 1, 0xf, 0, 0);
    }
    // perf reads an absent packet as source 0, level 1.
    let source = record.data_source().unwrap_or(0);
    let table = SourceTable::for_midr(NEOVERSE_N1).unwrap();
    match table.load(source).map(|Origin { source, .. }| source) {
        Some(Source::L1d) => build(2, 0x0a, 2, 1, 0, 0),
        Some(Source::L2) => build(2, 0x22, 2, 2, 0, 0),
        Some(Source::PeerCore) => build(2, 0x22, 0, 2, 0, 2),
        Some(Source::LocalCluster | Source::PeerCluster) => build(2, 0x42, 0, 3, 0, 2),
        Some(Source::SystemCache) => build(2, 0x42, 4, 3, 0, 0),
        Some(Source::Remote) => build(2, 0, 0, 0, 1, 2),
        Some(Source::Dram) => build(2, 0x82, 2, 0xd, 0, 0),
        Some(
            Source::L3
            | Source::RemoteDram
            | Source::Device
            | Source::FillBuffer
            | Source::Cxl
            | Source::Pmem,
        ) => {
            panic!("the common table gave {source:#x} a place it does not have")
        }
        None => build(2, 0, 0, 0, 0, 0),
    }
}
