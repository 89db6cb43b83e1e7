//! The objects that are open, by the numbers of their definitions.
//!
//! * An object is changed by the thread with the turn and read by any: it is locked for a chunk of calls, or for a reading.
//! * The lock is taken outside updates, so that no thread waits for it inside one.

use super::host::Hosted;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) type Locked = RwLock<Box<dyn Hosted>>;

#[derive(Default)]
pub(super) struct Hosts {
    by_number: Vec<Option<Locked>>,
}

impl Hosts {
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Locked> {
        self.by_number.get(usize::from(number))?.as_ref()
    }

    pub(super) fn named(&self, name: &str) -> Option<&Locked> {
        self.all().find(|host| read(host).name() == name)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Locked> {
        self.by_number.iter().flatten()
    }

    pub(super) fn add(&mut self, number: u16, host: Box<dyn Hosted>) {
        let number = usize::from(number);
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        self.by_number[number] = Some(RwLock::new(host));
    }
}

pub(super) fn read(host: &Locked) -> RwLockReadGuard<'_, Box<dyn Hosted>> {
    host.read().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn write(host: &Locked) -> RwLockWriteGuard<'_, Box<dyn Hosted>> {
    host.write().unwrap_or_else(PoisonError::into_inner)
}
