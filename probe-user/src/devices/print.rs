//! Prints the tree of devices as text and as JSON.

use std::{
    fmt,
    io::{self, Write},
};

use serde_json::{Value, json};

use super::{Complex, ComplexKind, ConfigSpaceError, Device, Devices, Port};

impl Devices {
    /// Writes text: sockets, their PMUs, and the devices behind them.
    ///
    /// # Errors
    /// The writer fails.
    pub fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "Devices")?;
        if self.complexes.is_empty() {
            writeln!(out, " no PCI devices")?;
        }
        for of_socket in self.complexes.chunk_by(|a, b| a.socket == b.socket) {
            match of_socket[0].socket {
                Some(socket) => writeln!(out, " socket {socket}")?,
                None => writeln!(out, " no socket known")?,
            }
            for complex in of_socket {
                write_complex(out, complex)?;
            }
        }
        let needs_right = |problem: &&ConfigSpaceError| **problem == ConfigSpaceError::NoRight;
        let ports = self.problems.values().filter(needs_right).count();
        if ports > 0 {
            writeln!(
                out,
                " {ports} root ports: the root complex of each is not known, {}",
                ConfigSpaceError::NoRight
            )?;
        }
        for (address, problem) in &self.problems {
            if !needs_right(&problem) {
                writeln!(out, " {address}: {problem}")?;
            }
        }
        Ok(())
    }

    /// The complexes with their devices, and the problems, as one JSON object.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let complexes: Vec<Value> = self.complexes.iter().map(complex_json).collect();
        let problems: serde_json::Map<String, Value> = self
            .problems
            .iter()
            .map(|(address, problem)| (address.to_string(), problem.to_string().into()))
            .collect();
        json!({ "complexes": complexes, "problems": problems })
    }
}

fn write_complex(out: &mut impl Write, complex: &Complex) -> io::Result<()> {
    write!(out, "  {}", complex.kind)?;
    if !complex.pmus.is_empty() {
        write!(out, ": {}", pmu_names(complex).join(", "))?;
    }
    writeln!(out)?;
    if let Some(reason) = complex.missing_devices_reason() {
        writeln!(out, "   {reason}")?;
    }
    for port in complex.ports.iter().filter(|port| !port.devices.is_empty()) {
        let numbers: Vec<String> = port.numbers.iter().map(u32::to_string).collect();
        for device in &port.devices {
            write!(out, "   ")?;
            if !numbers.is_empty() {
                let word = complex.kind.port_word();
                write!(out, "{word} {}  ", numbers.join(","))?;
            }
            write!(out, "{device}")?;
            if device.address.domain != port.address.domain {
                write!(out, "  behind VMD {}, which hides its port", port.address)?;
            }
            for narrowed in complex.narrowed(port, device) {
                write!(out, "  {narrowed}")?;
            }
            writeln!(out)?;
        }
    }
    Ok(())
}

fn pmu_names(complex: &Complex) -> Vec<&str> {
    let pmus = complex.pmus.iter();
    pmus.map(|pmu| pmu.name.as_str()).collect()
}

fn complex_json(complex: &Complex) -> Value {
    let ports: Vec<Value> = complex
        .ports
        .iter()
        .map(|port| port_json(complex, port))
        .collect();
    json!({
        "socket": complex.socket,
        "name": complex.kind.to_string(),
        "pmus": pmu_names(complex),
        "ports": ports,
        "reason": complex.missing_devices_reason(),
    })
}

fn port_json(complex: &Complex, port: &Port) -> Value {
    let device = |device: &Device| {
        let narrowed = complex.narrowed(port, device);
        let count: Vec<String> = narrowed.iter().map(ToString::to_string).collect();
        json!({
            "address": device.address.to_string(),
            "kind": device.kind(),
            "vendor": format!("{:04x}", device.vendor),
            "device": format!("{:04x}", device.device),
            "names": device.names,
            "block_devices": device.blocks,
            "count_with": count,
        })
    };
    let devices: Vec<Value> = port.devices.iter().map(device).collect();
    json!({
        "address": port.address.to_string(),
        "numbers": port.numbers,
        "devices": devices,
    })
}

impl ComplexKind {
    fn port_word(self) -> &'static str {
        match self {
            Self::Stack(_) => "part",
            Self::RootPorts | Self::RootComplex(_) | Self::RootBus(..) => "port",
        }
    }
}

impl fmt::Display for ComplexKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RootPorts => f.write_str("root ports"),
            Self::RootComplex(number) => write!(f, "root complex {number}"),
            Self::Stack(number) => write!(f, "IIO stack {number}"),
            Self::RootBus(domain, bus) => write!(f, "PCI {domain:04x}:{bus:02x}"),
        }
    }
}

/// Prints the names first, since users know them, then always the address.
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.names {
            write!(f, "{name} ")?;
        }
        let Self {
            address,
            vendor,
            device,
            ..
        } = self;
        write!(f, "({} {address} {vendor:04x}:{device:04x})", self.kind())
    }
}
