//! How long the tests of all crates run, and by which seeds.
//!
//! * `TWINPAGE_LONG`, set to anything but 0, makes campaigns long.
//! * `TWINPAGE_SEED=N` repeats the choices of an earlier run, of which each test says the seed.

#![forbid(unsafe_code)]

use fastrand::Rng;

/// Whether campaigns are long.
#[must_use]
pub fn is_long() -> bool {
    std::env::var_os("TWINPAGE_LONG").is_some_and(|long| !long.is_empty() && long != "0")
}

/// The first of what a campaign tries when it is short, the second when it is long.
#[must_use]
pub fn either<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// The seed that was asked for.
///
/// # Panics
/// When that is no number.
#[must_use]
pub fn given_seed() -> Option<u64> {
    let seed = std::env::var("TWINPAGE_SEED").ok()?;
    Some(seed.parse().expect("TWINPAGE_SEED is a number"))
}

/// The seed that was asked for, else another in each run, short enough to be typed. It is printed: a failure shows it.
#[must_use]
pub fn seed() -> u64 {
    let seed = given_seed().unwrap_or_else(|| fastrand::u64(..1_000_000_000));
    println!("TWINPAGE_SEED={seed}");
    seed
}

/// Random numbers by that seed.
#[must_use]
pub fn random() -> Rng {
    Rng::with_seed(seed())
}
