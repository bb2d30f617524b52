//! The newest windows, in a bounded amount of memory.

use std::collections::VecDeque;

use crate::emit::Sheets;

/// The most cells of all windows together; a cell takes about 100 bytes.
const MAX_CELLS: usize = 400_000;

/// The most windows, however few cells they have.
const MAX_WINDOWS: usize = 3_600;

/// Windows, numbered from 0.
#[derive(Default)]
pub(super) struct WindowHistory {
    windows: VecDeque<Sheets>,
    cells: usize,
    /// Number of the oldest window.
    first: u64,
}

impl WindowHistory {
    pub(super) fn push(&mut self, window: Sheets) {
        self.cells += window.cells();
        self.windows.push_back(window);
        while self.windows.len() > 1 && (self.cells > MAX_CELLS || self.windows.len() > MAX_WINDOWS)
        {
            let removed = self.windows.pop_front();
            self.cells -= removed.map_or(0, |window| window.cells());
            self.first += 1;
        }
    }

    pub(super) fn replace_last(&mut self, window: Sheets) {
        if let Some(last) = self.windows.back_mut() {
            self.cells = self.cells - last.cells() + window.cells();
            *last = window;
        }
    }

    /// Number of the oldest window; 0 while the history is empty.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the newest window; 0 while the history is empty.
    pub(super) fn last(&self) -> u64 {
        (self.first + self.windows.len() as u64).saturating_sub(1)
    }

    pub(super) fn get(&self, number: u64) -> Option<&Sheets> {
        let at = number.checked_sub(self.first)?;
        self.windows.get(usize::try_from(at).ok()?)
    }

    /// At most `limit` windows, the last of them `number`, oldest first.
    pub(super) fn up_to(&self, number: u64, limit: usize) -> impl Iterator<Item = &Sheets> {
        let end = (number + 1).saturating_sub(self.first);
        let end = usize::try_from(end).map_or(0, |end| end.min(self.windows.len()));
        self.windows.range(end.saturating_sub(limit)..end)
    }
}
