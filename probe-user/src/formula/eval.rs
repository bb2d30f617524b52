//! A tree to a value, or to the reason why there is none.

use super::tree::{Comparison, Condition, Expr, Extreme, Implicit, Operator};

/// Where a formula's quantities come from.
pub trait Input {
    /// The count of an event over the time that [`Input::implicit`] gives as duration.
    ///
    /// # Errors
    /// Why there is no count; 0 is a count.
    fn event(&self, name: &str) -> Result<Sample, Absent>;

    /// A quantity that is no event; `None` where it is not known.
    fn implicit(&self, implicit: Implicit) -> Option<f64>;
}

/// The count of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// For the whole duration: scaled already where the counter ran for a part of it.
    pub count: f64,
    /// Share of the duration for which the counter was on the PMU, 0 to 1.
    pub live: f64,
}

/// Why an event has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Nobody counted it.
    Missing,
    /// It was opened, but never on the PMU.
    NeverRan,
    /// It was on the PMU for so little of the time that more than half of that is unknown.
    MostlyUnknown,
    /// None were found in slices that were divided by time between two owners.
    Divided,
}

/// The value of a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Value {
    /// In the metric's unit.
    pub value: f64,
    /// The smallest share of time for which one of its events was on the PMU: 1 where nothing is
    /// an estimate.
    pub live: f64,
    /// The smallest divisor that came from events; `None` where no event is divided by.
    pub smallest_divisor: Option<f64>,
    /// The largest value that it could have if its events counted the same things, where it is
    /// above that. A formula knows no such bound: whoever does sets it.
    pub above_bound: Option<f64>,
}

/// Why a metric has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoValue {
    /// Events that nobody counted.
    #[error("not counted: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// Whoever it is about had no time on a CPU.
    #[error("it did not run in this window")]
    DidNotRun,
    /// A counter that had no time on the PMU.
    #[error("{0} never ran: too many events for the counters, or others use them")]
    NeverRan(String),
    /// A counter that had too little time on the PMU.
    #[error(
        "more than half of its time is unknown: too many events for the counters, or others use \
         them"
    )]
    MostlyUnknown,
    /// None were found, in slices that were divided by time between two owners.
    #[error(
        "the kernel did not show all context switches, so that its counts were divided by time: \
         that there were none is not known"
    )]
    Divided,
    /// An estimate whose error nobody knows.
    #[error(
        "too few samples to know its error: a mean needs 30 and 1,000 of the whole machine, a \
         median 6, a 90th percentile 36, a 99th 368"
    )]
    TooFewSamples,
    /// A number of operations that a core samples as it chooses.
    #[error(
        "the core chooses which of them it times, so that how many there were is not known: \
         samples tell their sources and latencies alone"
    )]
    ChosenByCore,
    /// A quantity that is no event.
    #[error("{0} is not known")]
    NotKnown(Implicit),
    /// A division by zero.
    #[error("denominator zero: {0}")]
    DenominatorZero(String),
    /// A share above its largest possible value because it divides by next to nothing.
    #[error(
        "denominator too small: {denominator} counts cannot carry a share ({value:.4} where \
         {bound} is the most possible)"
    )]
    DenominatorTooSmall {
        /// What the formula gives.
        value: f64,
        /// The divisor.
        denominator: f64,
        /// The largest possible value.
        bound: f64,
    },
    /// The document says that the chip has no such value.
    #[error("not on {chip}: {why}")]
    NotOnChip {
        /// Its key, as in `--chip`.
        chip: String,
        /// The reason of the document.
        why: String,
    },
    /// The document gives the formula for one configuration of the chip only.
    #[error("not in this configuration: {0}")]
    NotConfigured(String),
    /// The result does not fit a number.
    #[error("the result is not a finite number")]
    NotFinite,
}

impl NoValue {
    /// The reason in a word, without its numbers and names.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing(_) => "not_counted",
            Self::DidNotRun => "did_not_run",
            Self::NeverRan(_) => "never_on_pmu",
            Self::MostlyUnknown => "mostly_unknown",
            Self::Divided => "divided_by_time",
            Self::TooFewSamples => "too_few_samples",
            Self::ChosenByCore => "chosen_by_core",
            Self::NotKnown(_) => "not_known",
            Self::DenominatorZero(_) => "denominator_zero",
            Self::DenominatorTooSmall { .. } => "denominator_too_small",
            Self::NotOnChip { .. } => "not_on_chip",
            Self::NotConfigured(_) => "not_configured",
            Self::NotFinite => "not_finite",
        }
    }
}

