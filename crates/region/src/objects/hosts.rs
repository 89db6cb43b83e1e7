//! The objects that are open, by the numbers of their definitions.
//!
//! * An object is changed by the thread with the turn and read by any: it is locked for a chunk of calls, or for a reading.
//! * The lock is taken outside updates, so that no thread waits for it inside one.
//! * The number of an object that was freed is never another's: calls that come too late find that it was.

use super::function::Function;
use super::host::Hosted;
use super::life::freed;
use crate::error::Error;
use std::collections::HashMap;
use std::sync::{PoisonError, RwLock};

pub(super) type Locked = RwLock<Box<dyn Hosted>>;

enum Slot {
    Open(Locked),
    Freed(Freed),
}

/// What is left of an object that was freed.
pub(super) struct Freed {
    name: String,
    functions: &'static [Function],
}

impl Freed {
    pub(super) fn error(&self) -> Error {
        freed(&self.name)
    }

    /// Whether the caller of this function waits for it.
    pub(super) fn is_instant(&self, function: u16) -> bool {
        let function = self.functions.get(usize::from(function));
        function.is_some_and(|function| function.is_instant)
    }
}

#[derive(Default)]
pub(super) struct Hosts {
    by_number: Vec<Option<Slot>>,
    /// The numbers of those that are open.
    by_name: HashMap<String, u16>,
}

impl Hosts {
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<&Locked> {
        match self.by_number.get(usize::from(number))? {
            Some(Slot::Open(host)) => Some(host),
            _ => None,
        }
    }

    pub(super) fn freed(&self, number: u16) -> Option<&Freed> {
        match self.by_number.get(usize::from(number))? {
            Some(Slot::Freed(freed)) => Some(freed),
            _ => None,
        }
    }

    pub(super) fn named(&self, name: &str) -> Option<&Locked> {
        self.numbered(name).map(|(_, host)| host)
    }

    /// The object of that name with its number.
    pub(super) fn numbered(&self, name: &str) -> Option<(u16, &Locked)> {
        let number = *self.by_name.get(name)?;
        self.get(number).map(|host| (number, host))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Locked> {
        self.by_number.iter().filter_map(|slot| match slot {
            Some(Slot::Open(host)) => Some(host),
            _ => None,
        })
    }

    pub(super) fn add(&mut self, number: u16, host: Box<dyn Hosted>) {
        self.by_name.insert(host.name().to_owned(), number);
        let number = usize::from(number);
        if self.by_number.len() <= number {
            self.by_number.resize_with(number + 1, || None);
        }
        self.by_number[number] = Some(Slot::Open(RwLock::new(host)));
    }

    /// Takes out the object of that name, if it is open, to be freed.
    pub(super) fn take(&mut self, name: &str) -> Option<Box<dyn Hosted>> {
        let (name, number) = self.by_name.remove_entry(name)?;
        let slot = self.by_number.get_mut(usize::from(number))?;
        let Some(Slot::Open(host)) = slot.take() else {
            return None;
        };
        let host = host.into_inner().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Slot::Freed(Freed {
            name,
            functions: host.functions(),
        }));
        Some(host)
    }
}
