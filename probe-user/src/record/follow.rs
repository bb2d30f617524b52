//! CPUs that go offline and come back while a recording goes on.
//!
//! Events of a cgroup, and those of all tasks, belong to a CPU and are dead for good once that CPU
//! was offline. Events of threads survive, but a CPU that was offline when the recording began has
//! none of them. The buffer of a thread belongs to no CPU, and is dead once its thread has ended.

use std::{collections::BTreeSet, os::fd::RawFd, time::Instant};

use super::{RecordError, Recorder, Target, method::Means, target::threads};
use crate::sys::uevents::Messages;

/// Which CPUs a recording knows to be online.
pub(super) struct Cpus {
    messages: Messages,
    /// CPUs that went offline, from messages that were not handled yet.
    left: BTreeSet<u32>,
    /// CPUs that came online and got no buffer.
    refused: BTreeSet<u32>,
    /// When the online CPUs were last read.
    looked: Instant,
}

impl Cpus {
    /// Starts to listen. Call this before the CPUs are read for the first time, so that no change
    /// is missed.
    pub(super) fn listen() -> Self {
        Self {
            messages: Messages::listen(),
            left: BTreeSet::new(),
            refused: BTreeSet::new(),
            looked: Instant::now(),
        }
    }

    fn take_messages(&mut self) {
        let changed = self.messages.changed().into_iter();
        let left = changed.filter(|change| !change.online);
        self.left.extend(left.map(|change| change.cpu));
    }
}

impl Recorder {
    /// The descriptor that is readable when a CPU came or went, where there is one: a round is due
    /// then.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.cpus.messages.raw_fd()
    }

    /// Marks, before a round, the buffers that this round drains for the last time.
    pub(super) fn mark_dead(&mut self) -> Result<(), RecordError> {
        self.cpus.take_messages();
        let online = self.machine.online()?;
        let of_threads = matches!(self.means, Means::Spe(..))
            && !matches!(self.config.target, Target::Cgroup(_));
        for area in &mut self.areas {
            area.dead |= area.ended;
            let Some(cpu) = area.buffer.cpu else { continue };
            let away = !online.contains(cpu);
            if (self.cpus.left.remove(&cpu) || away) && !area.away {
                self.counts.cpus_left += 1;
                area.dead = !of_threads;
                tracing::info!("CPU {cpu} went offline: what its core had not handed over is lost");
            }
            area.away = away;
        }
        Ok(())
    }

    /// After a round, frees those buffers and gives one to each online CPU without one.
    pub(super) fn revive(&mut self) -> Result<(), RecordError> {
        for area in self.areas.extract_if(.., |area| area.dead) {
            area.count_rest(&mut self.counts);
        }
        if !self.config.per_thread {
            let sampled = self.sampled()?;
            // Messages about these CPUs so far are older than what was read here.
            self.cpus.take_messages();
            let online = |cpu: &u32| sampled.iter().any(|(one, _)| one == cpu);
            self.cpus.refused.retain(online);
            for (cpu, kind) in sampled {
                let has = self.areas.iter().any(|area| area.buffer.cpu == Some(cpu));
                if !has && !self.cpus.refused.contains(&cpu) {
                    self.cpus.left.remove(&cpu);
                    self.arrive(cpu, kind)?;
                }
            }
        }
        self.cpus.looked = Instant::now();
        Ok(())
    }

    /// Makes a buffer for a CPU that came online. If this fails the other CPUs go on.
    fn arrive(&mut self, cpu: u32, kind: usize) -> Result<(), RecordError> {
        let first = self.areas.len();
        let opened = match self.config.target.clone() {
            _ if matches!(self.means, Means::Events(..)) => self.open_accesses(&[(cpu, kind)]),
            Target::Cgroup(path) => self.open_cgroup(&[(cpu, kind)], &path),
            Target::Command(pid) | Target::Process(pid) => {
                let mut all = threads(&self.machine, pid).unwrap_or_default();
                all.extend(self.tasks().living());
                all.sort_unstable();
                all.dedup();
                self.open_threads(&[(cpu, kind)], pid, &all, false)
            }
        };
        let enabled = opened.and_then(|()| {
            let mut new = self.areas[first..].iter();
            new.try_for_each(|area| area.buffer.enable())
        });
        match enabled {
            Ok(()) => tracing::info!("CPU {cpu} came online"),
            // All processes to record have ended.
            Err(RecordError::NoProcess(_)) => return Ok(()),
            // The CPU went offline again meanwhile.
            Err(_) if !self.machine.online()?.contains(cpu) => return Ok(()),
            Err(error) => {
                tracing::warn!("CPU {cpu} came online and is not recorded: {error}");
                self.areas.truncate(first);
                self.cpus.refused.insert(cpu);
                self.counts.cpus_refused += 1;
            }
        }
        // It may have been online for as long as that.
        let since = self.cpus.looked.elapsed().as_nanos();
        self.counts.unsampled_cpu_ns += u64::try_from(since).unwrap_or(u64::MAX);
        Ok(())
    }
}
