//! Which rows are folded.

use super::*;
use crate::derive::{Estimate, MetricInfo, Value};

/// Containers with these numbers of series, the largest first, and three series of the machine.
fn report(rows: &[usize]) -> Report {
    let mut report = Report::for_agent();
    let metrics: Vec<u32> = (0..10)
        .map(|at| report.add_metric(MetricInfo::gauge(format!("metric_{at}"), "", "")))
        .collect();
    let add = |report: &mut Report, subject, series: usize| {
        let subject = report.subject(subject);
        for metric in &metrics[..series] {
            let value = Value::Gauge(Estimate::exact(1.0));
            report.push([subject, *metric, 0], Ok(value), None);
        }
    };
    for (at, series) in rows.iter().enumerate() {
        add(&mut report, Subject::Entity(container(at)), *series);
    }
    add(&mut report, Subject::Machine, 3);
    report
}

fn container(at: usize) -> Entity {
    Entity::Container {
        id: format!("{at:064}").as_str().into(),
        pod: None,
    }
}

#[test]
fn nothing_is_folded_where_there_is_room() {
    assert!(choose(&report(&[5, 5, 5]), 18) == Folded::default());
}

#[test]
fn the_smallest_rows_are_folded_until_the_series_fit() {
    let shown = |rows: &[usize], most| {
        let report = report(rows);
        let folded = choose(&report, most);
        let is_shown = |at: &usize| !folded.rows.contains(&container(*at));
        (0..rows.len()).filter(is_shown).collect::<Vec<_>>()
    };
    // Three series of the machine and five of `other` leave room for one container.
    assert_eq!(shown(&[5, 5, 5], 17), [0]);
    assert_eq!(shown(&[5, 5, 5, 5, 5], 23), [0, 1, 2]);
    // The machine's series stay, whatever the limit.
    assert_eq!(shown(&[5, 5, 5], 1), Vec::<usize>::new());
}

#[test]
fn cgroups_of_no_container_are_folded_before_containers() {
    let mut report = report(&[5, 5]);
    let cgroup = |at: u64| match at {
        0 => Entity::Unnamed(7),
        at => Entity::Cgroup(format!("/docker/x{at}").as_str().into()),
    };
    for at in 0..100 {
        let subject = report.subject(Subject::Entity(cgroup(at)));
        for metric in 0..5 {
            let value = Value::Gauge(Estimate::exact(9.0));
            report.push([subject, metric, 0], Ok(value), None);
        }
    }
    // Three series of the machine, and five of each row, `other` included.
    let chosen = choose(&report, 18 + 5);
    let folded: HashSet<Entity> = (1..100).map(cgroup).chain([cgroup(0)]).collect();
    let shown: Vec<_> = folded.difference(&chosen.rows).collect();
    assert_eq!((shown.len(), chosen.rows.len()), (1, 99));
    assert_eq!(choose(&report, 18).rows, folded);
    let container = [container(1)].into();
    assert_eq!(choose(&report, 13).rows, &folded | &container);
}

#[test]
fn processes_are_left_out_before_a_container_is_folded() {
    let mut report = report(&[5, 5]);
    let process = |tgid| Entity::ProcessOf {
        tgid,
        name: None,
        row: Box::new(container(0)),
    };
    for tgid in [1, 2] {
        let subject = report.subject(Subject::Entity(process(tgid)));
        let value = Value::Gauge(Estimate::exact(1.0));
        report.push([subject, 0, 0], Ok(value), None);
    }
    // Three series of the machine, five of each container, and one of each process.
    assert_eq!(choose(&report, 15), Folded::default());
    let one_over = choose(&report, 14);
    assert_eq!(one_over.left_out, [process(2)].into());
    assert!(one_over.rows.is_empty());
    let three_over = choose(&report, 12);
    assert_eq!(three_over.left_out, [process(1), process(2)].into());
    assert_eq!(three_over.rows, [container(0), container(1)].into());
}
