//! A store that is read through the next level.

use super::NextLevel;
use crate::store::{Shared, Store};
use std::sync::Arc;
use twinpage_core::scheme::{Damage, Epoch, Info};
use twinpage_core::{Idle, PageId, Result};

/// A store, and the next level of its region, if it has one. What the store has of a page is newer.
pub(crate) struct Leveled<S> {
    pub(crate) store: Shared<S>,
    pub(crate) next: Option<Arc<NextLevel>>,
}

impl<S> Clone for Leveled<S> {
    fn clone(&self) -> Leveled<S> {
        let (store, next) = (self.store.clone(), self.next.clone());
        Leveled { store, next }
    }
}

impl<S: Idle + Send> Store for Leveled<S> {
    fn read_bytes(&self, at: usize, into: &mut [u8]) -> Result<()> {
        let Some(next) = &self.next else {
            return self.store.read_bytes(at, into);
        };
        // Held over both looks: no page moves between them.
        let scheme = self.store.lock();
        let (page_bytes, line) = (scheme.geometry().page_bytes(), scheme.geometry().line_bytes());
        let mut done = 0;
        while done < into.len() {
            let inside = (at + done) % page_bytes;
            let end = into.len().min(done + page_bytes - inside);
            let (page, part) = (PageId(((at + done) / page_bytes) as u64), &mut into[done..end]);
            let in_level = match scheme.is_present(page) {
                true => None,
                false => next.read(page, inside, part),
            };
            match in_level {
                Some(read) => read?,
                None => scheme.read(page, inside / line, part)?,
            }
            done = end;
        }
        Ok(())
    }

    fn has_bytes(&self, at: usize) -> bool {
        let scheme = self.store.lock();
        let page = PageId((at / scheme.geometry().page_bytes()) as u64);
        scheme.is_present(page) || self.next.as_ref().is_some_and(|next| next.has(page))
    }

    fn info(&self) -> Info {
        self.store.info()
    }

    fn epoch(&self) -> Epoch {
        self.store.epoch()
    }

    fn give_back(&self) -> Result<bool> {
        self.store.give_back()
    }

    fn check(&self) -> Result<Vec<Damage>> {
        let mut found = self.store.check()?;
        if let Some(next) = &self.next {
            let pages = next.pages();
            let in_level = pages.filter(|page| !self.store.lock().is_present(*page));
            found.extend(in_level.filter_map(|page| next.check(page)));
        }
        Ok(found)
    }
}
