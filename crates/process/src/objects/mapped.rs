//! Writes to objects through shared mappings.
//!
//! * A page counts as written unless the kernel says that it is protected: one that was reclaimed since it was
//!   written has no entry in the page table any more, and looks as if it had never been touched.
//! * A part that is mapped no longer may have been written before it went.
//! * A process that ended, or executes another program, may have written to all that it mapped. One that comes and goes
//!   between two looks is not tracked: all that others mapped at the look before, which it may have inherited, may have
//!   been written. What it mapped itself was noted by its call.

use super::{Id, Objects};
use crate::error::{Error, Result};
use crate::files::{Ident, next_data};
use crate::layout::{Kind, Mapping};
use std::collections::HashSet;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use twinpage_os::tracker::{PAGE, Region, Tracker};

/// A mapped part of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Part {
    range: Range<u64>,
    id: Id,
    offset: u64,
}

impl Objects {
    /// Says of each mapping which object it shows, if any.
    ///
    /// # Errors
    /// Names a shared mapping that cannot be captured.
    pub fn resolve(&self, mappings: &mut [Mapping]) -> Result<()> {
        for mapping in mappings {
            if !matches!(mapping.kind, Kind::Object | Kind::SharedFile | Kind::PrivateFile) {
                continue;
            }
            mapping.object = self.find_mapped(mapping);
            match (mapping.kind, mapping.object) {
                (Kind::SharedFile, Some(_)) => mapping.kind = Kind::Object,
                (Kind::Object, None) if !mapping.may_write() && mapping.is_of_gone_file() => {
                    mapping.kind = Kind::GoneFile;
                }
                (Kind::Object, None) => {
                    return Err(Error::Unsupported(format!(
                        "the program mapped {} shared, and made it writable or removed it afterwards: map it writable from the start",
                        mapping.path.display()
                    )));
                }
                (Kind::PrivateFile, None) if mapping.is_of_gone_file() => mapping.kind = Kind::GoneFile,
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether there is one of which only what is mapped is held.
    #[must_use]
    pub fn have_parts(&self) -> bool {
        self.list.values().any(|object| object.parts.is_some())
    }

    /// The file of a shared mapping, if only what is mapped of it is held.
    #[must_use]
    pub fn partly_held(&self, mapping: &Mapping) -> Option<OwnedFd> {
        let is_shared = matches!(mapping.kind, Kind::Object | Kind::SharedFile);
        let id = self.find_mapped(mapping).filter(|_| is_shared)?;
        let object = self.list.get(&id)?;
        object.file.try_clone().ok().filter(|_| object.parts.is_some())
    }

    /// Some file systems show another device in maps than in stat(2).
    fn find_mapped(&self, mapping: &Mapping) -> Option<Id> {
        let shown = Ident {
            dev: mapping.device,
            ino: mapping.inode,
        };
        self.find(shown).or_else(|| {
            let stat = rustix::fs::stat(Path::new(&mapping.path)).ok()?;
            (stat.st_ino == mapping.inode).then(|| self.find(Ident::from(&stat)))?
        })
    }

    /// Takes note of what process `pid` wrote through its `mappings` since the last look, and protects it again.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn find_written(&mut self, pid: i32, mappings: &[Mapping], tracker: &Tracker) -> Result<()> {
        let parts = parts(mappings);
        let before = self.mapped.insert(pid, parts.clone()).unwrap_or_default();
        let now: HashSet<&Part> = parts.iter().collect();
        self.parts_changed(before.iter().filter(|part| !now.contains(part)));
        for part in &parts {
            self.find_written_in(part, tracker)
                .map_err(|source| Error::target("cannot ask what was written to shared memory", source))?;
        }
        Ok(())
    }

    /// A process ended, or executes another program: nothing will tell what it wrote since the last look at it.
    pub fn leave(&mut self, pid: i32) {
        match self.mapped.remove(&pid) {
            Some(parts) => self.parts_changed(parts.iter()),
            None => {
                let all: HashSet<Part> = self.mapped.values().flatten().cloned().collect();
                self.parts_changed(all.iter());
            }
        }
    }

    /// A process executes another program: it maps nothing of what its maker did, and its calls tell what it maps.
    pub fn begin(&mut self, pid: i32) {
        self.mapped.insert(pid, Vec::new());
    }

    fn parts_changed<'a>(&mut self, parts: impl Iterator<Item = &'a Part>) {
        for part in parts {
            let len = part.range.end - part.range.start;
            if let Some(object) = self.list.get_mut(&part.id) {
                object.changed.add(part.offset..part.offset + len);
            }
        }
    }

    fn find_written_in(&mut self, part: &Part, tracker: &Tracker) -> std::io::Result<()> {
        let Some(object) = self.list.get_mut(&part.id) else {
            return Ok(());
        };
        // Behind the end of the file nothing can be written, and holes were not.
        let size = rustix::fs::fstat(&object.file)?.st_size as u64;
        let end = (part.offset + (part.range.end - part.range.start)).min(size.next_multiple_of(PAGE));
        let mut clean = Vec::new();
        let address = |offset: u64| part.range.start + (offset - part.offset);
        let mut at = part.offset;
        while at < end {
            let Some(data) = next_data(&object.file, at..end)? else {
                break;
            };
            let data = super::to_pages(data);
            let (from, to) = (data.start.max(at), data.end.min(end));
            clean.clear();
            tracker.protected(address(from)..address(to), &mut clean)?;
            for written in between(address(from)..address(to), &clean) {
                let offset = part.offset + (written.start - part.range.start);
                let in_file = offset..offset + (written.end - written.start);
                match tracker.protect(written) {
                    // Not tracked: nothing can be written through it.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    protected => {
                        object.changed.add(in_file);
                        protected?;
                    }
                }
            }
            at = to;
        }
        Ok(())
    }
}

/// The parts of objects that mappings show.
pub(super) fn parts(mappings: &[Mapping]) -> Vec<Part> {
    mappings.iter().filter_map(part).collect()
}

fn part(mapping: &Mapping) -> Option<Part> {
    let id = mapping.object.filter(|_| mapping.kind == Kind::Object)?;
    Some(Part {
        range: mapping.range(),
        id,
        offset: mapping.offset,
    })
}

/// What of `range` lies in none of `regions`, which are in order and inside it.
fn between(range: Range<u64>, regions: &[Region]) -> Vec<Range<u64>> {
    let mut rest = Vec::new();
    let mut at = range.start;
    for (start, end) in
        (regions.iter().map(|region| (region.start, region.end))).chain([(range.end, range.end)])
    {
        if start > at {
            rest.push(at..start);
        }
        at = end;
    }
    rest
}
