//! The locks of shared roots that a thread holds: it takes none twice, and waits for no checkpoint meanwhile, as an update
//! may wait for the lock.

use std::cell::RefCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

thread_local! {
    /// The locks that this thread holds, or is about to.
    static HELD: RefCell<Vec<Lock>> = const { RefCell::new(Vec::new()) };
}

/// A lock that a thread holds.
struct Lock {
    name: Arc<str>,
    /// Where in the program it was taken.
    at: &'static Location<'static>,
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "root {:?}, which it took at {}", self.name, self.at)
    }
}

/// The lock of that name is on this thread's list.
pub(crate) struct Held<'a>(&'a Arc<str>);

impl<'a> Held<'a> {
    /// Puts it there.
    ///
    /// # Panics
    /// It is there already.
    #[track_caller]
    pub(crate) fn take(name: &'a Arc<str>) -> Held<'a> {
        let lock = Lock {
            name: name.clone(),
            at: Location::caller(),
        };
        let twice = list(|held| {
            let before = held.iter().find(|lock| Arc::ptr_eq(&lock.name, name));
            let twice = before.map(Lock::to_string);
            if twice.is_none() {
                held.push(lock);
            }
            twice
        });
        if let Some(lock) = twice {
            panic!("this thread holds the lock of {lock}, already: take it once, and hand on the reference");
        }
        Held(name)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        list::<()>(|held| {
            held.retain(|lock| !Arc::ptr_eq(&lock.name, self.0));
            None
        });
    }
}

/// A lock that this thread holds, if there is one: which, and where it was taken.
pub(crate) fn held_lock() -> Option<String> {
    list(|held| held.first().map(Lock::to_string))
}

/// With this thread's list. A thread that is ending may have none.
fn list<R>(of: impl FnOnce(&mut Vec<Lock>) -> Option<R>) -> Option<R> {
    HELD.try_with(|held| of(&mut held.borrow_mut())).ok().flatten()
}
