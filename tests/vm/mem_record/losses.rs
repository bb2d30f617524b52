//! What is lost, damaged or invalid is counted, and nothing else is missing.

use parquet::record::Field;

use crate::{
    mem_support::{Recording, arm, assert_exact, samples, stat, truth},
    testpmu::TestPmu,
};

/// Such samples are in the file as the core wrote them, and are counted apart.
#[test]
fn samples_with_an_address_or_time_of_zero_are_kept_and_counted() {
    let Some(_machine) = arm() else { return };
    let pmu = TestPmu::load("set=spe");
    pmu.control("spe invalid_every 7");
    let recording = Recording::new();
    let (rows, _) = recording.load("--period 65536", "burn 0 1000");
    let zero = |column: &str| {
        let rows = rows.rows.iter();
        rows.filter(|row| row[column] == Field::ULong(0)).count() as u64
    };
    let (addresses, times) = (zero("va"), zero("ticks"));
    let kept = addresses + times;
    println!("{kept} of {} samples", rows.rows.len());
    assert!(addresses > 10 && times > 10);
    assert_eq!(kept, stat("invalid"));
    assert_eq!(kept, rows.count("invalid_samples"));
}

/// With the smallest buffers sampling stops again and again, and no record that was written is
/// lost.
#[test]
fn small_buffers_lose_no_record_that_was_written() {
    let Some(_machine) = arm() else { return };
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

/// Flags that the core sets are counted under their names.
#[test]
fn collisions_and_lost_data_are_counted() {
    let Some(_machine) = arm() else { return };
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
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(&format!("{collided} buffers with collisions")),
        "{said}"
    );
}

/// Random bytes among the records: each such record is a bad one, the others are all there.
#[test]
fn garbage_is_counted_as_bad_records() {
    let Some(_machine) = arm() else { return };
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
    let true_ones = samples(&truth());
    assert!(found >= true_ones, "{found} of {true_ones}");
    // A few random bytes happen to be a whole record, which need not fill its cell: what follows in
    // it is bad all the same.
    let by_chance = found - true_ones;
    assert!(by_chance <= garbage / 10, "{by_chance} of {garbage}");
    assert!((garbage..=garbage + by_chance).contains(&(bad + by_chance)));
}
