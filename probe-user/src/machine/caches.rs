//! Data caches of CPUs, from `<sysfs>/devices/system/cpu/cpu*/cache/index*`
//! (Documentation/ABI/testing/sysfs-devices-system-cpu).

use super::{Machine, cpus::CpuList};

/// Maximum cache index: above any CPU's.
const MAX_INDEX: u32 = 16;

/// One data or unified cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cache {
    /// 1 is next to the core.
    pub level: u32,
    /// The CPUs that share it.
    pub cpus: CpuList,
    /// Bytes.
    pub size: u64,
    /// Bytes of a line; None if the kernel does not state it.
    pub line: Option<u64>,
}

impl Machine {
    /// The data and unified caches of these CPUs, each once, sorted by level. Empty if the machine
    /// does not describe them, as on some virtual machines.
    #[must_use]
    pub fn caches(&self, cpus: &CpuList) -> Vec<Cache> {
        let of_cpu = |cpu: u32| (0..MAX_INDEX).map_while(move |index| self.cache(cpu, index));
        let mut caches: Vec<Cache> = cpus.iter().flat_map(of_cpu).flatten().collect();
        caches.sort();
        caches.dedup();
        caches
    }

    /// One cache of a CPU. None: there is no cache of this index; Some(None): it is an instruction
    /// cache, or its description is incomplete.
    fn cache(&self, cpu: u32, index: u32) -> Option<Option<Cache>> {
        let file = |name: &str| {
            self.sys(&format!(
                "devices/system/cpu/cpu{cpu}/cache/index{index}/{name}"
            ))
        };
        let kind = file("type")?;
        let cache = || {
            Some(Cache {
                level: file("level")?.parse().ok()?,
                cpus: file("shared_cpu_list")?.parse().ok()?,
                size: parse_bytes(&file("size")?)?,
                line: file("coherency_line_size").and_then(|line| line.parse().ok()),
            })
        };
        Some((kind != "Instruction").then(cache).flatten())
    }
}

/// Parses a size as the kernel writes it: `32768K`.
fn parse_bytes(text: &str) -> Option<u64> {
    text.strip_suffix('K')?
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use test_support::Tree;

    use super::*;
    use crate::machine::Roots;

    #[test]
    fn a_shared_cache_is_listed_once_and_instruction_caches_are_not() {
        let root = Tree::new();
        for cpu in 0..2 {
            for (index, kind, level, size, shared) in [
                (0, "Data", 1, "48K", cpu.to_string()),
                (1, "Instruction", 1, "32K", cpu.to_string()),
                (2, "Unified", 3, "32768K", "0-1".to_owned()),
                (3, "Unified", 4, "odd", "0-1".to_owned()),
            ] {
                let write = |name: &str, text: &str| {
                    let at = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}");
                    root.write(&at, text);
                };
                write("type", kind);
                write("level", &level.to_string());
                write("size", size);
                write("shared_cpu_list", &shared);
                if level == 1 {
                    write("coherency_line_size", "64\n");
                }
            }
        }
        let machine = Machine::at(Roots::below(root.path()));
        let caches = machine.caches(&"0-1".parse().unwrap());
        let cache = |level, cpus: &str, size, line| Cache {
            level,
            cpus: cpus.parse().unwrap(),
            size,
            line,
        };
        assert_eq!(
            caches,
            [
                cache(1, "0", 49_152, Some(64)),
                cache(1, "1", 49_152, Some(64)),
                cache(3, "0-1", 33_554_432, None),
            ]
        );
        assert!(machine.caches(&"7".parse().unwrap()).is_empty());
    }
}
