//! Evaluates a tree to a value, or to the reason why there is none.

use super::tree::{ComparisonOperator, Condition, Expr, Extreme, Implicit, Operator};

/// Source of a formula's counts and quantities.
pub trait Input {
    /// The count of an event over the duration that [`Input::implicit`] gives.
    ///
    /// # Errors
    /// Why there is no count; 0 is a count.
    fn event(&self, name: &str) -> Result<EventCount, Absent>;

    /// A quantity that is no event; `None` if unknown.
    fn implicit(&self, implicit: Implicit) -> Option<f64>;
}

/// The count of one event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EventCount {
    /// Count for the whole duration, already scaled if the counter ran for a part of it.
    pub count: f64,
    /// `time_running / time_enabled` of the counter, 0 to 1.
    pub running_ratio: f64,
}

/// Why an event has no count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// It was not counted.
    Missing,
    /// Its counter was opened, but was never on the PMU.
    NeverRan,
    /// Its counter was on the PMU so rarely that its count is unknown for more than half of the
    /// time.
    MostlyUnknown,
    /// The count is 0, but it is an estimate: a context switch was missed, and the counts of the
    /// time slice were divided by time between two owners.
    Divided,
}

/// The value of a formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FormulaValue {
    /// In the metric's unit.
    pub value: f64,
    /// The smallest running ratio (`time_running / time_enabled`) of its events; 1 if nothing is an
    /// estimate.
    pub running_ratio: f64,
    /// The smallest divisor that contains an event; `None` without such a divisor.
    pub smallest_divisor: Option<f64>,
    /// The bound of the metric, if `value` exceeds it. Evaluation leaves it `None`: only callers
    /// know the bound.
    pub exceeded_bound: Option<f64>,
}

/// Why a metric has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoValue {
    /// Events that were not counted.
    #[error("not counted: {}", .0.join(", "))]
    Missing(Vec<String>),
    /// Its owner had no time on a CPU.
    #[error("it did not run in this window")]
    DidNotRun,
    /// A counter that was never on the PMU.
    #[error("{0} never ran: too many events for the counters, or others use them")]
    NeverRan(String),
    /// A counter that was on the PMU too rarely.
    #[error(
        "more than half of its time is unknown: too many events for the counters, or others use \
         them"
    )]
    MostlyUnknown,
    /// The count is 0, but its time slices were divided by time between two owners.
    #[error(
        "the count is 0, but it is an estimate: some context switches were missed, and the counts \
         between them were divided by time"
    )]
    Divided,
    /// An estimate from too few samples for its error to be known.
    #[error(
        "too few samples to know its error: a mean needs 30, a median 6, a 90th percentile 36, a \
         99th 368"
    )]
    TooFewSamples,
    /// A percentile of too few waits.
    #[error("too few waits ended: a median needs 6, a 90th percentile 36, a 99th 368")]
    TooFewWaits,
    /// A number of operations, but the core itself chooses which ones it samples.
    #[error(
        "the number of operations is not known, since the core itself chooses which ones it \
         samples: the samples tell only sources and latencies"
    )]
    ChosenByCore,
    /// An unknown quantity.
    #[error("{0} is not known")]
    NotKnown(Implicit),
    /// A division by zero.
    #[error("denominator zero: {0}")]
    DenominatorZero(String),
    /// A share above its largest possible value, because its divisor is too small.
    #[error(
        "denominator too small: {denominator} counts are too few for a share ({value:.4} where \
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
    /// The metric's source document says that the chip has no such value.
    #[error("not on {chip}: {why}")]
    NotOnChip {
        /// The key of the chip, as in `--chip`.
        chip: String,
        /// The document's reason.
        why: String,
    },
    /// The metric's source document gives the formula for one configuration of the chip only.
    #[error("not in this configuration: {0}")]
    NotConfigured(String),
    /// The result is infinite or no number.
    #[error("the result is not a finite number")]
    NotFinite,
}

impl NoValue {
    /// The reason as one word, without numbers and names.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing(_) => "not_counted",
            Self::DidNotRun => "did_not_run",
            Self::NeverRan(_) => "never_on_pmu",
            Self::MostlyUnknown => "mostly_unknown",
            Self::Divided => "divided_by_time",
            Self::TooFewSamples => "too_few_samples",
            Self::TooFewWaits => "too_few_waits",
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

/// State of one evaluation: the input, and minima over what was read so far.
pub(super) struct Evaluation<'a, I> {
    input: &'a I,
    running_ratio: f64,
    events_read: usize,
    smallest_divisor: Option<f64>,
}

impl<'a, I: Input> Evaluation<'a, I> {
    pub(super) fn new(input: &'a I) -> Self {
        Self {
            input,
            running_ratio: 1.0,
            events_read: 0,
            smallest_divisor: None,
        }
    }

    pub(super) fn evaluate(mut self, expr: &Expr) -> Result<FormulaValue, NoValue> {
        let value = self.value(expr)?;
        Ok(FormulaValue {
            value,
            running_ratio: self.running_ratio,
            smallest_divisor: self.smallest_divisor,
            exceeded_bound: None,
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
                // Only the events of the chosen branch are needed.
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
        self.running_ratio = self.running_ratio.min(sample.running_ratio);
        Ok(sample.count)
    }

    fn binary(&mut self, operator: Operator, left: &Expr, right: &Expr) -> Result<f64, NoValue> {
        let left_value = self.value(left)?;
        let read_before = self.events_read;
        let right_value = self.value(right)?;
        let result = match operator {
            Operator::Add => left_value + right_value,
            Operator::Subtract => left_value - right_value,
            Operator::Multiply => left_value * right_value,
            Operator::Divide if right_value == 0.0 => {
                return Err(NoValue::DenominatorZero(right.to_string()));
            }
            Operator::Divide => {
                if self.events_read > read_before {
                    let smallest = self.smallest_divisor.unwrap_or(f64::INFINITY);
                    self.smallest_divisor = Some(smallest.min(right_value.abs()));
                }
                left_value / right_value
            }
        };
        // Checked here, because a comparison or `min` around this operation would hide it.
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
            ComparisonOperator::Less => left < right,
            ComparisonOperator::LessOrEqual => left <= right,
            ComparisonOperator::Greater => left > right,
            ComparisonOperator::GreaterOrEqual => left >= right,
            ComparisonOperator::Equal => left == right,
            ComparisonOperator::NotEqual => left != right,
        })
    }
}
