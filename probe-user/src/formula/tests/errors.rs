//! Parse errors and their columns.

use super::super::{Formula, FormulaError, MAX_DEPTH, MAX_LENGTH, MAX_OPERATORS};

fn refusal(text: &str) -> (usize, String) {
    match Formula::parse(text) {
        Err(FormulaError::Syntax {
            column, expected, ..
        }) => (column, expected),
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn syntax_errors_state_the_column_and_what_is_expected() {
    const VALUE: &str = "a number, an event, `min(`, `max(` or `(`";
    for (text, column, expected) in [
        ("A +", 4, VALUE),
        ("A + * B", 5, VALUE),
        ("(A + B", 7, "an operator or `)`"),
        ("A + B)", 6, "an operator, `if` or the end of the formula"),
        ("A B", 3, "an operator, `if` or the end of the formula"),
        ("8A", 2, "an operator, `if` or the end of the formula"),
        ("A % B", 3, "an operator, `if` or the end of the formula"),
        ("min(A)", 6, "an operator or `,`"),
        ("min A", 5, "`(`"),
        ("max(A, B", 9, "an operator, `,` or `)`"),
        ("A if B", 7, "an operator, a comparison or `else`"),
        ("A if B else", 12, VALUE),
        ("A if B > else C", 10, VALUE),
        ("else", 1, VALUE),
        ("A / if", 5, VALUE),
        ("--A", 2, VALUE),
        (".5", 1, VALUE),
        ("A ²", 3, "an operator, `if` or the end of the formula"),
        ("µ / A", 1, VALUE),
        ("A + 1e999", 10, "a number below 1e308 in front"),
    ] {
        assert_eq!(refusal(text), (column, expected.to_owned()), "{text}");
    }
}

#[test]
fn the_sentence_has_formula_column_and_expectation() {
    assert_eq!(
        Formula::parse("A / (B +)").unwrap_err().to_string(),
        "`A / (B +)`: expected a number, an event, `min(`, `max(` or `(` at column 9"
    );
}

#[test]
fn empty_long_and_deep_texts_are_refused() {
    assert_eq!(Formula::parse(" \n"), Err(FormulaError::Empty));
    let long = vec!["A"; MAX_LENGTH].join("+");
    assert_eq!(
        Formula::parse(&long),
        Err(FormulaError::TooLong(2 * MAX_LENGTH - 1))
    );
    assert!(Formula::parse(&"A".repeat(MAX_LENGTH)).is_ok());
    let one_more = Formula::parse(&"A".repeat(MAX_LENGTH + 1));
    assert_eq!(one_more, Err(FormulaError::TooLong(MAX_LENGTH + 1)));
    let nested = |depth: usize| format!("{}A{}", "(".repeat(depth), ")".repeat(depth));
    assert!(Formula::parse(&nested(MAX_DEPTH)).is_ok());
    let (column, expected) = refusal(&nested(MAX_DEPTH + 1));
    assert_eq!(column, MAX_DEPTH + 1);
    assert_eq!(expected, "no more than 64 open parentheses");
    // The operators around parentheses count too: 400 before them, 200 in them.
    let sum = |operators: usize| "1+".repeat(operators);
    let (_, expected) = refusal(&format!("{}({}1)", sum(400), sum(200)));
    assert_eq!(expected, "no more than 500 operators in one another");
    let siblings = format!("max({}1, {}1)", sum(400), sum(400));
    assert!(Formula::parse(&siblings).is_ok());
}

/// The deepest trees that the limits allow are read, printed, evaluated and dropped.
#[test]
fn the_longest_chains_fit_the_stack() {
    for text in [
        vec!["1"; MAX_OPERATORS].join("+"),
        vec!["1"; MAX_OPERATORS].join("-"),
        format!("{}1", "1if 1else ".repeat(MAX_OPERATORS)),
        format!("{}1{}", "-(".repeat(MAX_DEPTH), ")".repeat(MAX_DEPTH)),
    ] {
        let formula = Formula::parse(&text).unwrap();
        let table = super::Table::default();
        assert!(formula.evaluate(&table).unwrap().value.abs() >= 1.0);
        assert!(formula.expr.to_string().len() >= text.len() / 2);
    }
}
