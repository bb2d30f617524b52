//! Values of formulas, and the reasons for having none.

use super::{Absent, EventCount, Formula, Implicit, NoValue, Table, value};

fn number(text: &str) -> f64 {
    value(text, &Table::default()).unwrap()
}

#[test]
fn operators_bind_and_group_as_in_arithmetic() {
    assert_eq!(number("2 + 3 * 4"), 14.0);
    assert_eq!(number("(2 + 3) * 4"), 20.0);
    assert_eq!(number("20 - 5 - 3"), 12.0);
    assert_eq!(number("100 / 10 / 2"), 5.0);
    assert_eq!(number("7 - -2"), 9.0);
    assert_eq!(number("-(-3)"), 3.0);
    assert_eq!(number("-2 * 3"), -6.0);
    assert_eq!(number(" 1.5e3\n+ 2E-1 "), 1500.2);
    assert_eq!(number("min(4, 2, 8) + max(1, 3)"), 5.0);
}

#[test]
fn conditions_take_one_branch() {
    assert_eq!(number("1 if 2 > 1 else 3"), 1.0);
    assert_eq!(number("1 if 2 < 1 else 3"), 3.0);
    assert_eq!(number("1 if 0 else 2 if 0 else 3"), 3.0);
    assert_eq!(number("1 if 0 else 2 if 5 else 3"), 2.0);
    assert_eq!(number("(1 if 2 == 2 else 9) + (5 if 1 != 1 else 6)"), 7.0);
    for (comparison, expected) in [
        ("<", [1.0, 0.0, 0.0]),
        ("<=", [1.0, 1.0, 0.0]),
        (">", [0.0, 0.0, 1.0]),
        (">=", [0.0, 1.0, 1.0]),
        ("==", [0.0, 1.0, 0.0]),
        ("!=", [1.0, 0.0, 1.0]),
    ] {
        let value_for = |left: u32| number(&format!("1 if {left} {comparison} 2 else 0"));
        assert_eq!([1, 2, 3].map(value_for), expected, "{comparison}");
    }
    // The other branch needs no counts.
    let table = Table::new(&[("A", 0.0), ("B", 5.0)]);
    assert_eq!(value("B / A if A else B", &table), Ok(5.0));
    assert_eq!(value("B if B > A else C", &table), Ok(5.0));
}

#[test]
fn names_of_events_may_have_dots_and_any_case() {
    let table = Table::new(&[("UNC_M_CAS_COUNT.RD", 6.0), ("cmem_rd_data", 4.0)]);
    assert_eq!(value("UNC_M_CAS_COUNT.RD * cmem_rd_data", &table), Ok(24.0));
    let formula = Formula::parse("B + A * (B - 1) / slots + seconds").unwrap();
    assert_eq!(formula.events(), ["B", "A"]);
    assert_eq!(formula.implicits(), [Implicit::Slots, Implicit::Seconds]);
}

#[test]
fn implicit_quantities_come_from_the_input() {
    let mut table = Table::new(&[("A", 60.0)]);
    for (implicit, value) in Implicit::ALL
        .into_iter()
        .zip([2.0, 3.0, 12.0, 4.0, 5.0, 6.0, 10.0])
    {
        table = table.implicit(implicit, value);
    }
    for (name, expected) in [
        ("duration_time", 30.0),
        ("seconds", 20.0),
        ("counter_time", 5.0),
        ("num_cpus", 15.0),
        ("slots", 12.0),
        ("num_units", 10.0),
        ("num_ports", 6.0),
    ] {
        assert_eq!(
            value(&format!("A / {name}"), &table),
            Ok(expected),
            "{name}"
        );
    }
    assert_eq!(
        value("A / seconds", &Table::new(&[("A", 1.0)])),
        Err(NoValue::NotKnown(Implicit::Seconds))
    );
}

#[test]
fn missing_events_are_not_zero_and_are_all_named() {
    let table = Table::new(&[("A", 1.0)]);
    assert_eq!(
        value("A / B + C", &table),
        Err(NoValue::Missing(vec!["B".to_owned(), "C".to_owned()]))
    );
    assert_eq!(
        value("min(A, B)", &table),
        Err(NoValue::Missing(vec!["B".to_owned()]))
    );
    assert_eq!(
        value("A / B", &table).unwrap_err().to_string(),
        "not counted: B"
    );
}

#[test]
fn a_counter_that_never_ran_has_no_value() {
    let table = Table::new(&[("A", 1.0)]).with("B", Err(Absent::NeverRan));
    let reason = value("A + B", &table).unwrap_err();
    assert_eq!(reason, NoValue::NeverRan("B".to_owned()));
    assert!(reason.to_string().starts_with("B never ran"));
}

#[test]
fn division_by_zero_names_the_divisor() {
    let table = Table::new(&[("A", 1.0), ("B", 0.0)]);
    let reason = value("100 * A / (8 * B)", &table).unwrap_err();
    assert_eq!(reason.to_string(), "denominator zero: 8.0 * B");
    let reason = value("A / (-B * -A)", &table).unwrap_err();
    assert_eq!(reason.to_string(), "denominator zero: -B * -A");
    // 0/0 is no number either.
    assert_eq!(
        value("B / B", &table),
        Err(NoValue::DenominatorZero("B".to_owned()))
    );
}

#[test]
fn an_infinite_result_is_no_value() {
    assert_eq!(
        value("1e300 * 1e300", &Table::default()),
        Err(NoValue::NotFinite)
    );
}

#[test]
fn the_running_ratio_is_the_smallest_of_the_events_used() {
    let sample = |count, running_ratio| {
        Ok(EventCount {
            count,
            running_ratio,
        })
    };
    let table = Table::default()
        .with("A", sample(1.0, 0.5))
        .with("B", sample(2.0, 0.25))
        .with("C", sample(3.0, 0.1));
    let running_ratio = |text: &str| {
        Formula::parse(text)
            .unwrap()
            .evaluate(&table)
            .unwrap()
            .running_ratio
    };
    assert_eq!(running_ratio("A / B"), 0.25);
    assert_eq!(running_ratio("A if B else C"), 0.25);
    assert_eq!(running_ratio("A"), 0.5);
    assert_eq!(running_ratio("7"), 1.0);
}

#[test]
fn the_smallest_divisor_is_one_with_an_event() {
    let table = Table::new(&[("A", 644.0), ("B", 40.0)]).implicit(Implicit::Seconds, 0.5);
    let smallest = |text: &str| {
        let formula = Formula::parse(text).unwrap();
        formula.evaluate(&table).unwrap().smallest_divisor
    };
    assert_eq!(smallest("100 * (A / B)"), Some(40.0));
    assert_eq!(smallest("A / (10 * B)"), Some(400.0));
    assert_eq!(smallest("A / B / A"), Some(40.0));
    assert_eq!(smallest("A / 2 / seconds"), None);
}
