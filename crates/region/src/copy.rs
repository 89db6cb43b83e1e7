//! The copy of a region in a new file, page by page: for backups and for looking at a file in use.

use crate::address::PAGE;
use crate::error::{Error, Result};
use crate::options::{Options, Products};
use crate::store::Store;
use crate::superblock::Superblock;
use std::path::Path;
use twinpage_core::{PageId, PageLines, ProductScheme, Scheme};
use twinpage_os::{AnyMedium, Draft};

/// Pages read at once.
const CHUNK: usize = 64;

/// A region in the making: the new file has its name once it is complete.
pub(crate) struct Copy {
    scheme: ProductScheme<AnyMedium>,
    draft: Draft,
    buffer: Vec<u8>,
}

impl Copy {
    pub(crate) fn begin(path: &Path) -> Result<Copy> {
        if path.exists() {
            return Err(exists(path));
        }
        let (scheme, draft) = Options::default().draft(path, &Products)?;
        Ok(Copy {
            scheme,
            draft,
            buffer: Vec::new(),
        })
    }

    /// Copies pages that lie side by side. What the store has nothing of is left out.
    pub(crate) fn pages(&mut self, store: &dyn Store, pages: std::ops::Range<usize>) -> Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        for first in pages.clone().step_by(CHUNK) {
            let count = CHUNK.min(pages.end - first);
            let there = |page: usize| store.has_bytes(page * PAGE);
            // A page that is gone since it was copied is zero in the copy too.
            if !(first..first + count).any(|page| there(page) || self.has(page)) {
                continue;
            }
            buffer.resize(count * PAGE, 0);
            store.read_bytes(first * PAGE, &mut buffer)?;
            for (page, bytes) in (first..).zip(buffer.chunks_exact(PAGE)) {
                self.page(page, bytes)?;
            }
        }
        self.buffer = buffer;
        Ok(())
    }

    pub(crate) fn some(&mut self, store: &dyn Store, pages: &[usize]) -> Result<()> {
        pages
            .iter()
            .try_for_each(|&page| self.pages(store, page..page + 1))
    }

    fn has(&self, page: usize) -> bool {
        let page_bytes = self.scheme.geometry().page_bytes();
        self.scheme.is_present(PageId((page * PAGE / page_bytes) as u64))
    }

    /// Copies one page, in lines of the new store.
    pub(crate) fn page(&mut self, page: usize, bytes: &[u8]) -> Result<()> {
        let geometry = self.scheme.geometry();
        let (line, page_bytes) = (geometry.line_bytes(), geometry.page_bytes());
        let at = page * PAGE;
        let id = PageId((at / page_bytes) as u64);
        let zero = bytes.iter().all(|&byte| byte == 0);
        if !zero || self.scheme.is_present(id) {
            let lines = PageLines::from(id, at % page_bytes / line, bytes, line);
            let _ = self.scheme.write(lines)?;
        }
        Ok(())
    }

    pub(crate) fn end(mut self, superblock: &Superblock, path: &Path) -> Result<()> {
        self.scheme.commit(&superblock.alone().encode())?;
        match self.draft.name(path)? {
            true => Ok(()),
            false => Err(exists(path)),
        }
    }
}

fn exists(path: &Path) -> Error {
    Error::Invalid(format!(
        "{} exists: a region is copied to a new file only",
        path.display()
    ))
}
