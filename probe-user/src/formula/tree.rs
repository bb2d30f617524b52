//! The tree of a formula, and its printing.

use std::fmt;

/// A quantity that a formula may use without an event of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Implicit {
    /// `duration_time`, in ns. For uncore PMUs the time for which the group was on the PMU, for
    /// cores the wall time of the window.
    DurationTime,
    /// `seconds`: `duration_time` in seconds.
    Seconds,
    /// `counter_time`: enabled time of the owner's counter group on the core, in ns. It covers the
    /// same time as the counts. Clock events are corrected to begin at the context switch; this
    /// time and the counts are not.
    CounterTime,
    /// `num_cpus`: number of counted CPUs.
    NumCpus,
    /// `slots`: operations that the core can issue per cycle (`caps/slots`, Arm's
    /// `PMMIR_EL1.SLOTS`).
    Slots,
    /// `num_units`: number of units of the uncore PMU that were summed.
    NumUnits,
    /// `num_ports`: number of root ports that the filter selects.
    NumPorts,
    /// `num_sockets`: number of sockets whose counts were summed.
    NumSockets,
    /// `smt_on`: 1 if cores run two threads, else 0.
    SmtOn,
    /// `tsc_frequency`: Hz of the time stamp counter.
    TscFrequency,
}

impl Implicit {
    /// All quantities.
    pub const ALL: [Self; 10] = [
        Self::DurationTime,
        Self::Seconds,
        Self::CounterTime,
        Self::NumCpus,
        Self::Slots,
        Self::NumUnits,
        Self::NumPorts,
        Self::NumSockets,
        Self::SmtOn,
        Self::TscFrequency,
    ];

    /// Its name in formulas.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::DurationTime => "duration_time",
            Self::Seconds => "seconds",
            Self::CounterTime => "counter_time",
            Self::NumCpus => "num_cpus",
            Self::Slots => "slots",
            Self::NumUnits => "num_units",
            Self::NumPorts => "num_ports",
            Self::NumSockets => "num_sockets",
            Self::SmtOn => "smt_on",
            Self::TscFrequency => "tsc_frequency",
        }
    }

    /// The quantity of that name; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|implicit| implicit.name() == name)
    }
}

impl fmt::Display for Implicit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(f64),
    Event(String),
    Implicit(Implicit),
    Negate(Box<Self>),
    Binary(Operator, Box<Self>, Box<Self>),
    /// At least two arguments.
    Extreme(Extreme, Vec<Self>),
    If {
        then: Box<Self>,
        condition: Box<Condition>,
        otherwise: Box<Self>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extreme {
    Min,
    Max,
}

/// A condition; without a comparison it holds if `left` is not 0.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) left: Expr,
    pub(super) comparison: Option<(ComparisonOperator, Expr)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparisonOperator {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Equal,
    NotEqual,
}

impl Expr {
    /// Calls `each` for this expression and all nested ones, left to right.
    pub(super) fn visit(&self, each: &mut impl FnMut(&Self)) {
        each(self);
        match self {
            Self::Number(_) | Self::Event(_) | Self::Implicit(_) => {}
            Self::Negate(inner) => inner.visit(each),
            Self::Binary(_, left, right) => {
                left.visit(each);
                right.visit(each);
            }
            Self::Extreme(_, arguments) => {
                arguments.iter().for_each(|argument| argument.visit(each));
            }
            Self::If {
                then,
                condition,
                otherwise,
            } => {
                then.visit(each);
                condition.left.visit(each);
                if let Some((_, right)) = &condition.comparison {
                    right.visit(each);
                }
                otherwise.visit(each);
            }
        }
    }
}

impl Operator {
    pub(super) fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
        }
    }

    /// A higher precedence binds tighter.
    fn precedence(self) -> u8 {
        match self {
            Self::Add | Self::Subtract => 1,
            Self::Multiply | Self::Divide => 2,
        }
    }
}

impl Extreme {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
        }
    }
}

impl ComparisonOperator {
    /// All operators. Longer signs come first, since `<=` begins with `<`.
    pub(super) const ALL: [Self; 6] = [
        Self::LessOrEqual,
        Self::GreaterOrEqual,
        Self::Equal,
        Self::NotEqual,
        Self::Less,
        Self::Greater,
    ];

    pub(super) fn sign(self) -> &'static str {
        match self {
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
        }
    }
}

/// Prints with the fewest parentheses that parse back to the same tree.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

impl Expr {
    /// Writes the expression; in parentheses if its precedence is lower than `outer`, that of the
    /// expression around it.
    fn write(&self, f: &mut fmt::Formatter<'_>, outer: u8) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:?}"),
            Self::Event(name) => f.write_str(name),
            Self::Implicit(implicit) => f.write_str(implicit.name()),
            Self::Negate(inner) => parenthesised(f, outer > 3, |f| {
                f.write_str("-")?;
                inner.write(f, 4)
            }),
            Self::Extreme(extreme, arguments) => {
                write!(f, "{}(", extreme.name())?;
                for (at, argument) in arguments.iter().enumerate() {
                    if at > 0 {
                        f.write_str(", ")?;
                    }
                    argument.write(f, 0)?;
                }
                f.write_str(")")
            }
            Self::Binary(operator, left, right) => {
                let own = operator.precedence();
                parenthesised(f, own < outer, |f| {
                    left.write(f, own)?;
                    write!(f, " {} ", operator.sign())?;
                    // Operators of one precedence group to the left.
                    right.write(f, own + 1)
                })
            }
            Self::If {
                then,
                condition,
                otherwise,
            } => parenthesised(f, outer > 0, |f| {
                then.write(f, 1)?;
                f.write_str(" if ")?;
                condition.left.write(f, 1)?;
                if let Some((comparison, right)) = &condition.comparison {
                    write!(f, " {} ", comparison.sign())?;
                    right.write(f, 1)?;
                }
                f.write_str(" else ")?;
                otherwise.write(f, 0)
            }),
        }
    }
}

fn parenthesised(
    f: &mut fmt::Formatter<'_>,
    needed: bool,
    write: impl FnOnce(&mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    if needed {
        f.write_str("(")?;
    }
    write(f)?;
    if needed {
        f.write_str(")")?;
    }
    Ok(())
}
