//! Reads a store from any bytes, and says what a reader may answer.
//!
//! * It never panics, never asks for more memory than a small multiple of the bytes it was given, and
//!   reads each of them a few times at most.
//! * What it refuses it does not change, and it says what is damaged or that the bytes are foreign.
//! * What it accepts is a store: it can be checked, read, written, committed and opened again.

use crate::history::{State, run_epoch};
use crate::meter::{Counting, Metered, Usage};
use fastrand::Rng;
use twinpage_core::dual_page::DualPage;
use twinpage_core::{Damage, Error, Scheme};

/// How often the bytes may be read, all in all, by a recovery and again by a check.
const TIMES: u64 = 8;
/// Bytes of memory for each byte of the medium, and some to begin with.
const MEMORY_TIMES: usize = 8;
const MEMORY_FIRST: usize = 1 << 20;

/// What came of reading.
#[derive(Debug)]
pub enum Reading {
    /// With this error, when it was opened or a page of it read.
    Refused(Error),
    /// As a store with this state, of which `check` said this.
    Accepted {
        /// What it holds.
        state: State,
        /// What was found wrong.
        damage: Vec<Damage>,
    },
}

/// Recovers from `image`, reads and checks everything, and now and then goes on for some epochs.
///
/// # Panics
/// When any of what the module promises does not hold.
#[must_use]
pub fn read(image: &[u8], rng: &mut Rng) -> Reading {
    let (medium, usage) = Metered::new(image.to_vec(), rng.bool());
    let len = image.len();
    let ((reading, store), peak) = Counting::peak(|| recover(medium, &usage));
    assert!(
        peak <= MEMORY_FIRST + MEMORY_TIMES * len,
        "{peak} bytes of memory for an image of {len}"
    );
    let most = TIMES * len as u64 + (1 << 16);
    assert!(
        usage.read_bytes() <= most,
        "{} bytes read of {len}",
        usage.read_bytes()
    );
    assert!(
        usage.reads() <= most / 8,
        "{} reads of {len} bytes",
        usage.reads()
    );
    // A store with a damaged line goes on until it needs it.
    if let (Some(store), Reading::Accepted { state, damage }) = (store, &reading)
        && damage.is_empty()
        && rng.u8(..4) == 0
    {
        go_on(store, state.clone(), rng);
    }
    reading
}

fn recover(medium: Metered, usage: &Usage) -> (Reading, Option<DualPage<Metered>>) {
    let (store, recovered) = match DualPage::recover(medium) {
        Ok(found) => found,
        Err(error) => {
            assert_eq!(usage.changes(), 0, "refused, and changed all the same: {error}");
            assert!(
                matches!(error, Error::Damaged { .. } | Error::Foreign(_)),
                "{error}"
            );
            return (Reading::Refused(error), None);
        }
    };
    let damage = store.check().expect("an image can be read");
    match State::of(&store, recovered.context) {
        Ok(state) => {
            assert_eq!(state.epoch, recovered.epoch);
            (Reading::Accepted { state, damage }, Some(store))
        }
        Err(error @ Error::Damaged { .. }) => {
            assert!(!damage.is_empty(), "its check finds nothing: {error}");
            (Reading::Refused(error), None)
        }
        Err(error) => panic!("an image can be read: {error}"),
    }
}

/// A few more epochs, which must be there when the store is opened again.
fn go_on(mut store: DualPage<Metered>, mut state: State, rng: &mut Rng) {
    for _ in 0..3 {
        match run_epoch(&mut store, &mut state, rng) {
            Ok(()) => {}
            // Forged numbers can be at their end; then the store says so.
            Err(Error::Full { .. } | Error::Invalid(_)) => return,
            Err(error) => panic!("an accepted store does not go on: {error}"),
        }
    }
    let (store, recovered) = DualPage::recover(store.into_medium()).expect("its own commit");
    let found = State::of(&store, recovered.context).expect("an image can be read");
    assert!(found == state, "epoch {} is not what was committed", state.epoch);
}
