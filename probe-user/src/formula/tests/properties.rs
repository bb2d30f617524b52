//! Properties that hold for every input. Values are compared with those of a second evaluator.

use proptest::prelude::*;

use super::{
    super::tree::{ComparisonOperator, Condition, Expr, Extreme, Implicit, Operator},
    Absent, EventCount, Formula, Table,
};

/// Events A to D have counts (B's is 0), E is missing, F never ran, G ran half of the time.
fn table() -> Table {
    Table::new(&[("A", 3.0), ("B", 0.0), ("C", 17.0), ("D.X", 1e6)])
        .with("F", Err(Absent::NeverRan))
        .with(
            "G",
            Ok(EventCount {
                count: 5.0,
                running_ratio: 0.5,
            }),
        )
        .implicit(Implicit::DurationTime, 2e9)
        .implicit(Implicit::Slots, 8.0)
}

/// The value of a tree by a second evaluator; `None` if there is no value.
///
/// A postfix program made from the tree runs on a stack of numbers and absences. It shares only the
/// tree with the evaluation of formulas.
fn reference(expr: &Expr) -> Option<f64> {
    enum Step<'a> {
        Visit(&'a Expr),
        Apply(Operator),
        Fold(Extreme, usize),
        Negate,
        Choose(&'a Expr, &'a Expr, Option<ComparisonOperator>),
    }
    let mut program = vec![Step::Visit(expr)];
    let mut stack: Vec<Option<f64>> = Vec::new();
    while let Some(step) = program.pop() {
        match step {
            Step::Visit(Expr::Number(number)) => stack.push(Some(*number)),
            Step::Visit(Expr::Event(name)) => stack.push(match name.as_str() {
                "A" => Some(3.0),
                "B" => Some(0.0),
                "C" => Some(17.0),
                "D.X" => Some(1e6),
                "G" => Some(5.0),
                _ => None,
            }),
            Step::Visit(Expr::Implicit(implicit)) => stack.push(match implicit {
                Implicit::DurationTime => Some(2e9),
                Implicit::Slots => Some(8.0),
                _ => None,
            }),
            Step::Visit(Expr::Negate(inner)) => {
                program.extend([Step::Negate, Step::Visit(inner)]);
            }
            Step::Visit(Expr::Binary(operator, left, right)) => {
                program.extend([
                    Step::Apply(*operator),
                    Step::Visit(right),
                    Step::Visit(left),
                ]);
            }
            Step::Visit(Expr::Extreme(extreme, arguments)) => {
                program.push(Step::Fold(*extreme, arguments.len()));
                program.extend(arguments.iter().map(Step::Visit));
            }
            Step::Visit(Expr::If {
                then,
                condition,
                otherwise,
            }) => {
                let comparison = condition.comparison.as_ref();
                let sign = comparison.map(|(sign, _)| *sign);
                program.push(Step::Choose(then, otherwise, sign));
                program.push(Step::Visit(&condition.left));
                program.extend(comparison.map(|(_, right)| Step::Visit(right)));
            }
            Step::Negate => {
                let top = stack.pop().unwrap();
                stack.push(top.map(|value| 0.0 - value));
            }
            Step::Apply(operator) => {
                let (right, left) = (stack.pop().unwrap(), stack.pop().unwrap());
                // x / 0 is infinite or no number.
                let result = left.zip(right).map(|(left, right)| match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide => left / right,
                });
                stack.push(result.filter(|value| value.is_finite()));
            }
            Step::Fold(extreme, count) => {
                let values: Option<Vec<f64>> =
                    stack.split_off(stack.len() - count).into_iter().collect();
                stack.push(values.map(|mut values| {
                    values.sort_by(f64::total_cmp);
                    match extreme {
                        Extreme::Min => values[0],
                        Extreme::Max => values[count - 1],
                    }
                }));
            }
            Step::Choose(then, otherwise, sign) => {
                let left = stack.pop().unwrap();
                let right = if sign.is_some() {
                    stack.pop().unwrap()
                } else {
                    Some(0.0)
                };
                match left.zip(right) {
                    None => stack.push(None),
                    Some((left, right)) => {
                        let order = left.partial_cmp(&right);
                        let holds = match sign {
                            None | Some(ComparisonOperator::NotEqual) => {
                                order != Some(std::cmp::Ordering::Equal)
                            }
                            Some(ComparisonOperator::Equal) => {
                                order == Some(std::cmp::Ordering::Equal)
                            }
                            Some(ComparisonOperator::Less) => {
                                order.is_some_and(std::cmp::Ordering::is_lt)
                            }
                            Some(ComparisonOperator::LessOrEqual) => {
                                order.is_some_and(std::cmp::Ordering::is_le)
                            }
                            Some(ComparisonOperator::Greater) => {
                                order.is_some_and(std::cmp::Ordering::is_gt)
                            }
                            Some(ComparisonOperator::GreaterOrEqual) => {
                                order.is_some_and(std::cmp::Ordering::is_ge)
                            }
                        };
                        program.push(Step::Visit(if holds { then } else { otherwise }));
                    }
                }
            }
        }
    }
    let value = stack.pop().unwrap();
    assert!(stack.is_empty());
    value
}

