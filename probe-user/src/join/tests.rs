//! Rows of cgroups by their names.

use std::time::Duration;

use probe_common::{CgroupId, UsageKey, UsageRow, spe::Class};

use super::*;
use crate::{
    snapshot::{ENDED, OVERFLOW, SampleCounts, UNATTRIBUTED},
    window::{GroupCounts, MemLevel, Owner, SampleKind, tests::snapshot},
};

const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_cgroup_with_the_id_of_a_container_has_a_row_of_its_own() {
    let foreign = format!("/user.slice/user-1000.slice/user@1000.service/{ID}");
    let paths = [
        format!("/docker/{ID}"),
        format!("/docker/{ID}/init"),
        foreign.clone(),
        format!("{foreign}/below"),
        "/system.slice/sshd.service".to_owned(),
    ];
    let names = Arc::new(Names {
        cgroups: (1..).map(CgroupId).zip(paths).collect(),
        ..Names::default()
    });
    for by in [By::Container, By::Pod] {
        let view = View {
            by,
            ..View::default()
        };
        let naming = view.naming(&names);
        let entity = |cgroup| {
            let cgroup = CgroupId(cgroup);
            naming.entity(Owner { cgroup, tgid: 0 }).unwrap()
        };
        let container = Entity::Container {
            id: ID.into(),
            pod: None,
        };
        let rows = [1, 2, 3, 4, 5].map(entity);
        let shown = || Entity::Cgroup(foreign.as_str().into());
        assert_eq!(
            rows,
            [
                container.clone(),
                container,
                shown(),
                shown(),
                Entity::System
            ]
        );
    }
}

fn names(cgroups: &[(u64, &str)]) -> Arc<Names> {
    let cgroups = cgroups.iter();
    Arc::new(Names {
        cgroups: cgroups
            .map(|(id, path)| (CgroupId(*id), (*path).to_owned()))
            .collect(),
        processes: [(42, "make".to_owned())].into(),
        ..Names::default()
    })
}

/// The row of an owner in a view.
fn shown(view: &View, names: &Arc<Names>, cgroup: CgroupId, tgid: u32) -> Option<Entity> {
    view.naming(names).entity(Owner { cgroup, tgid })
}

fn cgroup(path: &str) -> Option<Entity> {
    Some(Entity::Cgroup(path.into()))
}

/// Idle, overflow and unattributed samples have a row in every view.
#[test]
fn owners_that_are_no_cgroups_have_rows_of_their_own() {
    let names = names(&[(1, "/"), (3, "/a")]);
    let mut view = View {
        by: By::Cgroup,
        below: Some("/a".to_owned()),
        ..View::default()
    };
    let row = |view: &View, cgroup| shown(view, &names, cgroup, 0);
    assert_eq!(row(&view, CgroupId::IDLE), Some(Entity::Idle));
    assert_eq!(row(&view, OVERFLOW), Some(Entity::Overflow));
    assert_eq!(row(&view, UNATTRIBUTED), Some(Entity::Unattributed));
    assert_eq!(row(&view, CgroupId::ROOT), None);
    view.merged_idle = true;
    assert_eq!(row(&view, CgroupId::ROOT), Some(Entity::SystemAndIdle));
    assert_eq!(row(&view, CgroupId(3)), cgroup("/a"));
    view.below = None;
    view.merged_idle = false;
    assert_eq!(row(&view, CgroupId::ROOT), cgroup("/"));
}

#[test]
fn below_selects_a_cgroup_and_its_descendants() {
    let names = names(&[(3, "/a"), (4, "/a/b"), (5, "/ab"), (6, "/c/a")]);
    let mut view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let rows = |view: &View| [3, 4, 5, 6, 99].map(|id| shown(view, &names, CgroupId(id), 0));
    assert_eq!(
        rows(&view),
        [
            cgroup("/a"),
            cgroup("/a/b"),
            cgroup("/ab"),
            cgroup("/c/a"),
            Some(Entity::Unnamed(99))
        ]
    );
    for path in ["/a", "/a/"] {
        view.below = Some(path.to_owned());
        // The path of a cgroup without a name is unknown.
        assert_eq!(
            rows(&view),
            [cgroup("/a"), cgroup("/a/b"), None, None, None],
            "{path}"
        );
    }
}

