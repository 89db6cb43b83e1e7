//! The one flag that says a store is no longer durable.
//!
//! * It is set once, by the first write, flush or commit that fails, and keeps that cause.
//! * Clones are the same flag: a layer, an engine and the owner of a store ask and set one flag.

use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock};

/// Whether a store is poisoned, and by what. See the [module](self).
#[derive(Clone, Default, Debug)]
pub struct Poison(Arc<OnceLock<Error>>);

impl Poison {
    /// Refuses what must not follow a failure.
    ///
    /// # Errors
    /// [`Error::Poisoned`] with the first cause.
    #[inline]
    pub fn check(&self) -> Result<()> {
        match self.0.get() {
            None => Ok(()),
            Some(poisoned) => Err(poisoned.clone()),
        }
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.get().is_some()
    }

    /// Sets the flag. The first cause stays.
    #[cold]
    pub fn set(&self, cause: &Error) {
        self.0.get_or_init(|| Error::poisoned(cause.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let poison = Poison::default();
        assert!(poison.check().is_ok() && !poison.is_set());
        let same = poison.clone();
        same.set(&Error::Io {
            what: "write".into(),
            at: 7,
            source: std::io::Error::from_raw_os_error(5),
        });
        let first = poison.check().unwrap_err();
        poison.set(&Error::Invalid("a later cause".into()));
        poison.set(&first);
        let Err(Error::Poisoned(cause)) = poison.check() else {
            panic!("the flag is set");
        };
        let Error::Io { at, source, .. } = &*cause else {
            panic!("the cause keeps its type: {cause}");
        };
        assert_eq!((*at, source.raw_os_error()), (7, Some(5)));
    }
}
