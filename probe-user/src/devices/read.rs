//! Reads the tree of devices from sysfs.

use std::{collections::BTreeMap, fs, path::Path};

use super::{
    Complex, ComplexKind, ConfigSpaceError, Device, Devices, GpuLink, PciePmu, Port, names,
    stack::Stack,
};
use crate::{
    catalogue::{Accelerator, Catalogue, FoundBy, Hardware},
    machine::{
        Bdf, Machine, Pmus,
        config_space::{self, root_bus_and_port},
    },
};

/// Domain and bus of the chipset's root bus.
const CHIPSET: (u32, u8) = (0, 0);

/// Base class of bridges, including host bridges.
const BRIDGE: u32 = 0x06;

/// A function as sysfs shows it.
struct PciFunction {
    address: Bdf,
    /// Domain and bus of its root bus.
    root_bus: (u32, u8),
    /// The function on the root bus that it is behind; itself if it is on that bus.
    port: Bdf,
    device: Device,
    /// Its NUMA node; `None` if unknown.
    node: Option<u32>,
}

impl Devices {
    /// Reads the devices of a machine; the catalogue says which PMUs count devices. On Tegra410 the
    /// root complexes of devices are readable with `CAP_SYS_ADMIN` only, so this must run before
    /// capabilities are dropped.
    #[must_use]
    pub fn read(machine: &Machine, pmus: &Pmus, catalogue: &Catalogue) -> Self {
        let (sysfs, topology) = (machine.sysfs(), machine.topology());
        let pcie = PciePmus::find(machine, pmus, catalogue);
        let mut devices = Self {
            links: pcie.links.clone(),
            ..Self::default()
        };
        let mut complexes: BTreeMap<(u32, ComplexKind), Complex> = BTreeMap::new();
        for (socket, kind, pmu) in pcie.complexes() {
            let complex = complexes
                .entry((socket.unwrap_or(u32::MAX), kind))
                .or_insert_with(|| Complex::new(socket, kind));
            complex.pmus.push(pmu);
        }
        let mut functions = functions(sysfs);
        functions.sort_by_key(|function| (function.port, function.address));
        for of_port in functions.chunk_by(|a, b| a.port == b.port) {
            let port = &of_port[0];
            // The port is a bridge if its first function is behind it, even if its own entry could
            // not be read.
            let is_bridge = port.address != port.port || port.is_bridge();
            let location = pcie.locate(sysfs, port, is_bridge).unwrap_or_else(|error| {
                devices.problems.insert(port.port, error);
                None
            });
            let (socket, kind, numbers) = location.unwrap_or_else(|| {
                let socket = port.node.and_then(|node| topology.socket_of_node(node));
                let (domain, bus) = port.root_bus;
                (socket, ComplexKind::RootBus(domain, bus), Vec::new())
            });
            let endpoints: Vec<Device> = of_port
                .iter()
                .filter(|function| !function.is_bridge())
                .map(|function| function.device.clone())
                .collect();
            let complex = complexes
                .entry((socket.unwrap_or(u32::MAX), kind))
                .or_insert_with(|| Complex::new(socket, kind));
            complex.ports.push(Port {
                address: port.port,
                numbers,
                devices: endpoints,
            });
        }
        // A root bus that has only bridges is left out.
        devices.complexes = complexes
            .into_values()
            .filter(|complex| {
                let has_devices = complex.ports.iter().any(|port| !port.devices.is_empty());
                has_devices || !complex.pmus.is_empty()
            })
            .collect();
        devices
    }
}

impl PciFunction {
    fn is_bridge(&self) -> bool {
        self.device.class >> 16 == BRIDGE
    }
}

impl Complex {
    fn new(socket: Option<u32>, kind: ComplexKind) -> Self {
        Self {
            socket,
            kind,
            pmus: Vec::new(),
            ports: Vec::new(),
        }
    }
}

/// The PMUs of this machine that count `PCIe` traffic, by the way their devices are found.
#[derive(Debug, Default)]
struct PciePmus {
    /// PMUs by socket, whose devices are found by PCI domain.
    sockets: BTreeMap<u32, Vec<PciePmu>>,
    /// PMUs by socket and root complex, whose devices are found by a register of the root port.
    root_complexes: BTreeMap<(u32, u32), Vec<PciePmu>>,
    /// PMU, stack and die by root bus. Devices are found by the die files of the PMU.
    stacks: BTreeMap<(u32, u8), (PciePmu, u32, u32)>,
    /// PMUs of stacks with unknown root buses, and the numbers of the stacks.
    unmapped: Vec<(PciePmu, u32)>,
    /// For each PMU, the number of ports that its filter distinguishes.
    ports: BTreeMap<String, u32>,
    links: Vec<GpuLink>,
}

