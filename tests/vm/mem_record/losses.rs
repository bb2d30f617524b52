//! Lost, damaged and invalid records are counted, and no others are missing.

use parquet::record::Field;

use crate::{
    mem_support::{Recording, assert_exact, samples, spe_machine, stat, truth},
    testpmu::TestPmu,
};

/// Such samples are in the file as the core wrote them, and have a separate count.
#[test]
fn samples_with_an_address_or_time_of_zero_are_kept_and_counted() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe invalid_every 7");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 65536", "burn 0 1000");
    let zero = |column: &str| {
        let rows = rows.rows.iter();
        rows.filter(|row| row[column] == Field::ULong(0)).count() as u64
    };
    let (addresses, times) = (zero("va"), zero("ticks"));
    let zeroed = addresses + times;
    println!("{zeroed} of {} samples", rows.rows.len());
    assert!(addresses > 10 && times > 10);
    assert_eq!(zeroed, stat("invalid"));
    assert_eq!(zeroed, rows.count("invalid_samples"));
}

/// With the smallest buffers sampling often stops, but no written record is lost.
#[test]
fn small_buffers_lose_no_record_that_was_written() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let _pmu = TestPmu::load("set=spe");
    let page = rustix::param::page_size();
    let recording = Recording::new();
    let options = format!("--period 1024 --filter= --ring {page} --aux {}", 2 * page);
    let (rows, _) = recording.load(&options, "forks 4 60");
    assert_exact(&rows);
    assert!(stat("no_space") > 0, "the buffers were never full");
    assert!(rows.count("aux_buffers_truncated") > 0);
    assert!(rows.count("restarts") > 0);
}

/// Flags of the core are counted by name.
#[test]
fn collisions_and_lost_data_are_counted() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe collision_every 2");
    pmu.control("spe loss_every 3");
    let page = rustix::param::page_size();
    let recording = Recording::new();
    let options = format!("--period 2048 --filter= --aux {}", 4 * page);
    let (rows, output) = recording.load(&options, "burn 0 1000");
    assert_exact(&rows);
    let (collided, lost) = (stat("collided"), stat("lost_data"));
    assert!(collided > 0 && lost > 0, "{collided} {lost}");
    assert_eq!(rows.count("aux_buffers_with_collision"), collided);
    assert_eq!(rows.count("aux_buffers_partial"), lost);
    let messages = String::from_utf8_lossy(&output.stderr);
    assert!(
        messages.contains(&format!("{collided} buffers with collisions")),
        "{messages}"
    );
}

/// Records of random bytes are counted as bad; all others are in the file.
#[test]
fn garbage_is_counted_as_bad_records() {
    let Some(_machine) = spe_machine() else {
        return;
    };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe garbage_every 10");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 8192 --filter=", "burn 0 200");
    let bad: u64 = rows
        .about
        .iter()
        .filter(|(name, _)| name.starts_with("pmuscope.count.bad_records"))
        .map(|(_, count)| count.parse::<u64>().unwrap())
        .sum();
    let (written, garbage) = (stat("written"), stat("garbage"));
    println!("{written} written, {garbage} of them garbage; {bad} bad");
    assert!(garbage > 50);
    let found = rows.rows.len() as u64;
    let valid = samples(&truth());
    assert!(found >= valid, "{found} of {valid}");
    // Some random bytes are valid records by chance. The rest of such a cell may still be bad.
    let by_chance = found - valid;
    assert!(by_chance <= garbage / 10, "{by_chance} of {garbage}");
    assert!((garbage..=garbage + by_chance).contains(&(bad + by_chance)));
}
