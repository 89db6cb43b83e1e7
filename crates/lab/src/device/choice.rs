//! What a channel does next.

use super::request::Kind;

/// A cycle, then a tag: the lowest goes first.
pub(super) type Key = u128;

/// The command to go next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// [`Key::MAX`] if there is nothing to do.
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) bank: u16,
    /// It stays the one as long as nothing changes.
    pub(super) is_current: bool,
    /// The banks looked at, by kind.
    pub(super) view: [u64; 2],
    /// The earliest column command among them, and the chosen one's.
    pub(super) column: u64,
    pub(super) own_column: u64,
    /// No data can have arrived before this cycle.
    pub(super) bound: u64,
}

impl Choice {
    pub(super) const NONE: Choice = Choice {
        key: Key::MAX,
        kind: Kind::Read,
        bank: 0,
        is_current: false,
        view: [0; 2],
        column: u64::MAX,
        own_column: u64::MAX,
        bound: u64::MAX,
    };

    /// When it goes; `u64::MAX` if there is nothing to do.
    #[inline]
    pub(super) fn cycle(&self) -> u64 {
        (self.key >> 64) as u64
    }

    /// Whether no other request's data could come before.
    #[inline]
    pub(super) fn is_first(&self) -> bool {
        self.own_column <= self.column
    }
}
