//! Neighbours on the CPUs: containers that wait for CPUs behind others for longer than usual.

use super::{
    Judgement, NeighbourEvidence, NeighbourVerdict, container_values, suspects,
    usual::{Histories, tolerance},
};
use crate::{
    derive::Report,
    join::{EntityWaits, WaitRows, WaitedFor},
    window::float,
};

/// The metric of the part of its time that a container waits.
const WAIT_RATIO: &str = "cpu_wait_ratio";

/// The smallest increase of that part that counts, however steady a container is.
const LEAST_INCREASE: f64 = 0.05;

/// The shortest waits behind others that count, as a part of the window.
const LEAST_WAIT: f64 = 0.01;

/// Detects containers that suffer from others on their CPUs.
#[derive(Debug, Default)]
pub(super) struct CpuNeighbours {
    pub(super) histories: Histories,
}

impl CpuNeighbours {
    /// Judges a window.
    pub(super) fn judge(&mut self, report: &Report, waits: &WaitRows) -> Judgement {
        let window = (report.end.saturating_sub(report.start)).as_secs_f64() * 1e9;
        let no_waits = EntityWaits::default();
        let mut judgement = Judgement::default();
        for (entity, ratio) in container_values(report, WAIT_RATIO) {
            // A container without a row did not wait.
            let row = waits.entities.get(&entity).unwrap_or(&no_waits);
            // A quota makes a container wait for itself, whoever ran meanwhile.
            if row.throttled {
                continue;
            }
            let others = float(row.waited_for_others);
            let value = match row.waited {
                0 => 0.0,
                waited => ratio * others / float(waited),
            };
            let history = self.histories.entry(&entity);
            let Some(usual) = history.usual() else {
                history.add_calm(value);
                continue;
            };
            let (mean, _) = usual;
            let is_long =
                value > mean + tolerance(usual, LEAST_INCREASE) && others >= LEAST_WAIT * window;
            if !is_long {
                history.add_calm(value);
            }
            let outcome = history.judge(is_long, usual);
            judgement.judged.insert(entity.clone(), outcome.suffers);
            if outcome.suffers {
                let parts = row
                    .behind
                    .iter()
                    .filter_map(|(behind, nanos)| match behind {
                        WaitedFor::Entity(other) => {
                            Some((other, float(*nanos) / float(row.waited)))
                        }
                        _ => None,
                    });
                judgement.verdicts.push(NeighbourVerdict {
                    suspects: suspects(parts, &entity),
                    evidence: NeighbourEvidence::Cpu,
                    value,
                    usual: outcome.usual,
                    begins: outcome.begins,
                    victim: entity,
                });
            }
        }
        judgement
    }
}
