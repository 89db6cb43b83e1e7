//! The index and the map, found again from the checkpoint below; and everything compared.
//!
//! * The root says from where to where the log reaches: batches follow one another without a gap from
//!   its tail to its head, or it is damaged.
//! * Directories are read, the lines of the strips are not: `check` does.
//! * Strips are of pages that are there; a sheet with a page is there below, and none but those, the
//!   log's and the map's is.

use super::batch::Directory;
use super::fault::Fault;
use super::index::{Batch, Index};
use super::layout::{LOG_SHEETS, Layout, MAP_SHEETS, ROOT, Root, SHEET};
use super::log::read_directory;
use super::payload::{self, Payloads};
use super::presence::Presence;
use super::{Options, Packed};
use crate::error::{Error, Result};
use crate::geometry::PageId;
use crate::scheme::{Damage, Recovered, Scheme};
use crate::shell::Mechanism;
use crc32c::crc32c_append;

/// What older batches have of the pages a batch drops is void.
fn drop_pages(index: &mut Index, directory: &Directory) {
    for &page in &directory.drops {
        index.drop_page(page);
    }
}

impl<S: Mechanism> Packed<S> {
    /// The store over a scheme that was recovered already.
    ///
    /// # Errors
    /// [`Error::Foreign`] when its context is not that of packed lines ([`super::is_packed`]),
    /// [`Error::Damaged`] when the log or the map is not as the last commit left it.
    pub fn over(below: S, found: Recovered) -> Result<(Packed<S>, Recovered)> {
        Packed::over_with(below, found, None)
    }

    /// [`Packed::over`], making a mistake from the start.
    #[doc(hidden)]
    pub fn over_with(below: S, mut found: Recovered, fault: Option<Fault>) -> Result<(Packed<S>, Recovered)> {
        let mut store = if found.epoch == 0 {
            Packed::create(below, &Options::default())?
        } else {
            let root = Root::decode(&found.context)?;
            found.context.drain(..ROOT);
            let layout = Layout::over(below.geometry())?;
            Packed::assemble(below, layout, root)
        };
        store.fault = fault;
        store.last_context.clone_from(&found.context);
        store.reload()?;
        found.context.clone_from(&store.last_context);
        Ok((store, found))
    }

    /// Forgets the epoch: everything is again as in the checkpoint below.
    pub(super) fn reload(&mut self) -> Result<()> {
        let (presence, index, payloads) = self.load()?;
        (self.presence, self.index, self.waiting) = (presence, index, payloads.waiting);
        if let Some(context) = payloads.context {
            self.last_context = context;
        }
        (self.tail, self.head) = (self.root.tail, self.root.head);
        self.let_go();
        assert!(
            self.tail <= self.head && self.head - self.tail <= self.root.lines(),
            "the log reaches from line {} to {}, and has {} lines",
            self.tail,
            self.head,
            self.root.lines()
        );
        Ok(())
    }

    /// The checkpoint of the scheme below.
    fn load(&self) -> Result<(Presence, Index, Payloads)> {
        let presence = self.load_map()?;
        let mut index = Index::new(self.root.lines());
        let mut batches = self.load_batches()?;
        if self.faulty(Fault::OldestWins) {
            batches.reverse();
        }
        for (batch, directory) in &batches {
            index.push(batch.line, batch.lines);
            if !self.faulty(Fault::DropLate) {
                drop_pages(&mut index, directory);
            }
            let mut at = directory.content;
            for &(page, mask) in &directory.strips {
                index.insert(page, mask, at, self.layout.line_bytes());
                at += mask.count() * self.layout.line_bytes();
            }
            if self.faulty(Fault::DropLate) {
                drop_pages(&mut index, directory);
            }
        }
        if let Some(page) = index.pages().find(|&page| !presence.has(page)) {
            let why = format!("it has lines of page {page}, which is not there");
            return Err(self.damaged("log of packed lines", self.root.log(self.root.tail), why));
        }
        let payloads = self.load_payloads()?;
        if let Some(page) = payload::absent(&payloads.waiting, |page| presence.has(page)) {
            let why = format!("it has lines of page {page}, which is not there");
            return Err(self.damaged("payload of packed lines", self.layout.page(page), why));
        }
        Ok((presence, index, payloads))
    }