fn leaf() -> impl Strategy<Value = Expr> {
    prop_oneof![
        (0_u32..1_000_000).prop_map(|number| Expr::Number(f64::from(number) / 64.0)),
        prop::num::f64::POSITIVE
            .prop_filter("finite", |number| number.is_finite())
            .prop_map(Expr::Number),
        prop::sample::select(&["A", "B", "C", "D.X", "E", "F", "G"][..])
            .prop_map(|name| Expr::Event(name.to_owned())),
        prop::sample::select(&Implicit::ALL[..]).prop_map(Expr::Implicit),
    ]
}

fn tree() -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(5, 40, 3, |inner| {
        let operator = prop::sample::select(
            &[
                Operator::Add,
                Operator::Subtract,
                Operator::Multiply,
                Operator::Divide,
            ][..],
        );
        let extreme = prop::sample::select(&[Extreme::Min, Extreme::Max][..]);
        let comparison = prop::option::of(prop::sample::select(&ComparisonOperator::ALL[..]));
        let boxed = || inner.clone().prop_map(Box::new);
        prop_oneof![
            boxed().prop_map(Expr::Negate),
            (operator, boxed(), boxed()).prop_map(|(operator, a, b)| Expr::Binary(operator, a, b)),
            (extreme, prop::collection::vec(inner.clone(), 2..4))
                .prop_map(|(extreme, arguments)| Expr::Extreme(extreme, arguments)),
            (boxed(), boxed(), inner.clone(), comparison, inner.clone()).prop_map(
                |(then, otherwise, left, sign, right)| Expr::If {
                    then,
                    condition: Box::new(Condition {
                        left,
                        comparison: sign.map(|sign| (sign, right)),
                    }),
                    otherwise,
                }
            ),
        ]
    })
}

proptest! {
    #[test]
    fn printing_and_parsing_gives_the_tree_back(expr in tree()) {
        let text = expr.to_string();
        // Only texts above the maximum length may be refused.
        if let Ok(formula) = Formula::parse(&text) {
            prop_assert_eq!(formula.expr, expr, "{}", text);
        } else {
            let is_too_long = text.len() > super::super::MAX_LENGTH;
            prop_assert!(is_too_long, "{}", text);
        }
    }

    #[test]
    fn evaluation_agrees_with_the_reference(expr in tree()) {
        let text = expr.to_string();
        prop_assume!(text.len() <= super::super::MAX_LENGTH);
        let formula = Formula::parse(&text).unwrap();
        let value = formula.evaluate(&table()).ok().map(|value| value.value);
        prop_assert_eq!(value, reference(&expr), "{}", text);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,80}") {
        if let Ok(formula) = Formula::parse(&text) {
            let _ = formula.evaluate(&table());
        }
    }

    /// Texts made of valid words reach more of the parser than random texts.
    #[test]
    fn no_sequence_of_valid_words_panics(
        words in prop::collection::vec(
            prop::sample::select(&["A", "B.C", "1", "2.5e3", "1e999", "(", ")", "+", "-", "*", "/",
                ",", "min", "max", "if", "else", "<", "<=", "==", "!=", "slots", " ", "."][..]),
            0..40,
        )
    ) {
        let text = words.concat();
        match Formula::parse(&text) {
            Ok(formula) => drop(formula.evaluate(&table())),
            Err(super::super::FormulaError::Syntax { column, .. }) => {
                prop_assert!(column <= text.chars().count() + 1, "{} at {}", text, column);
            }
            Err(_) => {}
        }
    }
}
