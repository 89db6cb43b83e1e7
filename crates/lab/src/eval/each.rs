//! What the studies on a machine with its memory on the bus share: what is asked of them, artifacts by name, and runs side
//! by side.

use super::Tell;
use crate::provenance::Provenance;
use crate::threads;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What to repeat of such a study, and how large.
#[derive(Clone, Debug)]
pub struct StudyRequest {
    /// Which artifacts; all if empty.
    pub artifacts: Vec<String>,
    /// Values of its machines that are other than the paper's, each as `memory.channels=2`.
    pub set: Vec<String>,
    /// Runs are smaller by this; what else is, each machine says.
    pub smaller: u64,
    /// Everything random follows from it, where a study has a seed.
    pub seed: u64,
    /// Runs at a time; as many as there are processors if none is given.
    pub jobs: Option<usize>,
    /// For the report.
    pub provenance: Provenance,
}

/// The artifacts named, of those a paper has with what they show; all if none is named.
///
/// # Errors
/// One that the paper does not have.
pub(super) fn chosen(
    paper: &str,
    all: &[(&'static str, &str)],
    names: &[String],
) -> Result<Vec<&'static str>, String> {
    let known = |name: &String| all.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        return Err(format!(
            "{paper} has no artifact {unknown}; it has {}",
            known.join(", ")
        ));
    }
    let is_chosen = |name: &&'static str| names.is_empty() || names.iter().any(|chosen| chosen == name);
    Ok(all.iter().map(|(name, _)| *name).filter(is_chosen).collect())
}

/// Does the runs, `jobs` at a time or as many as there are processors, and returns them by name.
///
/// # Errors
/// The first run that failed.
pub(super) fn each<K: Sync, R: Send>(
    keys: &[K],
    jobs: Option<usize>,
    tell: Tell<'_>,
    run: impl Fn(&K) -> Result<(String, R), String> + Sync,
) -> Result<BTreeMap<String, R>, String> {
    let threads = threads(jobs)?;
    let done = AtomicUsize::new(0);
    let one = |key: &K| {
        let (name, run) = run(key)?;
        tell(done.fetch_add(1, Ordering::Relaxed) + 1, keys.len(), &name);
        Ok((name, run))
    };
    threads.install(|| keys.par_iter().map(one).collect())
}
