//! Plans with sampled events, which hold their counters all the time.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::event::{Counter, sampling::sampled};

/// A core PMU as documented.
struct Core {
    tree: &'static str,
    chip: &'static str,
    /// The general counters.
    counters: usize,
    /// `config` of the events with a fixed counter: by the PMU's type and by `PERF_TYPE_HARDWARE`.
    fixed: &'static [[u64; 2]],
    /// Events that only the first four counters can count.
    first_four: &'static [u64],
    events: &'static [&'static str],
}

const CORES: [Core; 2] = [
    Core {
        tree: "grace",
        chip: "grace-cpu-superchip",
        counters: 6,
        fixed: &[[0x11, 0]],
        first_four: &[],
        events: &[
            "cycles",
            "armv8_pmuv3_0/cpu_cycles/",
            "instructions",
            "armv8_pmuv3_0/event=0x3/",
            "armv8_pmuv3_0/event=0x4/",
            "armv8_pmuv3_0/event=0x10/",
            "armv8_pmuv3_0/event=0x12/",
            "armv8_pmuv3_0/event=0x36/",
            "armv8_pmuv3_0/event=0x37/",
            "task-clock",
        ],
    },
    Core {
        tree: "spr",
        chip: "sapphire-rapids",
        counters: 8,
        fixed: &[[0x3c, 0], [0xc0, 1]],
        first_four: &[0x0120, 0x0121, 0x0500_05a3, 0x0e12],
        events: &[
            "cycles",
            "instructions",
            "cpu/event=0x20,umask=0x1/",
            "cpu/event=0x21,umask=0x1/",
            "cpu/event=0xa3,umask=0x5,cmask=5/",
            "cpu/event=0x12,umask=0xe/",
            "cpu/event=0xd1,umask=0x20/",
            "cache-misses",
            "branches",
            "branch-misses",
            "task-clock",
        ],
    },
];

/// The catalogue, read only once, since that takes a tenth of a second.
static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::builtin().unwrap());

impl Core {
    /// Whether there are enough counters for all of these at one time, with `reserve` left over.
    fn holds(&self, running: &[Counter], reserve: usize) -> bool {
        let mut used_fixed = BTreeSet::new();
        let (mut any, mut four) = (0, 0);
        for counter in running.iter().filter(|counter| counter.is_hardware()) {
            let by_type = usize::from(counter.type_ == 0);
            let mut fixed = self.fixed.iter();
            match fixed.position(|it| it[by_type] == counter.config) {
                Some(at) if used_fixed.insert(at) => {}
                _ if by_type == 0 && self.first_four.contains(&counter.config) => four += 1,
                _ => any += 1,
            }
        }
        four <= 4 && four + any + reserve <= self.counters
    }
}

