//! Reports CPU hotplug, from the kernel's uevents (netlink).

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
};

/// Multicast group of the kernel's own messages; udev's are in group 2.
const KERNEL_GROUP: u32 = 1;

/// A CPU went online or offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuChange {
    pub(crate) cpu: u32,
    /// Whether it went online. The message may be read after sysfs shows the CPU as online.
    pub(crate) online: bool,
}

/// Uevents about CPUs since [`Self::listen`].
pub(crate) struct CpuUevents {
    /// None if this network namespace gets no uevents. Then changes are found only by reading the
    /// online CPUs again.
    socket: Option<OwnedFd>,
}

impl CpuUevents {
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
        }
    }

    /// Descriptor that is readable when a message has arrived; None without a socket.
    pub(crate) fn raw_fd(&self) -> Option<RawFd> {
        self.socket.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// Takes the changes since the last call.
    pub(crate) fn changed(&self) -> Vec<CpuChange> {
        let mut changed = Vec::new();
        let mut message = [0_u8; 4096];
        let Some(socket) = &self.socket else {
            return changed;
        };
        while let Ok((length, _)) = recv(socket, &mut message, RecvFlags::empty()) {
            changed.extend(parse(&message[..length]));
        }
        changed
    }
}

/// `offline@/devices/system/cpu/cpu3` and `online@...` begin a message; fields follow after a NUL.
fn parse(message: &[u8]) -> Option<CpuChange> {
    let head = message.split(|byte| *byte == 0).next()?;
    let (action, path) = std::str::from_utf8(head).ok()?.split_once('@')?;
    let online = match action {
        "online" => true,
        "offline" => false,
        _ => return None,
    };
    let cpu = path.strip_prefix("/devices/system/cpu/cpu")?.parse().ok()?;
    Some(CpuChange { cpu, online })
}

#[cfg(test)]
mod tests {
    use super::{CpuChange, parse};

    #[test]
    fn only_messages_about_cpus_are_parsed() {
        let change = |cpu, online| Some(CpuChange { cpu, online });
        assert_eq!(
            parse(b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0"),
            change(3, false)
        );
        assert_eq!(
            parse(b"online@/devices/system/cpu/cpu12\0"),
            change(12, true)
        );
        assert_eq!(parse(b"change@/devices/system/cpu/cpu3\0"), None);
        assert_eq!(parse(b"online@/devices/system/memory/memory3\0"), None);
        assert_eq!(parse(b"\xff\xfe"), None);
        assert_eq!(parse(b""), None);
    }
}
