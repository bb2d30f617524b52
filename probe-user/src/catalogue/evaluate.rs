//! The value of a metric, or the reason why there is none.

use super::{
    hardware::Hardware,
    model::{Metric, PmuSpec, Requirement},
};
use crate::formula::{Absent, EventCount, FormulaValue, Implicit, Input, NoValue};

/// With fewer counts in the denominator, a share above its bound is noise. The DDIO paper's example
/// is 644 misses of 40 requests.
const MIN_DENOMINATOR: f64 = 1_000.0;

/// The input; if it has no `slots`, they are those of the PMU in the catalogue.
struct WithPmu<'a, I> {
    input: &'a I,
    pmu: &'a PmuSpec,
}

impl<I: Input> Input for WithPmu<'_, I> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        self.input.event(name)
    }

    fn implicit(&self, implicit: Implicit) -> Option<f64> {
        let given = self.input.implicit(implicit);
        match implicit {
            Implicit::Slots => given.or(self.pmu.slots.map(f64::from)),
            _ => given,
        }
    }
}

/// Values of metrics, as the input of a threshold.
struct Values<F>(F);

impl<F: Fn(&str) -> Option<f64>> Input for Values<F> {
    fn event(&self, name: &str) -> Result<EventCount, Absent> {
        let count = (self.0)(name).ok_or(Absent::Missing)?;
        Ok(EventCount {
            count,
            running_ratio: 1.0,
        })
    }

    fn implicit(&self, _: Implicit) -> Option<f64> {
        None
    }
}

impl Metric {
    /// Whether its value deserves attention ([`Self::threshold`]), by the values of metrics in one
    /// place. False if a metric that the threshold names has no value there.
    pub(crate) fn is_over_threshold(&self, value_of: impl Fn(&str) -> Option<f64>) -> bool {
        let threshold = self.threshold.as_ref();
        let value = threshold.and_then(|it| it.evaluate(&Values(value_of)).ok());
        value.is_some_and(|value| value.value != 0.0)
    }

    /// Whether the documents give it a value on this machine.
    ///
    /// # Errors
    /// The reason why they do not.
    pub fn valid_on(&self, machine: &Hardware) -> Result<(), NoValue> {
        if let Some(chip) = machine.chip
            && let Some(why) = self.not_on.get(&chip)
        {
            return Err(NoValue::NotOnChip {
                chip: chip.to_string(),
                why: why.clone(),
            });
        }
        match (self.requires, machine.gpus_per_socket) {
            (None, _) | (Some(Requirement::OneGpu), Some(1)) => Ok(()),
            (Some(Requirement::OneGpu), Some(gpus)) => Err(NoValue::NotConfigured(format!(
                "the request limit is stated for one GPU, and each socket has {gpus}"
            ))),
            (Some(Requirement::OneGpu), None) => Err(NoValue::NotConfigured(
                "the request limit is stated for one GPU per socket, and their number is not \
                 known: --chip grace-hopper says that it is one"
                    .to_owned(),
            )),
        }
    }

    /// Its value for these counts.
    ///
    /// # Errors
    /// The reason why there is no value. A share above its bound is never clamped: it is marked
    /// (`FormulaValue::exceeded_bound`), or has no value if its denominator is too small.
    pub fn evaluate(
        &self,
        machine: &Hardware,
        input: &impl Input,
    ) -> Result<FormulaValue, NoValue> {
        self.valid_on(machine)?;
        let input = WithPmu {
            input,
            pmu: &self.pmu,
        };
        let value = self.formula.evaluate(&input)?;
        match self.bound {
            Some(bound) if value.value > bound => match value.smallest_divisor {
                Some(denominator) if denominator < MIN_DENOMINATOR => {
                    Err(NoValue::DenominatorTooSmall {
                        value: value.value,
                        denominator,
                        bound,
                    })
                }
                _ => Ok(FormulaValue {
                    exceeded_bound: Some(bound),
                    ..value
                }),
            },
            _ => Ok(value),
        }
    }
}