#[test]
fn a_command_includes_its_descendant_cgroups_or_its_process_tree() {
    let names = names(&[(3, "/a"), (6, "/run"), (7, "/run/child"), (8, "/runner")]);
    let command = |owner| {
        let name = "make".to_owned();
        Some(CommandOwner { name, owner })
    };
    let make = || Some(Entity::Command("make".into()));
    let mut view = View {
        by: By::Cgroup,
        command: command(CgroupId(6)),
        // The command is shown in every view.
        below: Some("/a".to_owned()),
        ..View::default()
    };
    let row = |view: &View, id| shown(view, &names, CgroupId(id), 0);
    assert_eq!([6, 7].map(|id| row(&view, id)), [make(), make()]);
    assert_eq!([3, 8].map(|id| row(&view, id)), [cgroup("/a"), None]);
    view.command = command(CgroupId::COMMAND);
    assert_eq!(shown(&view, &names, CgroupId::COMMAND, 0), make());
    assert_eq!([3, 6].map(|id| row(&view, id)), [cgroup("/a"), None]);
}

#[test]
fn processes_have_their_names_and_those_that_ended_one_row() {
    let names = names(&[(3, "/a")]);
    let view = View {
        by: By::Process,
        ..View::default()
    };
    let row = |tgid| shown(&view, &names, CgroupId(3), tgid);
    let process = |tgid, name: Option<&str>| {
        let name = name.map(Into::into);
        Some(Entity::Process { tgid, name })
    };
    assert_eq!(row(42), process(42, Some("make")));
    assert_eq!(row(43), process(43, None));
    assert_eq!(row(ENDED), Some(Entity::EndedProcesses));
}

#[test]
fn containers_have_their_pod_and_pods_have_their_containers() {
    let uid = "7bbae5a3-01a3-4a7d-9d50-0a1b2c3d4e5f";
    let in_pod = format!("/kubepods/pod{uid}/{ID}");
    let paths = [
        (3, in_pod.as_str()),
        (4, &format!("/kubepods/pod{uid}")),
        (5, &format!("/docker/{}", ID.replace('0', "f"))),
        (6, "/system.slice"),
    ];
    let names = names(&paths);
    let rows = |by| {
        let view = View {
            by,
            ..View::default()
        };
        [3, 4, 5, 6].map(|id| shown(&view, &names, CgroupId(id), 0).unwrap())
    };
    let container = |id: &str, pod: Option<&str>| Entity::Container {
        id: id.into(),
        pod: pod.map(Into::into),
    };
    let alone = || container(&ID.replace('0', "f"), None);
    assert_eq!(
        rows(By::Container),
        [
            container(ID, Some(uid)),
            Entity::System,
            alone(),
            Entity::System
        ]
    );
    let pod = || Entity::Pod(uid.into());
    assert_eq!(rows(By::Pod), [pod(), pod(), alone(), Entity::System]);
}

/// Samples are rolled up like counts, and their totals continue.
#[test]
fn samples_are_rolled_up_and_continue() {
    let names = names(&[(3, "/a"), (4, "/a/b"), (5, "/c")]);
    let view = View {
        by: By::Container,
        below: Some("/a".to_owned()),
        ..View::default()
    };
    let kind = SampleKind::spe(Class::Load, MemLevel::Unknown);
    let samples = |rows: &Rows<SampleUsage>, entity: &Entity| {
        let row = rows.of(entity)?;
        let count = |usage: &SampleUsage| usage[&kind].samples;
        Some((count(&row.delta), count(&row.total), row.since.as_secs()))
    };
    let mut usage = BTreeMap::new();
    for (cgroup, samples) in [(3, 1), (4, 2), (5, 4)] {
        let counts = SampleCounts {
            samples,
            ..SampleCounts::default()
        };
        let owner = Owner {
            cgroup: CgroupId(cgroup),
            tgid: 0,
        };
        usage.insert(owner, SampleUsage::from([(kind, counts)]));
    }
    let naming = view.naming(&names);
    let at = Duration::from_secs;
    let entity = |owner| naming.entity(owner);
    let first = Rows::new(entity, &usage, at(5), None, Entity::never_ends);
    let second = Rows::new(entity, &usage, at(6), Some(&first), Entity::never_ends);
    assert_eq!(samples(&first, &Entity::System), Some((3, 3, 5)));
    assert_eq!(samples(&second, &Entity::System), Some((3, 6, 5)));
    assert_eq!(samples(&second, &Entity::Idle), None);
    assert_eq!(second.iter().count(), 1);
}

