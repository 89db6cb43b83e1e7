//! The state reader against damaged, forged and arbitrary bytes.

use fastrand::Rng;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use twinpage_fuzz::edit::damage;
use twinpage_fuzz::forge::reseal;
use twinpage_fuzz::history::{History, Moment, random};
use twinpage_fuzz::meter::Counting;
use twinpage_fuzz::reader::{Reading, read};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Pieces of damage tried on each store.
const EDITS: usize = 100;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| {
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name} is no number: {value}"))
    })
}

/// Runs `deed` with one seed after another. The seed of a run that fails is printed, and makes it fail again.
fn campaign(name: &str, deed: impl Fn(&mut Rng)) {
    let long = std::env::var_os("TWINPAGE_LONG").is_some();
    let first = number("TWINPAGE_FUZZ_SEED").unwrap_or_else(|| fastrand::u64(..));
    let runs = number("TWINPAGE_FUZZ_RUNS").unwrap_or(if long { 20_000 } else { 100 });
    // Past the harness, which would keep it from who watches a run that hangs or is aborted.
    let _ = writeln!(
        std::io::stderr(),
        "{name}: {runs} runs from TWINPAGE_FUZZ_SEED={first}"
    );
    for run in 0..runs {
        let seed = first.wrapping_add(run);
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| deed(&mut Rng::with_seed(seed)))) {
            eprintln!(
                "again with: TWINPAGE_FUZZ_SEED={seed} TWINPAGE_FUZZ_RUNS=1 cargo test -p twinpage-fuzz {name}"
            );
            resume_unwind(panic);
        }
    }
}

#[test]
fn an_undamaged_store_is_read() {
    campaign("an_undamaged_store_is_read", |rng| {
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
/// another one. Lines of pages carry no checksum, so damaged bytes there are read as they are, and only they.
#[test]
fn one_damage_is_never_another_state() {
    campaign("one_damage_is_never_another_state", |rng| {
        let history = History::new(rng);
        let Moment { state: last, image } = history.last();
        for _ in 0..EDITS {
            let mut damaged = image.clone();
            let bytes = damage(&mut damaged, &history.any(rng).image, rng);
            if let Reading::Accepted { state, damage } = read(&damaged, rng) {
                let differ = last.differing_bytes(&state);
                assert!(
                    differ.is_some_and(|differ| differ <= bytes),
                    "{bytes} damaged bytes: epoch {} read as {}, {differ:?} bytes differ",
                    last.epoch,
                    state.epoch
                );
                assert!(damage.is_empty(), "recovered, but its check says {damage:?}");
            }
        }
    });
}

/// Much damage: still a commit that once was, or a refusal.
#[test]
fn much_damage_is_a_commit_or_refused() {
    campaign("much_damage_is_a_commit_or_refused", |rng| {
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
    campaign("forged_metadata_is_read_or_refused", |rng| {
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
    campaign("arbitrary_bytes_are_refused", |rng| {
        let len = [0, 1, 63, 64, 4096, 16384, 100_000][rng.usize(..7)];
        let mut bytes = random(rng, len);
        if rng.bool() && len >= 12 {
            bytes[..8].copy_from_slice(b"twinpage");
            bytes[8..12].copy_from_slice(&1_u32.to_le_bytes());
        }
        assert!(matches!(read(&bytes, rng), Reading::Refused(_)));
    });
}
