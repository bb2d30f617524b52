//! An SPE record as a plain list of payloads, its packets, and what the decoder found.

use probe_common::spe::{InstructionAddress, Operation, PhysicalAddress, Record, VirtualAddress};

/// The payloads of an SPE record.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields {
    /// Address packet 0.
    pub pc: Option<u64>,
    /// Address packet 1.
    pub branch_target: Option<u64>,
    /// Address packet 2.
    pub virtual_address: Option<u64>,
    /// Address packet 3.
    pub physical_address: Option<u64>,
    /// Address packet 4.
    pub previous_target: Option<u64>,
    /// `CONTEXTIDR_EL1`.
    pub context_el1: Option<u32>,
    /// `CONTEXTIDR_EL2`.
    pub context_el2: Option<u32>,
    /// Class and payload.
    pub operation: Option<(u8, u8)>,
    /// Binary logarithm of the payload's size in bytes, and payload.
    pub events: Option<(u8, u64)>,
    /// As `events`.
    pub data_source: Option<(u8, u64)>,
    /// Counter packet 0, in cycles.
    pub total_latency: Option<u16>,
    /// Counter packet 1, in cycles.
    pub issue_latency: Option<u16>,
    /// Counter packet 2, in cycles.
    pub translation_latency: Option<u16>,
    /// In ticks of the generic timer.
    pub timestamp: Option<u64>,
}

impl Fields {
    /// What the decoder found. A record does not keep the sizes of events and data source, so they
    /// read as eight bytes: compare with [`Fields::as_decoded`].
    pub fn of(record: &Record) -> Self {
        Self {
            pc: record.pc().map(InstructionAddress::raw),
            branch_target: record.branch_target().map(InstructionAddress::raw),
            virtual_address: record.virtual_address().map(VirtualAddress::raw),
            physical_address: record.physical_address().map(PhysicalAddress::raw),
            previous_target: record.previous_target().map(InstructionAddress::raw),
            context_el1: record.context_el1(),
            context_el2: record.context_el2(),
            operation: record.operation().map(|operation| match operation {
                Operation::Other(op) => (0, op.raw()),
                Operation::LoadStore(op) => (1, op.raw()),
                Operation::Branch(op) => (2, op.raw()),
                Operation::Reserved(payload) => (3, payload),
            }),
            events: record.events().map(|events| (3, events.bits())),
            data_source: record.data_source().map(|source| (3, source)),
            total_latency: record.total_latency(),
            issue_latency: record.issue_latency(),
            translation_latency: record.translation_latency(),
            timestamp: record.timestamp(),
        }
    }

    /// With eight bytes of events and data source, as [`Fields::of`] reads them.
    #[must_use]
    pub fn as_decoded(mut self) -> Self {
        self.events = self.events.map(|(_, bits)| (3, bits));
        self.data_source = self.data_source.map(|(_, source)| (3, source));
        self
    }

    /// Sets one field to None: `which` is its index in the struct; any index from 13 is the
    /// timestamp.
    pub fn forget(&mut self, which: u64) {
        match which {
            0 => self.pc = None,
            1 => self.branch_target = None,
            2 => self.virtual_address = None,
            3 => self.physical_address = None,
            4 => self.previous_target = None,
            5 => self.context_el1 = None,
            6 => self.context_el2 = None,
            7 => self.operation = None,
            8 => self.events = None,
            9 => self.data_source = None,
            10 => self.total_latency = None,
            11 => self.issue_latency = None,
            12 => self.translation_latency = None,
            _ => self.timestamp = None,
        }
    }

    /// All packets except the end packet. `extended` decides for each address and counter packet
    /// whether it gets the two-byte header.
    pub fn packets(&self, mut extended: impl FnMut() -> bool) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        let mut indexed = |header: u8, payload: &[u8]| {
            let mut packet = Vec::new();
            if extended() {
                packet.push(0x20);
            }
            packet.push(header);
            packet.extend(payload);
            packets.push(packet);
        };
        let addresses = [
            self.pc,
            self.branch_target,
            self.virtual_address,
            self.physical_address,
            self.previous_target,
        ];
        for (header, address) in (0xb0..).zip(addresses) {
            if let Some(address) = address {
                indexed(header, &address.to_le_bytes());
            }
        }
        let counters = [
            self.total_latency,
            self.issue_latency,
            self.translation_latency,
        ];
        for (header, counter) in (0x98..).zip(counters) {
            if let Some(counter) = counter {
                indexed(header, &counter.to_le_bytes());
            }
        }
        for (header, context) in (0x64..).zip([self.context_el1, self.context_el2]) {
            if let Some(context) = context {
                packets.push([&[header], &context.to_le_bytes()[..]].concat());
            }
        }
        if let Some((class, payload)) = self.operation {
            packets.push(vec![0x48 | class, payload]);
        }
        for (header, payload) in [(0x42, self.events), (0x43, self.data_source)] {
            if let Some((log2, payload)) = payload {
                let mut packet = vec![header | log2 << 4];
                packet.extend(&payload.to_le_bytes()[..1 << log2]);
                packets.push(packet);
            }
        }
        packets
    }

    /// The packet that ends the record: the timestamp, or an end packet if there is none.
    pub fn end(&self) -> Vec<u8> {
        match self.timestamp {
            Some(timestamp) => [&[0x71], &timestamp.to_le_bytes()[..]].concat(),
            None => vec![0x01],
        }
    }

    /// The record with padding only before its last packet, as in a dump of a KVM guest of 2020 (in
    /// the SPE series on linux-arm-kernel): 32 bytes, or 44 for a load or store.
    #[must_use]
    pub fn dense(&self) -> Vec<u8> {
        let order = |packet: &Vec<u8>| match packet[0] {
            0xb0 => 0,
            0x99 => 1,
            0x98 => 2,
            0x42 | 0x52 | 0x62 | 0x72 => 3,
            0x48..=0x4b => 4,
            0xb1 | 0xb2 => 5,
            _ => 6,
        };
        let mut packets = self.packets(|| false);
        packets.sort_by_key(order);
        let mut bytes: Vec<u8> = packets.into_iter().flatten().collect();
        let end = self.end();
        bytes.resize((bytes.len() + end.len()).next_multiple_of(4) - end.len(), 0);
        bytes.extend(end);
        bytes
    }

    /// The record as Neoverse cores lay it out: each packet at a fixed offset of a cell. Panics at
    /// a packet for which these cores have no offset.
    #[must_use]
    pub fn neoverse(&self) -> [u8; 64] {
        let mut cell = [0; 64];
        for packet in self.packets(|| false).into_iter().chain([self.end()]) {
            let at = match packet[0] {
                // PC, context, operation, events.
                0xb0 => 0,
                0x64 | 0x65 => 14,
                0x48..=0x4b => 19,
                0x42 | 0x52 | 0x62 | 0x72 => 21,
                // Latencies: issue, total, translation.
                0x99 => 24,
                0x98 => 27,
                0x9a => 39,
                // A branch's target or the virtual address, and the physical one.
                0xb1 | 0xb2 => 30,
                0xb3 => 42,
                // Data source, timestamp, end.
                0x43 => 51,
                0x71 => 55,
                0x01 => 63,
                header => panic!("a packet {header:#x} has no place"),
            };
            cell[at..at + packet.len()].copy_from_slice(&packet);
        }
        cell
    }
}