/// The names of the previous window are not reused after a change.
#[test]
fn a_new_name_or_view_changes_the_rows() {
    let window = |names: &Arc<Names>| {
        let rows = [1, 3].map(|id| {
            let cgroup = CgroupId(id);
            let (tgid, cpu, group) = (0, 0, 0);
            let key = UsageKey {
                cgroup,
                tgid,
                cpu,
                group,
            };
            (key, UsageRow::ZERO)
        });
        let mut later = snapshot(rows);
        later.names = Arc::clone(names);
        Window::between(&snapshot([]), &later, &Plan::default())
    };
    let mut view = View {
        by: By::Cgroup,
        ..View::default()
    };
    let join = |view: &View, names: &Arc<Names>, before: Option<&Joined>| {
        view.join(&Plan::default(), &window(names), before)
    };
    let shown = |joined: &Joined| -> Vec<Option<Entity>> {
        joined
            .rows
            .iter()
            .map(|(entity, _)| Some(entity.clone()))
            .collect()
    };
    let mut names = names(&[(1, "/"), (3, "/a")]);
    let first = join(&view, &names, None);
    let second = join(&view, &names, Some(&first));
    assert!(Arc::ptr_eq(&first.naming, &second.naming));
    assert_eq!(shown(&second), [cgroup("/"), cgroup("/a")]);
    view.merged_idle = true;
    let third = join(&view, &names, Some(&second));
    assert_eq!(shown(&third), [cgroup("/a"), Some(Entity::SystemAndIdle)]);
    Arc::make_mut(&mut names)
        .cgroups
        .insert(CgroupId(3), "/b".to_owned());
    let fourth = join(&view, &names, Some(&third));
    assert_eq!(shown(&fourth), [cgroup("/b"), Some(Entity::SystemAndIdle)]);
}

/// The idle row keeps its total over a window without idle time; an ended container loses its row.
#[test]
fn idle_keeps_its_total_and_an_ended_container_loses_its_row() {
    let path = format!("/docker/{ID}");
    let naming = View::default().naming(&names(&[(1, "/"), (7, path.as_str())]));
    let owner = |cgroup| Owner { cgroup, tgid: 0 };
    let mut row = UsageRow::ZERO;
    row.counts[0] = 5;
    let usage = |owners: &[CgroupId]| -> BTreeMap<Owner, Usage> {
        let owners = owners.iter();
        let counts = |id: &CgroupId| (owner(*id), vec![Some(GroupCounts::of(&row)), None]);
        owners.map(counts).collect()
    };
    let start = Duration::from_secs(1);
    let entity = |owner| naming.entity(owner);
    let all = usage(&[CgroupId::IDLE, CgroupId::ROOT, CgroupId(7)]);
    let first = Rows::new(entity, &all, start, None, Entity::never_ends);
    let later = Duration::from_secs(2);
    let rows = {
        let usage = usage(&[CgroupId::ROOT]);
        Rows::new(entity, &usage, later, Some(&first), Entity::never_ends)
    };
    let found: Vec<_> = rows.iter().map(|(entity, _)| entity.clone()).collect();
    assert_eq!(found, [Entity::System, Entity::Idle]);
    let count = |usage: &Usage| usage[0].as_ref().map(|row| row.counts[0]);
    let idle = rows.of(&Entity::Idle).unwrap();
    assert_eq!((count(&idle.total), idle.since), (Some(5), start));
    assert_eq!(idle.delta, vec![None, None]);
    let system = rows.of(&Entity::System).unwrap();
    assert_eq!(
        (count(&system.delta), count(&system.total)),
        (Some(5), Some(10))
    );
}
