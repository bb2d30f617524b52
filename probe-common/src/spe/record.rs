//! A decoded record: the payloads of its packets, and which packets it had.

use super::{Events, InstructionAddress, Operation, PhysicalAddress, VirtualAddress};

/// A sampled operation. Every field is optional: a core leaves out packets that do not apply, that
/// were not requested, or that it does not support. A zero in a field was written by the core; the
/// consumer decides whether that makes a sample useless.
///
/// If a kind of packet occurs twice in one window, the last one counts, as in perf. In two windows,
/// the second one is taken for the start of another record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    pc: u64,
    branch_target: u64,
    previous_target: u64,
    virtual_address: u64,
    physical_address: u64,
    timestamp: u64,
    events: u64,
    data_source: u64,
    context_el1: u32,
    context_el2: u32,
    total_latency: u16,
    issue_latency: u16,
    translation_latency: u16,
    operation: u8,
    operation_class: u8,
    present: u16,
    skipped: u16,
    alternate_issue_latency: u16,
    /// Makes the size a multiple of eight without hidden padding.
    unused: u16,
}

// The eBPF side keeps one in a map value: no hidden padding.
const _: () = assert!(size_of::<Record>() == 88);

/// The bits of [`Record::present`].
mod bit {
    pub(super) const PC: u16 = 1 << 0;
    pub(super) const BRANCH_TARGET: u16 = 1 << 1;
    pub(super) const PREVIOUS_TARGET: u16 = 1 << 2;
    pub(super) const VIRTUAL_ADDRESS: u16 = 1 << 3;
    pub(super) const PHYSICAL_ADDRESS: u16 = 1 << 4;
    pub(super) const TIMESTAMP: u16 = 1 << 5;
    pub(super) const EVENTS: u16 = 1 << 6;
    pub(super) const DATA_SOURCE: u16 = 1 << 7;
    pub(super) const CONTEXT_EL1: u16 = 1 << 8;
    pub(super) const CONTEXT_EL2: u16 = 1 << 9;
    pub(super) const TOTAL_LATENCY: u16 = 1 << 10;
    pub(super) const ISSUE_LATENCY: u16 = 1 << 11;
    pub(super) const TRANSLATION_LATENCY: u16 = 1 << 12;
    pub(super) const OPERATION: u16 = 1 << 13;
    pub(super) const ALTERNATE_ISSUE_LATENCY: u16 = 1 << 14;
}

impl Record {
    /// A record without a packet.
    pub const EMPTY: Self = Self {
        pc: 0,
        branch_target: 0,
        previous_target: 0,
        virtual_address: 0,
        physical_address: 0,
        timestamp: 0,
        events: 0,
        data_source: 0,
        context_el1: 0,
        context_el2: 0,
        total_latency: 0,
        issue_latency: 0,
        translation_latency: 0,
        operation: 0,
        operation_class: 0,
        present: 0,
        skipped: 0,
        alternate_issue_latency: 0,
        unused: 0,
    };

    const fn has(&self, bit: u16) -> bool {
        self.present & bit != 0
    }

    /// Whether no packet was found yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.present == 0 && self.skipped == 0
    }

    /// Returns and clears the set of present packets; their fields stay.
    #[inline(always)]
    pub(super) const fn take_present(&mut self) -> u16 {
        core::mem::replace(&mut self.present, 0)
    }

    /// Adds the present packets of earlier windows. False if one of them is present again: no
    /// record has a packet twice, so another record began.
    #[inline(always)]
    pub(super) const fn join(&mut self, before: u16) -> bool {
        let disjoint = self.present & before == 0;
        self.present |= before;
        disjoint
    }

    /// Number of well-formed packets that were skipped because the architecture reserves their
    /// index.
    #[must_use]
    pub const fn skipped(&self) -> u16 {
        self.skipped
    }

    /// The address of the sampled instruction.
    #[must_use]
    pub fn pc(&self) -> Option<InstructionAddress> {
        self.has(bit::PC)
            .then_some(InstructionAddress::new(self.pc))
    }

    /// The target of the sampled branch.
    #[must_use]
    pub fn branch_target(&self) -> Option<InstructionAddress> {
        self.has(bit::BRANCH_TARGET)
            .then_some(InstructionAddress::new(self.branch_target))
    }

    /// The target of the taken branch before the sampled instruction.
    #[must_use]
    pub fn previous_target(&self) -> Option<InstructionAddress> {
        self.has(bit::PREVIOUS_TARGET)
            .then_some(InstructionAddress::new(self.previous_target))
    }

    /// The virtual address that was accessed.
    #[must_use]
    pub fn virtual_address(&self) -> Option<VirtualAddress> {
        self.has(bit::VIRTUAL_ADDRESS)
            .then_some(VirtualAddress::new(self.virtual_address))
    }

    /// The physical address that was accessed.
    #[must_use]
    pub fn physical_address(&self) -> Option<PhysicalAddress> {
        self.has(bit::PHYSICAL_ADDRESS)
            .then_some(PhysicalAddress::new(self.physical_address))
    }

    /// Time of the sample, in ticks of the generic timer.
    #[must_use]
    pub fn timestamp(&self) -> Option<u64> {
        self.has(bit::TIMESTAMP).then_some(self.timestamp)
    }

    /// What happened to the operation.
    #[must_use]
    pub fn events(&self) -> Option<Events> {
        self.has(bit::EVENTS).then_some(Events::new(self.events))
    }

    /// The core's data-source number; [`super::SourceTable`] has its meaning.
    #[must_use]
    pub fn data_source(&self) -> Option<u64> {
        self.has(bit::DATA_SOURCE).then_some(self.data_source)
    }

    /// `CONTEXTIDR_EL1` when the operation was sampled.
    #[must_use]
    pub fn context_el1(&self) -> Option<u32> {
        self.has(bit::CONTEXT_EL1).then_some(self.context_el1)
    }

    /// `CONTEXTIDR_EL2` when the operation was sampled.
    #[must_use]
    pub fn context_el2(&self) -> Option<u32> {
        self.has(bit::CONTEXT_EL2).then_some(self.context_el2)
    }

    /// The thread id (in the initial pid namespace) that Linux wrote to the context register: of
    /// EL2 if present, since that is the host's, else of EL1.
    #[must_use]
    pub fn thread(&self) -> Option<u32> {
        self.context_el2().or(self.context_el1())
    }

    /// Cycles from dispatch to completion; saturates at the counter's maximum (4095 with 12 bits).
    #[must_use]
    pub fn total_latency(&self) -> Option<u16> {
        self.has(bit::TOTAL_LATENCY).then_some(self.total_latency)
    }

    /// Cycles from dispatch to issue, saturating.
    #[must_use]
    pub fn issue_latency(&self) -> Option<u16> {
        self.has(bit::ISSUE_LATENCY).then_some(self.issue_latency)
    }

    /// The issue latency in cycles of the alternate clock (counter packet 4, `FEAT_SPE_ALTCLK`),
    /// for an operation of a unit with its own clock; saturating.
    #[must_use]
    pub fn alternate_issue_latency(&self) -> Option<u16> {
        self.has(bit::ALTERNATE_ISSUE_LATENCY)
            .then_some(self.alternate_issue_latency)
    }

    /// Cycles spent on address translation, saturating.
    #[must_use]
    pub fn translation_latency(&self) -> Option<u16> {
        self.has(bit::TRANSLATION_LATENCY)
            .then_some(self.translation_latency)
    }

    /// Class and details of the operation.
    #[must_use]
    pub fn operation(&self) -> Option<Operation> {
        self.has(bit::OPERATION)
            .then(|| Operation::new(self.operation_class, self.operation))
    }
}

