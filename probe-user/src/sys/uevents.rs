//! What the kernel says of CPUs that come and go: uevents, by netlink.

use std::{
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
};

use rustix::net::{
    AddressFamily, RecvFlags, SocketFlags, SocketType, bind, netlink, recv, socket_with,
};

/// The kernel's own messages, not udev's (group 2).
const KERNEL_GROUP: u32 = 1;

/// A CPU came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) cpu: u32,
    /// It came. The message may be read later than sysfs shows the CPU as online.
    pub(crate) online: bool,
}

/// Messages about CPUs, from [`Self::listen`] on.
pub(crate) struct Messages {
    /// None where this network namespace gets no such messages: then who looks at the CPUs notices.
    socket: Option<OwnedFd>,
}

impl Messages {
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

    /// Readable when a message came, where there are any.
    pub(crate) fn raw_fd(&self) -> Option<RawFd> {
        self.socket.as_ref().map(OwnedFd::as_raw_fd)
    }

    /// What came since the last call.
    pub(crate) fn changed(&self) -> Vec<Change> {
        let mut changed = Vec::new();
        let mut message = [0_u8; 4096];
        let Some(socket) = &self.socket else {
            return changed;
        };
        while let Ok((length, _)) = recv(socket, &mut message, RecvFlags::empty()) {
            changed.extend(change_of(&message[..length]));
        }
        changed
    }
}

/// `offline@/devices/system/cpu/cpu3` and `online@...` begin a message; fields follow after a NUL.
fn change_of(message: &[u8]) -> Option<Change> {
    let head = message.split(|byte| *byte == 0).next()?;
    let (action, path) = std::str::from_utf8(head).ok()?.split_once('@')?;
    let online = match action {
        "online" => true,
        "offline" => false,
        _ => return None,
    };
    let cpu = path.strip_prefix("/devices/system/cpu/cpu")?.parse().ok()?;
    Some(Change { cpu, online })
}

#[cfg(test)]
mod tests {
    use super::{Change, change_of};

    #[test]
    fn messages_about_cpus() {
        let change = |cpu, online| Some(Change { cpu, online });
        assert_eq!(
            change_of(b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0"),
            change(3, false)
        );
        assert_eq!(
            change_of(b"online@/devices/system/cpu/cpu12\0"),
            change(12, true)
        );
        assert_eq!(change_of(b"change@/devices/system/cpu/cpu3\0"), None);
        assert_eq!(change_of(b"online@/devices/system/memory/memory3\0"), None);
        assert_eq!(change_of(b"\xff\xfe"), None);
        assert_eq!(change_of(b""), None);
    }
}
