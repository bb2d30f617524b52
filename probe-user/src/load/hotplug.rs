//! CPUs that go offline and come back: their counters are dead for good then, and are opened anew.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    path::Path,
};

use probe_common::{CpuState, FlushMode, NO_GROUP};
use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
};

use super::{CpuCounters, LoadError, Session};
use crate::{cpus, descriptors};

/// The kernel's own messages, not udev's (group 2).
const KERNEL_GROUP: u32 = 1;

/// Nanoseconds in which the enabled time of a live counter cannot stand still: where a kernel does not
/// trust the CPU's clock, its own advances by ticks, of 10 ms at most.
const CERTAINLY_ENABLED: u64 = 100_000_000;

/// What the kernel says of CPUs that come and go.
pub(crate) struct Hotplug {
    /// None where this network namespace gets no such messages: then pulls notice.
    socket: Option<OwnedFd>,
    /// By CPU: the enabled time of its first group, and when it was first read so.
    seen: HashMap<u32, (u64, u64)>,
}

impl Hotplug {
    pub(crate) fn listen() -> Self {
        let open = || -> io::Result<OwnedFd> {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let protocol = Some(netlink::KOBJECT_UEVENT);
            let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
            bind(&socket, &netlink::SocketAddrNetlink::new(0, KERNEL_GROUP))?;
            Ok(socket)
        };
        Self {
            socket: open().ok(),
            seen: HashMap::new(),
        }
    }

    /// True where the counters of a CPU were read again and again, and their time stands still.
    fn stands_still(&mut self, cpu: u32, state: &CpuState) -> bool {
        let now = (state.enabled[0].last, state.since);
        let seen = self.seen.entry(cpu).or_insert(now);
        if seen.0 != now.0 {
            *seen = now;
        }
        now.1.saturating_sub(seen.1) > CERTAINLY_ENABLED
    }

    /// CPUs of which a message came since the last call.
    fn changed(&self) -> Vec<u32> {
        let mut changed = Vec::new();
        let mut message = [0_u8; 4096];
        let Some(socket) = &self.socket else {
            return changed;
        };
        while let Ok((length, _)) = recv(socket, &mut message, RecvFlags::empty()) {
            changed.extend(cpu_of(&message[..length]));
        }
        changed
    }
}

/// `offline@/devices/system/cpu/cpu3` and `online@...` begin a message; fields follow after a NUL.
fn cpu_of(message: &[u8]) -> Option<u32> {
    let head = message.split(|byte| *byte == 0).next()?;
    let (action, path) = std::str::from_utf8(head).ok()?.split_once('@')?;
    if !matches!(action, "online" | "offline") {
        return None;
    }
    path.strip_prefix("/devices/system/cpu/cpu")?.parse().ok()
}

impl Session {
    /// The descriptor that is readable when a CPU came or went, where there is one: call [`Self::drain`] then.
    #[must_use]
    pub fn hotplug_fd(&self) -> Option<RawFd> {
        self.hotplug.socket.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// Opens the counters of CPUs that came (back) online, and forgets those of CPUs that left.
    pub(crate) fn follow_cpus(&mut self) -> Result<(), LoadError> {
        let changed = self.hotplug.changed();
        let online = cpus::online(Path::new("/sys"))?;
        let known = |cpu| self.counters.iter().any(|counters| counters.cpu == cpu);
        self.uncore.look |=
            !changed.is_empty() || online.len() != self.counters.len() || !online.iter().all(known);
        let before: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        self.counters
            .retain(|counters| online.contains(counters.cpu) && !changed.contains(&counters.cpu));
        if let Some(spe) = &mut self.spe {
            spe.keep(|cpu| online.contains(cpu) && !changed.contains(&cpu));
        }
        let missing: Vec<u32> = online
            .iter()
            .filter(|cpu| self.counters.iter().all(|counters| counters.cpu != *cpu))
            .collect();
        for cpu in before.iter().filter(|cpu| !online.contains(**cpu)) {
            tracing::info!("CPU {cpu} went offline");
        }
        for cpu in missing {
            self.revive(cpu)?;
        }
        Ok(())
    }

    /// A CPU that left and came back between two looks is told by its counters, which stand still.
    pub(crate) fn revive_dead(&mut self, states: &[CpuState]) -> Result<(), LoadError> {
        let fixed = self.config.plan.fixed() > 0;
        let mut dead: Vec<u32> = self.counters.iter().map(|counters| counters.cpu).collect();
        dead.retain(|cpu| {
            let state = states.get(*cpu as usize);
            state.is_some_and(|state| {
                (fixed || state.live_events > 0) && self.hotplug.stands_still(*cpu, state)
            })
        });
        for cpu in dead {
            self.counters.retain(|counters| counters.cpu != cpu);
            self.hotplug.seen.remove(&cpu);
            self.revive(cpu)?;
        }
        Ok(())
    }

    fn revive(&mut self, cpu: u32) -> Result<(), LoadError> {
        descriptors::allow(&self.config.descriptors_on(&[cpu]))?;
        let opened = match CpuCounters::open(&self.config.plan, cpu) {
            Ok(opened) => opened,
            // It left again while its counters were opened.
            Err(_) if !cpus::online(Path::new("/sys"))?.contains(cpu) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(spe) = &mut self.spe
            && !spe.samples(cpu)
        {
            spe.open(&mut self.ebpf, cpu)?;
        }
        if self.cgroup_switches.is_some() {
            // The program's own events are dead there too, and nothing shows that new ones are complete.
            tracing::warn!("CPU {cpu} came online: using hook sched-switch from here on");
            self.fall_back()?;
        }
        self.counters.push(opened);
        if !self.config.plan.groups.is_empty() {
            // A switch must not compare the new counters with the dead ones.
            self.flush(cpu, FlushMode::Disarm, (NO_GROUP, 0))?;
            self.arm(self.counters.len() - 1)?;
        }
        tracing::info!("CPU {cpu} came online");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::cpu_of;

    #[test]
    fn messages_about_cpus() {
        assert_eq!(
            cpu_of(b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0"),
            Some(3)
        );
        assert_eq!(cpu_of(b"online@/devices/system/cpu/cpu12\0"), Some(12));
        assert_eq!(cpu_of(b"change@/devices/system/cpu/cpu3\0"), None);
        assert_eq!(cpu_of(b"online@/devices/system/memory/memory3\0"), None);
        assert_eq!(cpu_of(b"\xff\xfe"), None);
        assert_eq!(cpu_of(b""), None);
    }
}