/// One setter per packet, for the decoder: the payload is widened to a word.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the payload has no more bytes than the field"
)]
impl Record {
    #[inline(always)]
    pub(super) const fn set_pc(&mut self, payload: u64) {
        self.pc = payload;
        self.present |= bit::PC;
    }

    #[inline(always)]
    pub(super) const fn set_branch_target(&mut self, payload: u64) {
        self.branch_target = payload;
        self.present |= bit::BRANCH_TARGET;
    }

    #[inline(always)]
    pub(super) const fn set_previous_target(&mut self, payload: u64) {
        self.previous_target = payload;
        self.present |= bit::PREVIOUS_TARGET;
    }

    #[inline(always)]
    pub(super) const fn set_virtual_address(&mut self, payload: u64) {
        self.virtual_address = payload;
        self.present |= bit::VIRTUAL_ADDRESS;
    }

    #[inline(always)]
    pub(super) const fn set_physical_address(&mut self, payload: u64) {
        self.physical_address = payload;
        self.present |= bit::PHYSICAL_ADDRESS;
    }

    #[inline(always)]
    pub(super) const fn set_timestamp(&mut self, payload: u64) {
        self.timestamp = payload;
        self.present |= bit::TIMESTAMP;
    }

    #[inline(always)]
    pub(super) const fn set_events(&mut self, payload: u64) {
        self.events = payload;
        self.present |= bit::EVENTS;
    }

    #[inline(always)]
    pub(super) const fn set_data_source(&mut self, payload: u64) {
        self.data_source = payload;
        self.present |= bit::DATA_SOURCE;
    }

    #[inline(always)]
    pub(super) const fn set_context_el1(&mut self, payload: u64) {
        self.context_el1 = payload as u32;
        self.present |= bit::CONTEXT_EL1;
    }

    #[inline(always)]
    pub(super) const fn set_context_el2(&mut self, payload: u64) {
        self.context_el2 = payload as u32;
        self.present |= bit::CONTEXT_EL2;
    }

    #[inline(always)]
    pub(super) const fn set_total_latency(&mut self, payload: u64) {
        self.total_latency = payload as u16;
        self.present |= bit::TOTAL_LATENCY;
    }

    #[inline(always)]
    pub(super) const fn set_issue_latency(&mut self, payload: u64) {
        self.issue_latency = payload as u16;
        self.present |= bit::ISSUE_LATENCY;
    }

    #[inline(always)]
    pub(super) const fn set_alternate_issue_latency(&mut self, payload: u64) {
        self.alternate_issue_latency = payload as u16;
        self.present |= bit::ALTERNATE_ISSUE_LATENCY;
    }

    #[inline(always)]
    pub(super) const fn set_translation_latency(&mut self, payload: u64) {
        self.translation_latency = payload as u16;
        self.present |= bit::TRANSLATION_LATENCY;
    }

    #[inline(always)]
    pub(super) const fn set_operation(&mut self, class: u8, payload: u64) {
        self.operation_class = class;
        self.operation = payload as u8;
        self.present |= bit::OPERATION;
    }

    /// Counts a packet that has no field.
    #[inline(always)]
    pub(super) const fn skip(&mut self, _payload: u64) {
        self.skipped = self.skipped.wrapping_add(1);
    }
}
