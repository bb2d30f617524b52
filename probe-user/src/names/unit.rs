//! The systemd unit of a cgroup.

use super::directories;

/// Suffixes of units with processes in their cgroups. Slices have none.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// The systemd unit of a cgroup, such as `nginx.service` or `getty@tty1.service`: the outermost
/// unit, as in `systemctl status PID`. In a user's own manager it is the user's unit, as in
/// `systemctl --user`.
#[must_use]
pub fn unit(path: &str) -> Option<&str> {
    let units = directories(path).map(|(_, name)| {
        // systemd prefixes `_` to names that could collide with the kernel's files.
        name.strip_prefix('_').unwrap_or(name)
    });
    let is_unit = |name: &&str| {
        let stem = UNITS.iter().find_map(|end| name.strip_suffix(end));
        stem.is_some_and(|stem| !stem.is_empty())
    };
    let mut units = units.filter(is_unit).peekable();
    let first = units.next()?;
    let of_user = first.starts_with("user@");
    units.next().filter(|_| of_user).or(Some(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_give_systemd_units() {
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