/// The socket of a port, its complex, and its numbers in the complex.
type PortLocation = (Option<u32>, ComplexKind, Vec<u32>);

impl PciePmus {
    fn find(machine: &Machine, pmus: &Pmus, catalogue: &Catalogue) -> Self {
        let (sysfs, platform) = (machine.sysfs(), Hardware::detect(machine).platform);
        let mut pcie_pmus = Self::default();
        for pmu in pmus.iter() {
            let name = pmu.alias.as_ref().unwrap_or(&pmu.name);
            let Some((spec, instance)) = catalogue.devices_of(name, platform) else {
                continue;
            };
            let format = spec.ports.as_ref().and_then(|term| pmu.formats.get(term));
            pcie_pmus
                .ports
                .extend(format.map(|format| (name.clone(), format.width())));
            let socket = instance.socket.map(|node| pmus.socket_named(node));
            let by = spec.by;
            let pcie_pmu = PciePmu {
                name: name.clone(),
                spec,
            };
            match (by, socket, instance.root_complex, instance.unit) {
                (FoundBy::Domain, Some(socket), ..) => {
                    pcie_pmus.sockets.entry(socket).or_default().push(pcie_pmu);
                }
                (FoundBy::Register, Some(socket), Some(complex), _) => {
                    let of_complex = pcie_pmus.root_complexes.entry((socket, complex));
                    of_complex.or_default().push(pcie_pmu);
                }
                (FoundBy::DieFiles, _, _, Some(stack)) => {
                    let dir = sysfs.join("bus/event_source/devices").join(&pmu.name);
                    let dies = dies(&dir);
                    if dies.is_empty() {
                        pcie_pmus.unmapped.push((pcie_pmu, stack));
                        continue;
                    }
                    for (die, bus) in dies {
                        pcie_pmus.stacks.insert(bus, (pcie_pmu.clone(), stack, die));
                    }
                }
                (FoundBy::Gpus { vendor }, ..) => pcie_pmus.links.push(GpuLink {
                    pmu: name.clone(),
                    vendor,
                    devices: catalogue.linked_gpus(name),
                }),
                // The PMU's name lacks the numbers that this kind of search needs.
                (FoundBy::Domain | FoundBy::Register | FoundBy::DieFiles, ..) => {}
            }
        }
        pcie_pmus
    }

    /// The complexes that PMUs count, with or without devices.
    fn complexes(&self) -> Vec<(Option<u32>, ComplexKind, PciePmu)> {
        let sockets = self.sockets.iter().flat_map(|(socket, pmus)| {
            let pmus = pmus.iter();
            pmus.map(|pmu| (Some(*socket), ComplexKind::RootPorts, pmu.clone()))
        });
        let complexes = self
            .root_complexes
            .iter()
            .flat_map(|((socket, number), pmus)| {
                let pmus = pmus.iter();
                let kind = ComplexKind::RootComplex(*number);
                pmus.map(move |pmu| (Some(*socket), kind, pmu.clone()))
            });
        let of_stack = |socket, stack: &u32, pmu: &PciePmu| {
            let kind = ComplexKind::Stack(*stack);
            (socket, kind, pmu.clone())
        };
        let stacks = self
            .stacks
            .values()
            .map(|(pmu, stack, die)| of_stack(Some(*die), stack, pmu));
        let unmapped = self
            .unmapped
            .iter()
            .map(|(pmu, stack)| of_stack(None, stack, pmu));
        let all = sockets.chain(complexes).chain(stacks).chain(unmapped);
        all.collect()
    }

    /// The stack of a function, by its root bus. An accelerator may also be on one of the
    /// [`Accelerator::BUSES`] buses after the root bus of its stack.
    fn stack(&self, function: &PciFunction) -> Option<&(PciePmu, u32, u32)> {
        let (domain, bus) = function.root_bus;
        let Device { vendor, device, .. } = function.device;
        let lists_accelerator = |(pmu, ..): &&(PciePmu, u32, u32)| {
            let spec = pmu.spec.stack.as_ref();
            spec.is_some_and(|spec| spec.accelerator(vendor, device).is_some())
        };
        self.stacks.get(&(domain, bus)).or_else(|| {
            let buses = bus.checked_sub(Accelerator::BUSES)?..bus;
            let mut stacks = self
                .stacks
                .range((domain, buses.start)..(domain, buses.end));
            stacks
                .next_back()
                .map(|(_, stack)| stack)
                .filter(lists_accelerator)
        })
    }

