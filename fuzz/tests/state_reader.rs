//! The state reader against damaged, forged and arbitrary bytes.

use twinpage_fuzz::campaign::campaign;
use twinpage_fuzz::edit::damage;
use twinpage_fuzz::forge::reseal;
use twinpage_fuzz::history::{History, Moment, random};
use twinpage_fuzz::meter::Counting;
use twinpage_fuzz::reader::{Reading, read};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Stores made, in a short run and in a long one.
const RUNS: [u64; 2] = [100, 20_000];
/// Pieces of damage tried on each store.
const EDITS: usize = 100;

#[test]
fn an_undamaged_store_is_read() {
    campaign("an_undamaged_store_is_read", RUNS, |rng| {
        let history = History::new(rng);
        for Moment { state, image } in &history.moments {
            match read(image, rng) {
                Reading::Accepted { state: found, damage } => assert!(found == *state && damage.is_empty()),
                Reading::Refused(error) => panic!("epoch {}: {error}", state.epoch),
            }
        }
    });
}

/// One piece of damage: the reader notices, or it did not matter. The last commit is never taken for
/// another one. Where lines have no checksums, damaged bytes there are read as they are, and only they.
#[test]
fn one_damage_is_never_another_state() {
    campaign("one_damage_is_never_another_state", RUNS, |rng| {
        let history = History::new(rng);
        let Moment { state: last, image } = history.last();
        for _ in 0..EDITS {
            let mut damaged = image.clone();
            let bytes = damage(&mut damaged, &history.any(rng).image, rng);
            if let Reading::Accepted { state, damage } = read(&damaged, rng) {
                let bytes = if history.checksums { 0 } else { bytes };
                let differ = last.differing_bytes(&state);
                assert!(
                    differ.is_some_and(|differ| differ <= bytes),
                    "{bytes} damaged bytes: epoch {} read as {}, {differ:?} bytes differ",
                    last.epoch,
                    state.epoch
                );
                // With checksums a check may find damage where no state is: past the end of the context.
                assert!(
                    damage.is_empty() || history.checksums,
                    "recovered, but its check says {damage:?}"
                );
            }
        }
    });
}

/// Much damage: still a commit that once was, or a refusal.
#[test]
fn much_damage_is_a_commit_or_refused() {
    campaign("much_damage_is_a_commit_or_refused", RUNS, |rng| {
        let history = History::new(rng);
        for _ in 0..EDITS {
            let mut damaged = history.last().image.clone();
            for _ in 0..rng.usize(2..12) {
                if !damaged.is_empty() {
                    damage(&mut damaged, &history.any(rng).image, rng);
                }
            }
            if let Reading::Accepted { state, .. } = read(&damaged, rng) {
                let once = usize::try_from(state.epoch)
                    .ok()
                    .and_then(|epoch| history.commits.get(epoch));
                let (context, pages) = once.expect("an epoch that was committed");
                assert!(*context == state.context && pages.iter().eq(state.pages.keys()));
            }
        }
    });
}

/// Damage behind right checksums: anything may come of it but a panic or a great expense.
#[test]
fn forged_metadata_is_read_or_refused() {
    campaign("forged_metadata_is_read_or_refused", RUNS, |rng| {
        let history = History::new(rng);
        for _ in 0..EDITS {
            let mut forged = history.last().image.clone();
            for _ in 0..rng.usize(1..4) {
                if !forged.is_empty() {
                    damage(&mut forged, &history.any(rng).image, rng);
                }
            }
            reseal(&mut forged);
            let _ = read(&forged, rng);
        }
    });
}

#[test]
fn arbitrary_bytes_are_refused() {
    campaign("arbitrary_bytes_are_refused", RUNS, |rng| {
        let len = [0, 1, 63, 64, 4096, 16384, 100_000][rng.usize(..7)];
        let mut bytes = random(rng, len);
        if rng.bool() && len >= 12 {
            bytes[..8].copy_from_slice(b"twinpage");
            bytes[8..12].copy_from_slice(&rng.u32(1..3).to_le_bytes());
        }
        assert!(matches!(read(&bytes, rng), Reading::Refused(_)));
    });
}
