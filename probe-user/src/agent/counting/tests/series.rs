//! The number of series of what is counted, and the size of a scrape.

use std::{collections::BTreeMap, io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use probe_common::{
    CgroupId, UsageRow,
    spe::{Class, Source},
};

use super::*;
use crate::{
    derive::{Report, Subject},
    emit::{Dialect, Exposition},
    event::AccessScaling,
    join::Entity,
    snapshot::{SampleCounts, SampledEventHealth},
    window::{
        self, EventWindow, GroupCounts, MemLevel, Owner, SampleKind, SampleUsage, SampleWindow,
        Usage, Window, sampled_window,
    },
};

const SECOND: u64 = 1_000_000_000;

/// The sampler of memory accesses.
#[derive(Clone, Copy, PartialEq)]
enum Sampled {
    Nothing,
    Spe,
    Ibs,
    Pebs,
}

/// A window of one second in which each container (number, scale of its counts) used everything
/// that the plan counts, on both sockets.
fn window(plan: &Plan, sampled: Sampled, containers: &[(u64, u64)]) -> Window {
    let mut window = window::tests::empty();
    window.length = Duration::from_nanos(SECOND);
    let names = Arc::make_mut(&mut window.names);
    for (id, _) in containers {
        let path = format!("/system.slice/docker-{id:064}.scope");
        names.cgroups.insert(CgroupId(*id), path);
    }
    window.uncore = window::tests::uncore_counts(plan, SECOND, 3, |_, _| 1_000_000);
    let usage = |scale: u64| -> Usage {
        let group_counts = |group: &Vec<_>| {
            let mut row = UsageRow {
                enabled: SECOND,
                running: SECOND,
                ..UsageRow::ZERO
            };
            for (at, count) in row.counts.iter_mut().take(group.len()).enumerate() {
                *count = 10_000 * (at as u64 + 1) * scale;
            }
            Some(GroupCounts::of(&row))
        };
        plan.groups.iter().map(group_counts).collect()
    };
    let owner = |id| Owner::from(CgroupId(id));
    for &(id, scale) in containers {
        window.usage.insert(owner(id), usage(scale));
        for socket in [0, 1] {
            window.on_socket.insert((socket, owner(id)), usage(scale));
        }
    }
    if sampled != Sampled::Nothing {
        let mut counts = SampleCounts {
            operations: 1e6,
            variance: 1e4,
            cycles: 9e6,
            walks: 1e5,
            squares: 1e8,
            ..SampleCounts::default()
        };
        counts.samples = 1000;
        counts.histogram[3] = 1e6;
        // The sources of loads; stores have none.
        let sources: &[Source] = match sampled {
            Sampled::Nothing => &[],
            Sampled::Spe => &[
                Source::L1d,
                Source::L2,
                Source::PeerCore,
                Source::LocalCluster,
                Source::SystemCache,
                Source::PeerCluster,
                Source::Remote,
                Source::Dram,
            ],
            Sampled::Ibs => &[
                Source::L1d,
                Source::L2,
                Source::L3,
                Source::PeerCore,
                Source::PeerCluster,
                Source::Remote,
                Source::Dram,
                Source::RemoteDram,
                Source::Cxl,
                Source::Device,
            ],
            Sampled::Pebs => &[
                Source::L1d,
                Source::FillBuffer,
                Source::L2,
                Source::L3,
                Source::PeerCore,
                Source::Remote,
                Source::Dram,
                Source::RemoteDram,
                Source::Device,
            ],
        };
        // Loads and stores are one event of AMD, and two of Intel.
        let (events, store_event): (&[AccessScaling], _) = match sampled {
            Sampled::Pebs => (&[AccessScaling::Tagged, AccessScaling::Counted], 1),
            _ => (&[AccessScaling::Counted], 0),
        };
        let kind = |class, level| match (sampled, class) {
            (Sampled::Spe, _) => SampleKind::spe(class, level),
            (_, Class::Store) => SampleKind::event(store_event, Some((class, level))),
            _ => SampleKind::event(0, Some((class, level))),
        };
        let event = |accesses: &AccessScaling| EventWindow {
            health: SampledEventHealth {
                accesses: Some(*accesses),
                ..SampledEventHealth::default()
            },
            ..EventWindow::default()
        };
        let loads = sources
            .iter()
            .map(|source| (kind(Class::Load, MemLevel::By(*source)), counts));
        let mut samples: SampleUsage = loads.collect();
        samples.insert(kind(Class::Store, MemLevel::Unknown), counts);
        if sampled != Sampled::Spe {
            samples.insert(kind(Class::Load, MemLevel::Unknown), counts);
        }
        let mut all = match sampled {
            Sampled::Spe => sampled_window(BTreeMap::new()),
            _ => SampleWindow {
                events: events.iter().map(event).collect(),
                ..SampleWindow::default()
            },
        };
        for (id, _) in containers {
            all.usage.insert(owner(*id), samples.clone());
        }
        all.total.total = samples.clone();
        all.total.delta = samples;
        window.samples = Some(all);
    }
    window
}

fn report(plan: &Plan, sampled: Sampled, containers: &[(u64, u64)]) -> Report {
    let window = window(plan, sampled, containers);
    let view = View {
        accesses: (sampled != Sampled::Nothing).then(Hottest::default),
        ..View::default()
    };
    let joined = view.join(plan, &window, None);
    Report::new(plan, &window, &joined, &view)
}

/// The number of series of a container.
fn series_of_container(plan: &Plan, sampled: Sampled) -> usize {
    let report = report(plan, sampled, &[(7, 3), (8, 1)]);
    let counts = Exposition::counts(&report);
    let subjects = report.subjects.iter().zip(counts);
    let of_container = subjects.filter(|(subject, _)| {
        matches!(subject, Subject::Entity(Entity::Container { id, .. }) if id.ends_with('7'))
    });
    of_container.map(|(_, count)| count).sum()
}

/// docs/reference/configuration.md promises this limit.
#[test]
fn a_container_has_at_most_60_series() {
    let grace = profile_plan("grace", "grace-hopper", 1);
    let superchip = profile_plan("grace", "grace-cpu-superchip", 2);
    let spr = profile_plan("spr", "sapphire-rapids", 2);
    // Without a profile: six events.
    let epyc = plan_of("spr", "epyc-zen4", 2, |count, _| wanted(count));
    let counts = [
        series_of_container(&grace, Sampled::Spe),
        series_of_container(&superchip, Sampled::Spe),
        series_of_container(&spr, Sampled::Nothing),
        series_of_container(&spr, Sampled::Pebs),
        series_of_container(&epyc, Sampled::Ibs),
    ];
    println!("{counts:?}");
    assert!(
        counts.iter().all(|count| (20..=60).contains(count)),
        "{counts:?}"
    );
}

/// The table in docs/reference/chart.md: series and kB of a scrape, plain and compressed, by the
/// number of containers of a node. Counts have as many digits as real ones.
#[test]
fn the_page_has_the_sizes_of_scrapes() {
    let page = include_str!("../../../../../docs/reference/chart.md");
    let machines = [
        (
            "Grace Hopper, sampled",
            profile_plan("grace", "grace-hopper", 1),
            Sampled::Spe,
        ),
        (
            "Grace CPU Superchip, sampled",
            profile_plan("grace", "grace-cpu-superchip", 2),
            Sampled::Spe,
        ),
        (
            "Sapphire Rapids, two sockets",
            profile_plan("spr", "sapphire-rapids", 2),
            Sampled::Nothing,
        ),
        (
            "Sapphire Rapids, two sockets, sampled",
            profile_plan("spr", "sapphire-rapids", 2),
            Sampled::Pebs,
        ),
    ];
    let mut rows = Vec::new();
    for (machine, plan, sampled) in machines {
        let mut row = format!("| {machine} |");
        for count in [10, 100, 300] {
            let containers: Vec<_> = (1..=count)
                .map(|id| (id, 1_000 + id * 7_919 % 100_003))
                .collect();
            let report = report(&plan, sampled, &containers);
            let series: usize = Exposition::counts(&report).iter().sum();
            let text = Exposition::default().write(&report, Dialect::Prometheus);
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&text).unwrap();
            let compressed = gzip.finish().unwrap().len();
            row += &format!(" {series}: {}, {} |", text.len() / 1000, compressed / 1000);
        }
        println!("{row}");
        rows.push(row);
    }
    let missing: Vec<_> = rows.iter().filter(|row| !page.contains(*row)).collect();
    assert!(
        missing.is_empty(),
        "docs/reference/chart.md lacks {missing:#?}"
    );
}