    /// The location of a function's port; `None` if unknown.
    fn locate(
        &self,
        sysfs: &Path,
        function: &PciFunction,
        is_bridge: bool,
    ) -> Result<Option<PortLocation>, ConfigSpaceError> {
        let port = function.port;
        if let Some((pmu, number, die)) = self.stack(function) {
            let parts = pmu.spec.stack.as_ref().map(|spec| {
                let stack = Stack {
                    spec,
                    unit: *number,
                    dmi: self.stacks.get(&CHIPSET).map(|(_, unit, _)| *unit),
                };
                stack.parts(port, &function.device, is_bridge)
            });
            let kind = ComplexKind::Stack(*number);
            return Ok(Some((Some(*die), kind, parts.unwrap_or_default())));
        }
        if !self.root_complexes.is_empty() && is_bridge {
            let path = sysfs.join(format!("bus/pci/devices/{port}/config"));
            let config =
                fs::read(path).map_err(|error| ConfigSpaceError::Read(error.to_string()))?;
            let Some(location) = config_space::root_port(&config, port)? else {
                return Ok(None);
            };
            let (socket, complex) = (location.socket, location.root_complex);
            let no_pmu = ConfigSpaceError::NoPmu { socket, complex };
            let key: (u32, u32) = (socket.into(), complex.into());
            let pmus = self.root_complexes.get(&key).ok_or(no_pmu)?;
            // A port without a bit in the filter cannot be counted.
            for pmu in pmus {
                if let Some(ports) = self.ports.get(&pmu.name)
                    && u32::from(location.port) >= *ports
                {
                    return Err(ConfigSpaceError::Port {
                        port: location.port,
                        pmu: pmu.name.clone(),
                        ports: *ports,
                    });
                }
            }
            let kind = ComplexKind::RootComplex(complex.into());
            return Ok(Some((
                Some(socket.into()),
                kind,
                vec![location.port.into()],
            )));
        }
        // A Grace socket has ten root ports, 0 to 9; domains with other numbers are not the
        // socket's.
        let (socket, number) = (port.domain >> 4, port.domain & 0xf);
        if self.sockets.contains_key(&socket) && number < 10 {
            return Ok(Some((Some(socket), ComplexKind::RootPorts, vec![number])));
        }
        Ok(None)
    }
}

/// The dies and root buses in the files `die<n>` of a PMU, which have "segment:bus".
fn dies(dir: &Path) -> Vec<(u32, (u32, u8))> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let die = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let die = name.strip_prefix("die")?.parse().ok()?;
        let text = fs::read_to_string(entry.path()).ok()?;
        let (segment, bus) = text.trim().split_once(':')?;
        let segment = u32::from_str_radix(segment, 16).ok()?;
        Some((die, (segment, u8::from_str_radix(bus, 16).ok()?)))
    };
    entries.filter_map(die).collect()
}

fn functions(sysfs: &Path) -> Vec<PciFunction> {
    let mut names = names::read(sysfs);
    let devices = sysfs.join("bus/pci/devices");
    let entries = fs::read_dir(&devices).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let address: Bdf = entry.file_name().to_str()?.parse().ok()?;
            let path = fs::canonicalize(entry.path()).ok()?;
            let (root_bus, port) = root_bus_and_port(&path)?;
            let hex = |file: &str| {
                let text = fs::read_to_string(path.join(file)).ok()?;
                u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
            };
            let id = |file| u16::try_from(hex(file)?).ok();
            let node = fs::read_to_string(path.join("numa_node")).ok();
            let own_names = names.remove(&address).unwrap_or_default();
            let device = Device {
                address,
                vendor: id("vendor")?,
                device: id("device")?,
                class: hex("class")?,
                names: own_names.names,
                blocks: own_names.blocks,
            };
            Some(PciFunction {
                address,
                root_bus,
                port,
                device,
                // The file has -1 if the firmware does not state the node.
                node: node.and_then(|node| node.trim().parse().ok()),
            })
        })
        .collect()
}
