//! CPU hotplug during a recording.
//!
//! Events of a cgroup or of all tasks belong to a CPU, and stop for good when that CPU goes
//! offline. Events of threads survive, but only on CPUs that were online when the recording began.
//! The buffer of a thread belongs to no CPU, and stops when its thread exits.

use std::{collections::BTreeSet, os::fd::RawFd, time::Instant};

use super::{RecordError, RecordTarget, Recorder, backend::Backend, target::threads};
use crate::sys::uevents::CpuUevents;

/// Hotplug state of a recording.
pub(super) struct CpuHotplug {
    messages: CpuUevents,
    /// CPUs that went offline, by messages that are not handled yet.
    went_offline: BTreeSet<u32>,
    /// CPUs that came online, but for which no buffer could be opened.
    refused: BTreeSet<u32>,
    /// When the list of online CPUs was last read.
    last_read: Instant,
}

impl CpuHotplug {
    /// Starts to listen. Call this before the online CPUs are first read, so that no change is
    /// missed.
    pub(super) fn listen() -> Self {
        Self {
            messages: CpuUevents::listen(),
            went_offline: BTreeSet::new(),
            refused: BTreeSet::new(),
            last_read: Instant::now(),
        }
    }

    fn take_messages(&mut self) {
        let changed = self.messages.changed().into_iter();
        let went_offline = changed.filter(|change| !change.online);
        self.went_offline
            .extend(went_offline.map(|change| change.cpu));
    }
}

impl Recorder {
    /// Descriptor that becomes readable when a CPU goes online or offline: a round is due then.
    /// None if the kernel does not report such changes.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.hotplug.messages.raw_fd()
    }

    /// Call it before a round: marks the buffers that this round drains for the last time.
    pub(super) fn mark_dead(&mut self) -> Result<(), RecordError> {
        self.hotplug.take_messages();
        let online = self.machine.online()?;
        let events_survive = matches!(self.backend, Backend::Spe(..))
            && !matches!(self.config.target, RecordTarget::Cgroup(_));
        for cpu_buffer in &mut self.cpu_buffers {
            cpu_buffer.dead |= cpu_buffer.ended;
            let Some(cpu) = cpu_buffer.buffer.cpu else {
                continue;
            };
            let offline = !online.contains(cpu);
            if (self.hotplug.went_offline.remove(&cpu) || offline) && !cpu_buffer.offline {
                self.counts.cpu_offline_events += 1;
                cpu_buffer.dead = !events_survive;
                tracing::info!("CPU {cpu} went offline: what its core had not handed over is lost");
            }
            cpu_buffer.offline = offline;
        }
        Ok(())
    }

    /// Call it after a round: frees the marked buffers, and opens a buffer for each online CPU that
    /// has none.
    pub(super) fn reopen_buffers(&mut self) -> Result<(), RecordError> {
        for cpu_buffer in self
            .cpu_buffers
            .extract_if(.., |cpu_buffer| cpu_buffer.dead)
        {
            cpu_buffer.count_unreported_losses(&mut self.counts);
        }
        if !self.config.per_thread {
            let cpus = self.cpus_to_sample()?;
            // Messages received so far are older than this list of CPUs.
            self.hotplug.take_messages();
            let is_listed = |cpu: &u32| cpus.iter().any(|(listed, _)| listed == cpu);
            self.hotplug.refused.retain(is_listed);
            for (cpu, kind) in cpus {
                let has_buffer = self
                    .cpu_buffers
                    .iter()
                    .any(|cpu_buffer| cpu_buffer.buffer.cpu == Some(cpu));
                if !has_buffer && !self.hotplug.refused.contains(&cpu) {
                    self.hotplug.went_offline.remove(&cpu);
                    self.add_cpu(cpu, kind)?;
                }
            }
        }
        self.hotplug.last_read = Instant::now();
        Ok(())
    }

    /// Opens a buffer for a CPU that came online. If that fails, the other CPUs are still recorded.
    fn add_cpu(&mut self, cpu: u32, kind: usize) -> Result<(), RecordError> {
        let buffers_before = self.cpu_buffers.len();
        let opened = match self.config.target.clone() {
            _ if matches!(self.backend, Backend::Events(..)) => self.open_accesses(&[(cpu, kind)]),
            RecordTarget::Cgroup(path) => self.open_cgroup(&[(cpu, kind)], &path),
            RecordTarget::Command(pid) | RecordTarget::Process(pid) => {
                let mut tids = threads(&self.machine, pid).unwrap_or_default();
                tids.extend(self.tasks().living());
                tids.sort_unstable();
                tids.dedup();
                self.open_threads(&[(cpu, kind)], pid, &tids, false)
            }
        };
        let enabled = opened.and_then(|()| {
            let mut new = self.cpu_buffers[buffers_before..].iter();
            new.try_for_each(|cpu_buffer| cpu_buffer.buffer.enable())
        });
        match enabled {
            Ok(()) => tracing::info!("CPU {cpu} came online"),
            // All processes of the target have exited.
            Err(RecordError::NoProcess(_)) => return Ok(()),
            // The CPU went offline again meanwhile.
            Err(_) if !self.machine.online()?.contains(cpu) => {
                self.cpu_buffers.truncate(buffers_before);
                return Ok(());
            }
            Err(error) => {
                tracing::warn!("CPU {cpu} came online and is not recorded: {error}");
                self.cpu_buffers.truncate(buffers_before);
                self.hotplug.refused.insert(cpu);
                self.counts.cpus_refused += 1;
            }
        }
        // The CPU may have been online since the list of CPUs was last read.
        let since = self.hotplug.last_read.elapsed().as_nanos();
        self.counts.unsampled_cpu_ns += u64::try_from(since).unwrap_or(u64::MAX);
        Ok(())
    }
}
