//! A medium that fails on purpose.
//!
//! The faults, as real media have them:
//!
//! * **Refused**: a call has no effect and answers with an I/O error. The medium is poisoned.
//! * **Half done**: the same, but the call did have its effect, as when the answer alone was lost.
//! * **No room**: the medium is full until [`Faults::make_room`]. A growth, or a write into a block that
//!   was never written (or was discarded), says so and has no effect; other writes work. A fence says
//!   so only when it was the one planned to fail.
//!
//! The n-th call of a kind since the plan was made fails; a test that goes through all n has met every
//! place where a failure can happen.

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use twinpage_core::{Error, Medium, Offset, Poison, Result};

/// The kinds of calls that can fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// [`Medium::write`].
    Write,
    /// [`Medium::fence`].
    Fence,
    /// [`Medium::grow`].
    Grow,
    /// [`Medium::discard`].
    Discard,
}

/// How it fails. See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No effect, and an I/O error.
    Refused,
    /// The effect, and an I/O error.
    HalfDone,
    /// No effect, and no room from here on.
    NoRoom,
}

/// What is to fail and what has failed; a handle that stays outside when the medium is given away.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    plan: Option<(Call, u64, Fault)>,
    full: bool,
    poison: Poison,
    struck: u64,
    /// Blocks that have their space.
    written: BTreeSet<u64>,
}

/// Bytes that get their space together.
const BLOCK: u64 = 4096;

fn blocks(range: &Range<Offset>) -> Range<u64> {
    range.start / BLOCK..range.end.div_ceil(BLOCK)
}

impl Faults {
    /// The call after `after` more calls of this kind fails. Replaces an earlier plan.
    pub fn plan(&self, call: Call, after: u64, fault: Fault) {
        self.state().plan = Some((call, after, fault));
    }

    /// Nothing is full any more, and no failure is planned.
    pub fn make_room(&self) {
        let mut state = self.state();
        state.full = false;
        state.plan = None;
    }

    /// How many calls failed by plan.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.state().struck
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does `call` on `range`, or what is planned in its place.
    fn meet(&self, call: Call, range: Range<Offset>, deed: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut state = self.state();
        let state = &mut *state;
        state.poison.check()?;
        let fault = match &mut state.plan {
            Some((planned, after, fault)) if *planned == call => match after.checked_sub(1) {
                Some(less) => {
                    *after = less;
                    None
                }
                None => Some(*fault),
            },
            _ => None,
        };
        if fault.is_some() {
            state.plan = None;
            state.struck += 1;
        }
        state.full |= fault == Some(Fault::NoRoom);
        let needs_room = match call {
            Call::Write => blocks(&range).any(|block| !state.written.contains(&block)),
            Call::Discard => false,
            Call::Grow => true,
            Call::Fence => fault.is_some(),
        };
        if state.full && needs_room {
            let needed = range.end - range.start;
            return Err(Error::Full {
                what: "the faulty medium".into(),
                needed,
            });
        }
        match call {
            Call::Write => state.written.extend(blocks(&range)),
            Call::Discard => state.written.retain(|block| !blocks(&range).contains(block)),
            Call::Grow | Call::Fence => {}
        }
        match fault {
            None | Some(Fault::NoRoom) => return deed(),
            Some(Fault::Refused) => {}
            Some(Fault::HalfDone) => deed()?,
        }
        let what = format!("planned failure of {call:?}");
        let error = Error::Io {
            what,
            at: range.start,
            source: io::Error::from_raw_os_error(libc::EIO),
        };
        state.poison.set(&error);
        Err(error)
    }
}

/// A medium over `M` that fails when its [`Faults`] say so.
#[derive(Debug)]
pub struct Faulty<M> {
    inner: M,
    faults: Faults,
}

impl<M: Medium> Faulty<M> {
    /// Over `inner`, which works until a failure is planned.
    pub fn new(inner: M) -> (Faulty<M>, Faults) {
        let faults = Faults::default();
        (
            Faulty {
                inner,
                faults: faults.clone(),
            },
            faults,
        )
    }
}

impl<M: Medium> Medium for Faulty<M> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn grow(&mut self, len: u64) -> Result<()> {
        let (old, inner) = (self.inner.len(), &mut self.inner);
        if len <= old {
            return inner.grow(len);
        }
        self.faults.meet(Call::Grow, old..len, || inner.grow(len))
    }

    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.inner.read(at, into)
    }

    fn view(&self, at: Offset, len: usize) -> Option<&[u8]> {
        self.inner.view(at, len)
    }

    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let inner = &mut self.inner;
        self.faults.meet(Call::Write, at..at + bytes.len() as u64, || {
            inner.write(at, bytes)
        })
    }

    fn discard(&mut self, range: Range<Offset>) -> Result<()> {
        let inner = &mut self.inner;
        self.faults
            .meet(Call::Discard, range.clone(), || inner.discard(range))
    }

    fn hand_over(&mut self) -> Result<()> {
        self.inner.hand_over()
    }

    fn fence(&mut self) -> Result<()> {
        let inner = &mut self.inner;
        self.faults.meet(Call::Fence, 0..0, || inner.fence())
    }

    fn atom(&self) -> usize {
        self.inner.atom()
    }
}
