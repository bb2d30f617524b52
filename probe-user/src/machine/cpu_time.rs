//! CPU time of all CPUs since boot, from `/proc/stat` (`proc_stat(5)`).

use std::time::Duration;

use super::Machine;

/// Ticks per second in user space (`USER_HZ`), the same on all supported architectures.
const TICKS_PER_SECOND: u64 = 100;

/// CPU time of all CPUs together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Time in tasks of any cgroup and in interrupts.
    pub busy: Duration,
    /// Time that the hypervisor took from busy CPUs (steal time).
    pub stolen: Duration,
}

impl CpuTime {
    /// CPU time since boot; None if it cannot be read.
    #[must_use]
    pub fn now(machine: &Machine) -> Option<Self> {
        parse(&machine.proc("stat")?)
    }

    /// CPU time since an earlier reading.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            busy: self.busy.saturating_sub(earlier.busy),
            stolen: self.stolen.saturating_sub(earlier.stolen),
        }
    }
}

/// Parses the first line: `cpu user nice system idle iowait irq softirq steal guest guest_nice`.
/// `user` and `nice` include guest time.
fn parse(stat: &str) -> Option<CpuTime> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Option<Vec<u64>> = line
        .split_whitespace()
        .map(|ticks| ticks.parse().ok())
        .collect();
    let [user, nice, system, _, _, irq, softirq, steal, ..] = ticks?[..] else {
        return None;
    };
    let time = |ticks: u64| Duration::from_millis(ticks.saturating_mul(1000 / TICKS_PER_SECOND));
    Some(CpuTime {
        busy: time(user + nice + system + irq + softirq),
        stolen: time(steal),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy() {
        let now = parse("cpu  100 20 30 9999 50 4 6 7 80 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n").unwrap();
        // 100 + 20 + 30 + 4 + 6 ticks of 10 ms.
        assert_eq!(now.busy, Duration::from_millis(1600));
        assert_eq!(now.stolen, Duration::from_millis(70));
        let before = parse("cpu 90 20 30 9000 50 4 6 7 0 0").unwrap();
        assert_eq!(now.since(&before).busy, Duration::from_millis(100));
        assert_eq!(before.since(&now), CpuTime::default());
        for text in ["", "cpu 1 2 3", "intr 5", "cpu a b c d e f g h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
