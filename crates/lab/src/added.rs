//! A list that a program adds to, under names of its own, before it runs anything.
//!
//! * A name stands for one thing: a second one of the same name is a mistake of the program, and panics.

use std::sync::{PoisonError, RwLock};

/// What was added, in that order.
pub(crate) struct Added<T>(RwLock<Vec<T>>);

impl<T: Copy> Added<T> {
    pub(crate) const fn new() -> Added<T> {
        Added(RwLock::new(Vec::new()))
    }

    /// One more, unless `is_taken` says of one that is there that it has the name.
    pub(crate) fn add(&self, one: T, name: &str, is_taken: impl Fn(&T) -> bool) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        assert!(!all.iter().any(is_taken), "{name} was added before");
        all.push(one);
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
