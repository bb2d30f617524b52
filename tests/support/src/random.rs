//! Random SPE records, the same on every run.

use crate::Fields;

/// `SplitMix64` (Steele, Lea, Flood 2014): small, and good enough to draw test data.
pub struct Random(pub u64);

impl Random {
    /// 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to below 1.
    #[expect(clippy::cast_precision_loss, reason = "the upper 53 bits")]
    pub fn uniform(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.word() % n
    }

    /// 8 bits.
    pub fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }

    /// 16 bits.
    pub fn half(&mut self) -> u16 {
        let [a, b, ..] = self.word().to_le_bytes();
        u16::from_le_bytes([a, b])
    }

    /// 32 bits.
    pub fn single(&mut self) -> u32 {
        let [a, b, c, d, ..] = self.word().to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// True in half of the calls.
    pub fn chance(&mut self) -> bool {
        self.word() & 1 == 0
    }

    /// None in half of the calls.
    pub fn maybe<T>(&mut self, draw: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.chance().then(|| draw(self))
    }

    /// Brings items into random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = self.below(i as u64 + 1);
            items.swap(i, usize::try_from(j).unwrap());
        }
    }

    /// A payload of two to the power of `log2` bytes.
    pub fn payload(&mut self, log2: u8) -> (u8, u64) {
        (log2, self.word() >> (64 - (8 << log2)))
    }

    /// Fields of a record. There is at least one: an end packet alone is no record.
    pub fn fields(&mut self) -> Fields {
        loop {
            let fields = self.any_fields();
            if fields != Fields::default() {
                return fields;
            }
        }
    }

    fn any_fields(&mut self) -> Fields {
        Fields {
            pc: self.maybe(Self::word),
            branch_target: self.maybe(Self::word),
            virtual_address: self.maybe(Self::word),
            physical_address: self.maybe(Self::word),
            previous_target: self.maybe(Self::word),
            context_el1: self.maybe(Self::single),
            context_el2: self.maybe(Self::single),
            operation: self.maybe(|r| (r.byte() & 3, r.byte())),
            events: self.maybe(|r| {
                let log2 = r.byte() & 3;
                r.payload(log2)
            }),
            data_source: self.maybe(|r| {
                let log2 = r.byte() & 1;
                r.payload(log2)
            }),
            total_latency: self.maybe(Self::half),
            issue_latency: self.maybe(Self::half),
            translation_latency: self.maybe(Self::half),
            timestamp: self.maybe(Self::word),
        }
    }

    /// The bytes of one record: its packets in random order, some with the extended header, and
    /// padding before some packets.
    pub fn record(&mut self, fields: &Fields) -> Vec<u8> {
        let mut packets = fields.packets(|| self.chance());
        self.shuffle(&mut packets);
        let mut bytes = Vec::new();
        for packet in packets {
            if self.below(4) == 0 {
                let pads = usize::try_from(self.below(12)).unwrap();
                bytes.resize(bytes.len() + pads, 0);
            }
            bytes.extend(packet);
        }
        bytes.extend(fields.end());
        bytes
    }

    /// One record that fills a 64-byte cell, with its last packet at the end of the cell. Random
    /// fields are removed until the record fits.
    pub fn cell(&mut self, fields: &mut Fields) -> [u8; 64] {
        let mut packets = loop {
            let packets = fields.packets(|| self.chance());
            let size: usize = packets.iter().map(Vec::len).sum();
            if size + fields.end().len() <= 64 {
                break packets;
            }
            let which = self.below(14);
            fields.forget(which);
        };
        self.shuffle(&mut packets);
        let size: usize = packets.iter().map(Vec::len).sum();
        let mut spare = 64 - size - fields.end().len();
        let mut bytes = Vec::with_capacity(64);
        for packet in packets {
            // The first packet is at the start of its cell, as on real cores.
            if !bytes.is_empty() && self.below(4) == 0 {
                let pads = usize::try_from(self.below(spare as u64 + 1)).unwrap();
                spare -= pads;
                bytes.resize(bytes.len() + pads, 0);
            }
            bytes.extend(packet);
        }
        bytes.resize(bytes.len() + spare, 0);
        bytes.extend(fields.end());
        bytes.try_into().unwrap()
    }
}
