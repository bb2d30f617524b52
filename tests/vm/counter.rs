//! Perf events of tests, opened without pmuscope.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    os::fd::{AsRawFd as _, FromRawFd as _, RawFd},
};

use perf_event_open_sys::{
    bindings::{PERF_FLAG_FD_CLOEXEC, perf_event_attr},
    ioctls,
};

/// The tasks and CPUs that an event counts.
pub(crate) enum Target<'a> {
    /// This thread, on every CPU.
    This,
    /// The tasks of a cgroup (its open directory), on one CPU.
    Cgroup(&'a File, i32),
}

/// The privilege levels at which an event counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Levels {
    User,
    All,
}

pub(crate) struct Counter(File);

impl Counter {
    /// Opens a disabled event that counts user mode only.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open(kind: u32, config: u64, target: &Target<'_>) -> io::Result<Self> {
        Self::open_at(Levels::User, kind, config, target)
    }

    /// Opens a disabled event that counts at these levels.
    ///
    /// # Errors
    /// The kernel's error.
    pub(crate) fn open_at(
        levels: Levels,
        kind: u32,
        config: u64,
        target: &Target<'_>,
    ) -> io::Result<Self> {
        let mut attr = perf_event_attr {
            type_: kind,
            size: u32::try_from(size_of::<perf_event_attr>()).expect("a small struct"),
            config,
            ..Default::default()
        };
        attr.set_disabled(1);
        let user_alone = u64::from(levels == Levels::User);
        attr.set_exclude_kernel(user_alone);
        attr.set_exclude_hv(user_alone);
        let (pid, cpu, flags) = match target {
            Target::This => (0, -1, 0),
            Target::Cgroup(directory, cpu) => (
                directory.as_raw_fd(),
                *cpu,
                perf_event_open_sys::bindings::PERF_FLAG_PID_CGROUP,
            ),
        };
        let flags = flags | PERF_FLAG_FD_CLOEXEC;
        // SAFETY: attr is a valid attribute of the size it states.
        #[expect(clippy::disallowed_methods, reason = "without pmuscope")]
        let fd: RawFd = unsafe {
            perf_event_open_sys::perf_event_open(&raw mut attr, pid, cpu, -1, flags.into())
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, and nothing else owns it.
        Ok(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// The event's count while `work` ran.
    pub(crate) fn count(&mut self, work: impl FnOnce()) -> u64 {
        let before = self.read();
        self.enable();
        work();
        let fd = self.0.as_raw_fd();
        // SAFETY: as above.
        assert_eq!(unsafe { ioctls::DISABLE(fd, 0) }, 0);
        self.read() - before
    }

    pub(crate) fn enable(&self) {
        // SAFETY: the descriptor is an open perf event.
        assert_eq!(unsafe { ioctls::ENABLE(self.0.as_raw_fd(), 0) }, 0);
    }

    pub(crate) fn read(&mut self) -> u64 {
        let mut value = [0; 8];
        self.0
            .read_exact(&mut value)
            .expect("a perf event can be read");
        u64::from_ne_bytes(value)
    }
}

/// The type number of the PMU that sysfs calls `name`; None if there is none.
pub(crate) fn pmu_type(name: &str) -> Option<u32> {
    let path = format!("/sys/bus/event_source/devices/{name}/type");
    let number = fs::read_to_string(path).ok()?;
    Some(number.trim().parse().expect("a PMU's type is a number"))
}
