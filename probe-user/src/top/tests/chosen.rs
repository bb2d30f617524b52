//! What the user opens and chooses: a row, columns, kinds of rows, the interval.

use super::*;

/// A window in which two containers wait for each other.
fn window_with_waits() -> Sheets {
    let mut report = containers(2);
    let entities = report.subjects.iter().filter(|subject| {
        let Subject::Entity(entity) = subject else {
            return false;
        };
        matches!(entity, Entity::Container { .. } | Entity::Pod(_))
    });
    let entities: Vec<Subject> = entities.take(2).cloned().collect();
    let row = |waiting: &Subject, behind: TableCell, nanos: u64| {
        vec![
            TableCell::Owner(waiting.clone()),
            behind,
            TableCell::Count(nanos),
        ]
    };
    let owner = |at: usize| TableCell::Owner(entities[at].clone());
    let nobody = TableCell::Text("(nobody: the CPU was idle)".to_owned());
    report.tables.push(ReportTable {
        name: "waits",
        columns: vec!["owner", "behind", "cpu_wait_ns"],
        rows: vec![
            row(&entities[0], owner(1), 450_000_000),
            row(&entities[0], nobody, 50_000_000),
            row(&entities[1], owner(0), 20_000_000),
        ],
        small_rows: [1, 2].into(),
        counts: Vec::new(),
    });
    Sheets::from_report(&report, false)
}

/// An open row shows its values, processes and waits, small waits too.
#[test]
fn an_open_row_shows_values_processes_and_waits() {
    let mut top = empty(LIVE);
    top.window(window_with_waits());
    press(&mut top, &[KeyCode::Enter]);
    assert!(matches!(top.opened(), Some(Entity::Container { .. })));
    assert!(!top.has_processes());
    let process = |pid: u32, cpus: Option<f64>| ProcessUse {
        pid,
        command: format!("/usr/bin/worker --shard {pid} --verbose --log-to /var/log/worker"),
        cpus,
        resident: Some(u64::from(pid) * 1_000_000),
    };
    top.set_processes(
        "as in /proc",
        vec![process(1204, Some(1.5)), process(77, None)],
    );
    insta::assert_snapshot!("an_open_row_on_80x24", drawn(&mut top, 80, 24));
    insta::assert_snapshot!("an_open_row_on_120x40", drawn(&mut top, 120, 40));
    // Lines that do not fit scroll.
    press(&mut top, &[KeyCode::End]);
    let end = drawn(&mut top, 80, 24);
    assert!(
        end.contains("Is waited for by") && end.contains("0.0200 s"),
        "{end}"
    );
    // Processes are those of the newest window, so a new window has none yet.
    top.window(window_with_waits());
    assert!(!top.has_processes());
    press(&mut top, &[KeyCode::Esc]);
    assert!(drawn(&mut top, 80, 24).contains("1-2 of 2"));
    let mut without_waits = view(LIVE, 3, 1);
    press(&mut without_waits, &[KeyCode::Enter]);
    let drawn = drawn(&mut without_waits, 80, 24);
    assert!(drawn.contains("-M group:wait counts them"), "{drawn}");
}

/// A row of the machine has nothing that could be opened.
#[test]
fn only_rows_of_owners_open() {
    let mut top = view(LIVE, 3, 1);
    press(&mut top, &[KeyCode::End, KeyCode::Enter]);
    assert_eq!(top.opened(), None);
    assert!(drawn(&mut top, 80, 24).contains("total has nothing to open"));
}

#[test]
fn rows_of_other_kinds_are_chosen() {
    let mut top = view(LIVE, 3, 2);
    typed(&mut top, "b");
    insta::assert_snapshot!(drawn(&mut top, 80, 24));
    let down_and_enter = [KeyCode::Down, KeyCode::Enter];
    assert_eq!(
        press(&mut top, &down_and_enter)[1],
        KeyAction::Rows(By::Pod)
    );
    top.rows_changed(By::Pod, Some(later(&containers(7), 1)));
    let text = drawn(&mut top, 80, 24);
    assert!(
        text.contains("of 7") && text.contains("in 2 windows"),
        "{text}"
    );
    // The first `b` opens the box at pods, and two more go on to cgroups and processes.
    typed(&mut top, "bbb");
    assert_eq!(
        press(&mut top, &[KeyCode::Enter]),
        [KeyAction::Rows(By::Process)]
    );
    assert!(drawn(&mut top, 80, 24).contains("Counting starts again"));
    // Choosing the same rows again does nothing.
    typed(&mut top, "b");
    assert_eq!(press(&mut top, &[KeyCode::Enter]), [KeyAction::Nothing]);
}

#[test]
fn processes_that_cannot_be_rows_have_the_reason() {
    let mut top = Top::new(TopOptions {
        process_rows: ProcessRows::Never("Recorded without processes"),
        ..options(REPLAY)
    });
    top.window(later(&containers(3), 0));
    typed(&mut top, "bbbb");
    assert!(drawn(&mut top, 80, 24).contains("processes  (not here)"));
    assert_eq!(press(&mut top, &[KeyCode::Enter]), [KeyAction::Nothing]);
    assert!(drawn(&mut top, 80, 24).contains("Recorded without processes"));
    press(&mut top, &[KeyCode::Enter]);
    let opened = drawn(&mut top, 80, 24);
    assert!(
        opened.contains("Processes: Recorded without processes"),
        "{opened}"
    );
}

/// The keys go through round lengths, from any other length too.
#[test]
fn windows_become_longer_and_shorter() {
    let mut top = empty(WindowSource::Live {
        interval: Duration::from_millis(750),
    });
    let after = |millis| KeyAction::Interval(Duration::from_millis(millis));
    assert_eq!(
        typed(&mut top, "++--"),
        [after(1_000), after(2_000), after(1_000), after(500)]
    );
    assert_eq!(typed(&mut top, "---"), [after(200), after(100), after(100)]);
    top.window(later(&containers(3), 0));
    assert!(drawn(&mut top, 80, 24).contains("every 100ms"));
}

#[test]
fn columns_are_chosen() {
    let mut top = view(LIVE, 3, 1);
    assert!(drawn(&mut top, 240, 24).contains("task-clock"));
    press(
        &mut top,
        &[KeyCode::Char('c'), KeyCode::Down, KeyCode::Char(' ')],
    );
    insta::assert_snapshot!(drawn(&mut top, 80, 24));
    press(&mut top, &[KeyCode::Esc]);
    let text = drawn(&mut top, 240, 24);
    assert!(
        !text.contains("task-clock") && text.contains("cpus_used"),
        "{text}"
    );
}
