//! The value of a metric, or the reason why there is none.

use super::{
    hardware::Hardware,
    model::{Metric, PmuSpec, Requirement},
};
use crate::formula::{Absent, Implicit, Input, NoValue, Sample, Value};

/// Below so many counts, a share above its bound is the noise of its denominator: the paper's
/// example is 644 misses of 40 requests.
const SMALL: f64 = 1_000.0;

/// The input with what the catalogue knows of the PMU.
struct WithPmu<'a, I> {
    input: &'a I,
    pmu: &'a PmuSpec,
}

impl<I: Input> Input for WithPmu<'_, I> {
    fn event(&self, name: &str) -> Result<Sample, Absent> {
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

impl Metric {
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
    /// The reason why there is no value. A share above its bound is never clamped: it says so
    /// ([`Value::above_bound`]), and has no value where its denominator is too small to say.
    pub fn evaluate(&self, machine: &Hardware, input: &impl Input) -> Result<Value, NoValue> {
        self.valid_on(machine)?;
        let input = WithPmu {
            input,
            pmu: &self.pmu,
        };
        let value = self.formula.evaluate(&input)?;
        match self.bound {
            Some(bound) if value.value > bound => match value.smallest_divisor {
                Some(denominator) if denominator < SMALL => Err(NoValue::DenominatorTooSmall {
                    value: value.value,
                    denominator,
                    bound,
                }),
                _ => Ok(Value {
                    above_bound: Some(bound),
                    ..value
                }),
            },
            _ => Ok(value),
        }
    }
}