    /// Every batch from the tail to the head.
    fn load_batches(&self) -> Result<Vec<(Batch, Directory)>> {
        let mut batches = Vec::new();
        let mut line = self.root.tail;
        while line < self.root.head {
            let (lines, directory) = read_directory(&self.below, self, line)?;
            let batch = Batch { line, lines };
            line += u64::from(lines);
            if line > self.root.head {
                let why = format!(
                    "it ends at line {line} of the log, past its head {}",
                    self.root.head
                );
                return Err(self.damaged("batch of packed lines", self.root.log(batch.line), why));
            }
            batches.push((batch, directory));
        }
        Ok(batches)
    }

    /// The map, which must fit the pages below.
    fn load_map(&self) -> Result<Presence> {
        let mut presence = Presence::default();
        let page_bytes = self.layout.page_bytes();
        let mut bytes = vec![0; page_bytes * SHEET as usize];
        let map = LOG_SHEETS..LOG_SHEETS + MAP_SHEETS;
        let mut below = 0;
        for sheet in map.filter(|&sheet| self.below.is_present(PageId(sheet))) {
            below += 1;
            self.below.read(PageId(sheet), 0, &mut bytes)?;
            for (line, bytes) in bytes.chunks_exact(page_bytes).enumerate() {
                let number = (sheet - LOG_SHEETS) * SHEET + line as u64;
                let decoded = presence.decode(number, bytes, self.root.seed(), self.layout);
                decoded.map_err(|why| self.damaged("map of pages", (PageId(sheet), line), why))?;
            }
        }
        if let Some(sheet) = presence
            .sheets()
            .find(|&sheet| !self.below.is_present(Layout::sheet(sheet)))
        {
            let why = format!("it has pages of sheet {sheet}, which is not there");
            return Err(self.damaged("map of pages", Layout::map(sheet / self.layout.masks()), why));
        }
        let log = (0..LOG_SHEETS)
            .filter(|&sheet| self.below.is_present(PageId(sheet)))
            .count();
        let sheets = presence.sheets().len() as u64 + below + log as u64;
        let there = self.below.info().pages;
        if presence.pages != self.root.pages || sheets != there {
            let (pages, said) = (presence.pages, self.root.pages);
            let why = format!("{pages} pages in {sheets} sheets: expected {said} in {there}");
            return Err(self.damaged("map of pages", Layout::map(0), why));
        }
        Ok(presence)
    }

    fn damaged(&self, what: &'static str, (page, line): (PageId, usize), why: String) -> Error {
        let at = self.below.newest_place(page, line).unwrap_or_default();
        Error::damaged(what, at, why)
    }

    /// Everything below, then the log and the map: read again, verified, compared with
    /// memory. While an epoch is open the log is between two commits, and only what is below is checked.
    pub(super) fn list_damage(&self) -> Result<Vec<Damage>> {
        let mut damage = self.below.check()?;
        if self.open || self.shell.is_lost() || !damage.is_empty() {
            return Ok(damage);
        }
        match self.load() {
            Ok((presence, index, payloads)) => {
                let memory = [
                    ("map of pages", presence.agrees(&self.presence)),
                    ("log of packed lines", index.in_order() == self.index.in_order()),
                    ("payload of packed lines", self.waits_as(&payloads.waiting)),
                ];
                damage.extend(
                    memory
                        .into_iter()
                        .filter(|(_, same)| !same)
                        .map(|(what, _)| Damage::new(what, 0, "it is otherwise in memory")),
                );
                self.check_lines(&mut damage)?;
            }
            Err(Error::Damaged { what, at, why }) => damage.push(Damage::new(what, at, why)),
            Err(error) => return Err(error),
        }
        Ok(Damage::cut(damage))
    }

    /// The lines of every strip, by the checksums of their batches.
    fn check_lines(&self, damage: &mut Vec<Damage>) -> Result<()> {
        let page_bytes = self.layout.page_bytes();
        for (batch, directory) in self.load_batches()? {
            let (sheet, place) = self.root.log(batch.line);
            let mut bytes = vec![0; batch.lines as usize * page_bytes];
            self.below.read(sheet, place, &mut bytes)?;
            let content = &bytes[directory.content..directory.content + directory.content_len];
            let found = crc32c_append(self.root.seed(), content);
            if found != directory.content_crc && damage.len() <= Damage::MOST {
                damage.push(Damage {
                    what: "packed lines".into(),
                    at: self.below.newest_place(sheet, place).unwrap_or_default(),
                    why: format!(
                        "checksum {found:08x}, their directory says {:08x}",
                        directory.content_crc
                    ),
                });
            }
        }
        Ok(())
    }
}
