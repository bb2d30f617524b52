//! The systemd unit of a cgroup.

use super::directories;

/// Suffixes of the units whose cgroups have processes. Slices have none.
const UNIT_SUFFIXES: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// The systemd unit of a cgroup, such as `nginx.service` or `getty@tty1.service`: the outermost
/// unit, as in `systemctl status PID`. Below a user's own manager (`user@UID.service`) it is the
/// user's unit, as in `systemctl --user`.
#[must_use]
pub fn unit(path: &str) -> Option<&str> {
    let units = directories(path).map(|(_, name)| {
        // systemd prefixes `_` to names that could collide with the kernel's files.
        name.strip_prefix('_').unwrap_or(name)
    });
    let is_unit = |name: &&str| {
        let stem = UNIT_SUFFIXES.iter().find_map(|end| name.strip_suffix(end));
        stem.is_some_and(|stem| !stem.is_empty())
    };
    let mut units = units.filter(is_unit).peekable();
    let outermost = units.next()?;
    let is_user_manager = outermost.starts_with("user@");
    units.next().filter(|_| is_user_manager).or(Some(outermost))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_found_in_a_path() {
        let user = "/user.slice/user-1000.slice/user@1000.service";
        let cases = [
            ("/system.slice/nginx.service", Some("nginx.service")),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                Some("getty@tty1.service"),
            ),
            ("/system.slice/web.service/worker", Some("web.service")),
            ("/system.slice/a.service/b.service", Some("a.service")),
            ("/init.scope", Some("init.scope")),
            ("/system.slice/_cpu.service", Some("cpu.service")),
            (user, Some("user@1000.service")),
            (
                &format!("{user}/app.slice/web.service"),
                Some("web.service"),
            ),
            ("/system.slice", None),
            ("/system.slice/.service", None),
            ("/docker/x", None),
            ("", None),
        ];
        for (path, expected) in cases {
            assert_eq!(unit(path), expected, "{path}");
        }
    }
}