fn request<'a>(
    events: &'a [EventGroup],
    metrics: &'a [&'a Metric],
    machine: Hardware,
) -> ResolvedRequest<'a> {
    ResolvedRequest {
        events,
        metrics,
        offered: &[],
        machine,
        cpus: 2,
        settings: MetricSettings::default(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// The events that run at one time never need more counters than there are. A plan is refused
    /// only if its events would.
    #[test]
    fn simultaneous_events_have_their_counters(
        core in 0..CORES.len(),
        sample in prop::collection::btree_set(0..10_usize, 0..9),
        count in prop::collection::vec(prop::collection::btree_set(0..10_usize, 1..5), 0..6),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
        reserve in 0..3_usize,
    ) {
        let core = &CORES[core];
        let (pmus, chip) = (pmus(core.tree), Chip::named(core.chip).unwrap());
        let (catalogue, machine) = (&*CATALOGUE, Hardware::of_chip(chip));
        let name = |at: &usize| core.events[*at];
        let listed = sample.iter().map(name).collect::<Vec<_>>().join(",");
        let sampled = match listed.as_str() {
            "" => Vec::new(),
            list => sampled(list, &pmus, None).unwrap(),
        };
        let groups = count.iter().map(|group| {
            format!("{{{}}}", group.iter().map(name).collect::<Vec<_>>().join(","))
        });
        let events: Vec<EventGroup> =
            groups.flat_map(|group| event::parse(&group, &pmus).unwrap()).collect();
        let all = catalogue.select("all", &machine).unwrap();
        let of_core: Vec<&Metric> =
            all.into_iter().filter(|it| it.pmu.pattern.is_core()).collect();
        let mut metrics: Vec<&Metric> = picks.iter().map(|it| *it.get(&of_core)).collect();
        metrics.sort_by_key(|metric| &metric.name);
        metrics.dedup_by_key(|metric| &metric.name);
        let samples: Vec<Counter> = sampled.iter().map(|it| it.counter.clone()).collect();
        let with_samples = |group: &[Counter]| core.holds(&[group, &samples].concat(), reserve);

        let capacity = Capacity::documented(catalogue, &machine, &pmus, reserve);
        let Ok(capacity) = capacity.with_sampled(&sampled, &pmus) else {
            prop_assert!(!core.holds(&samples, reserve));
            return Ok(());
        };
        prop_assert!(core.holds(&samples, reserve));
        let of_group = |group: &EventGroup| -> Vec<Counter> {
            group.events.iter().filter_map(requested_event).map(|it| it.counter).collect()
        };
        let fits_alone = |group: &EventGroup| core.holds(&of_group(group), reserve);
        let fits_with_samples = |group: &EventGroup| with_samples(&of_group(group));
        let plan = match Plan::packed(&request(&events, &metrics, machine), &pmus, &capacity) {
            Ok(plan) => plan,
            Err(PlanError::SampledConflict { .. }) => {
                prop_assert!(
                    events.iter().any(|group| fits_alone(group) && !fits_with_samples(group))
                );
                return Ok(());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        };
        prop_assert!(events.iter().all(|group| fits_with_samples(group) || !fits_alone(group)));
        let counters = |group: &Vec<Planned>| -> Vec<Counter> {
            group.iter().map(|planned| planned.counter.clone()).collect()
        };
        // A user's group that no such PMU can count is opened as it is, and the kernel refuses it.
        let is_possible = |group: &Vec<Counter>| core.holds(group, reserve);
        let (fixed, rotated) = plan.groups.split_at(plan.fixed());
        let always = fixed.iter().map(counters).filter(is_possible).collect::<Vec<_>>().concat();
        prop_assert!(with_samples(&always), "{always:?} beside {samples:?}");
        for group in rotated.iter().map(counters).filter(is_possible) {
            let running = [group, always.clone()].concat();
            prop_assert!(with_samples(&running), "{running:?} beside {samples:?}");
        }
    }
}

fn capacity_with_sampled(
    tree: &str,
    chip: &str,
    list: &str,
    reserve: usize,
) -> Result<Capacity, PlanError> {
    let (pmus, machine) = (pmus(tree), Hardware::of_chip(Chip::named(chip).unwrap()));
    let sampled = sampled(list, &pmus, None).unwrap();
    let capacity = Capacity::documented(&CATALOGUE, &machine, &pmus, reserve);
    capacity.with_sampled(&sampled, &pmus)
}

#[test]
fn sampled_events_that_need_more_counters_are_refused_in_a_sentence() {
    let events = "armv8_pmuv3_0/event=0x3/,armv8_pmuv3_0/event=0x4/,cycles,instructions";
    let refused = capacity_with_sampled("grace", "grace-cpu-superchip", events, 4).err();
    assert_eq!(
        refused.unwrap().to_string(),
        "cannot sample armv8_pmuv3_0/event=0x3/,armv8_pmuv3_0/event=0x4/,cycles,instructions at \
         one time on armv8_pmuv3_0: needs more counters at once than there are: 6 for any event, \
         of which 4 stay free for others (--reserve-counters); sample at most the first 3 of them, \
         and the others in another run"
    );
}

#[test]
fn a_users_group_is_refused_if_samples_leave_it_no_room() {
    let capacity = capacity_with_sampled(
        "spr",
        "sapphire-rapids",
        "cache-misses,branches,branch-misses",
        1,
    );
    let (pmus, chip) = (pmus("spr"), Chip::named("sapphire-rapids").unwrap());
    let events = "{r1d1,r2d1,r4d1,r8d1,r10d1}";
    let events = event::parse(events, &pmus).unwrap();
    let request = request(&events, &[], Hardware::of_chip(chip));
    let refused = Plan::packed(&request, &pmus, &capacity.unwrap());
    assert_eq!(
        refused.unwrap_err().to_string(),
        "cannot count r1d1,r2d1,r4d1,r8d1,r10d1 at one time: needs more counters at once than \
         there are: 8 for any event, of which 1 stay free for others (--reserve-counters), with 3 \
         for what is sampled; sample or count fewer events"
    );
}

/// Sampled events on one kind of core leave the other kind all of its counters.
#[test]
fn samples_of_one_kind_of_core_take_no_counters_of_another() {
    let pmus = pmus("odd");
    let names: Vec<&str> = pmus.cores().map(|core| core.name.as_str()).collect();
    let list: Vec<String> = (0..4)
        .map(|at| format!("{}/event=0x{at}/", names[0]))
        .collect();
    let chip = "grace-cpu-superchip";
    let capacity = capacity_with_sampled("odd", chip, &list.join(","), 0).unwrap();
    let counted = |name: &str| {
        let events: Vec<String> = (8..12)
            .map(|at| format!("{name}/event=0x{at:x}/"))
            .collect();
        let events = event::parse(&format!("{{{}}}", events.join(",")), &pmus).unwrap();
        let machine = Hardware::of_chip(Chip::named(chip).unwrap());
        Plan::packed(&request(&events, &[], machine), &pmus, &capacity)
    };
    assert!(matches!(
        counted(names[0]),
        Err(PlanError::SampledConflict { .. })
    ));
    counted(names[1]).unwrap();
}