/// One evaluation: what it saw on its way.
pub(super) struct Evaluation<'a, I> {
    input: &'a I,
    live: f64,
    events_read: usize,
    smallest_divisor: Option<f64>,
}

impl<'a, I: Input> Evaluation<'a, I> {
    pub(super) fn new(input: &'a I) -> Self {
        Self {
            input,
            live: 1.0,
            events_read: 0,
            smallest_divisor: None,
        }
    }

    pub(super) fn run(mut self, expr: &Expr) -> Result<Value, NoValue> {
        let value = self.value(expr)?;
        Ok(Value {
            value,
            live: self.live,
            smallest_divisor: self.smallest_divisor,
            above_bound: None,
        })
    }

    fn value(&mut self, expr: &Expr) -> Result<f64, NoValue> {
        match expr {
            Expr::Number(number) => Ok(*number),
            Expr::Event(name) => self.event(name),
            Expr::Implicit(implicit) => self
                .input
                .implicit(*implicit)
                .ok_or(NoValue::NotKnown(*implicit)),
            Expr::Negate(inner) => Ok(-self.value(inner)?),
            Expr::Binary(operator, left, right) => self.binary(*operator, left, right),
            Expr::Extreme(extreme, arguments) => {
                let choose = match extreme {
                    Extreme::Min => f64::min,
                    Extreme::Max => f64::max,
                };
                let mut arguments = arguments.iter().map(|argument| self.value(argument));
                let first = arguments.next().ok_or(NoValue::NotFinite)??;
                arguments.try_fold(first, |best, value| Ok(choose(best, value?)))
            }
            Expr::If {
                then,
                condition,
                otherwise,
            } => {
                // Only the branch that is taken needs its events.
                if self.holds(condition)? {
                    self.value(then)
                } else {
                    self.value(otherwise)
                }
            }
        }
    }

    fn event(&mut self, name: &str) -> Result<f64, NoValue> {
        let sample = self.input.event(name).map_err(|absent| match absent {
            Absent::Missing => NoValue::Missing(vec![name.to_owned()]),
            Absent::NeverRan => NoValue::NeverRan(name.to_owned()),
            Absent::MostlyUnknown => NoValue::MostlyUnknown,
            Absent::Divided => NoValue::Divided,
        })?;
        self.events_read += 1;
        self.live = self.live.min(sample.live);
        Ok(sample.count)
    }

    fn binary(&mut self, operator: Operator, left: &Expr, right: &Expr) -> Result<f64, NoValue> {
        let first = self.value(left)?;
        let before = self.events_read;
        let second = self.value(right)?;
        let result = match operator {
            Operator::Add => first + second,
            Operator::Subtract => first - second,
            Operator::Multiply => first * second,
            Operator::Divide if second == 0.0 => {
                return Err(NoValue::DenominatorZero(right.to_string()));
            }
            Operator::Divide => {
                if self.events_read > before {
                    let smallest = self.smallest_divisor.unwrap_or(f64::INFINITY);
                    self.smallest_divisor = Some(smallest.min(second.abs()));
                }
                first / second
            }
        };
        // Checked at once: a comparison or `min` further up would hide it.
        result
            .is_finite()
            .then_some(result)
            .ok_or(NoValue::NotFinite)
    }

    #[expect(
        clippy::float_cmp,
        reason = "`==` and `!=` of a formula compare what was computed, as in any language"
    )]
    fn holds(&mut self, condition: &Condition) -> Result<bool, NoValue> {
        let left = self.value(&condition.left)?;
        let Some((comparison, right)) = &condition.comparison else {
            return Ok(left != 0.0);
        };
        let right = self.value(right)?;
        Ok(match comparison {
            Comparison::Less => left < right,
            Comparison::LessOrEqual => left <= right,
            Comparison::Greater => left > right,
            Comparison::GreaterOrEqual => left >= right,
            Comparison::Equal => left == right,
            Comparison::NotEqual => left != right,
        })
    }
}
