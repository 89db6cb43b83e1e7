//! Writes to objects through shared mappings.
//!
//! * A page counts as written unless the kernel says that it is protected: one that was reclaimed since it was
//!   written has no entry in the page table any more, and looks as if it had never been touched.
//! * A part that is mapped no longer may have been written before it went.

use super::{Id, Objects};
use crate::error::{Error, Result};
use crate::files::{Ident, next_data};
use crate::layout::{Kind, Mapping};
use std::ops::Range;
use std::path::Path;
use twinpage_os::tracker::{PAGE, Region, Tracker};

/// A mapped part of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
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
                (Kind::Object, None)
                    if mapping.protection & libc::PROT_WRITE as u32 == 0 && mapping.is_of_gone_file() =>
                {
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

    /// Takes note of what was written through `mappings` since the last stop, and protects it again.
    ///
    /// # Errors
    /// When the kernel refuses to tell.
    pub fn find_written(&mut self, mappings: &[Mapping], tracker: &Tracker) -> Result<()> {
        let parts: Vec<Part> = mappings.iter().filter_map(part).collect();
        let gone: Vec<Part> = (self.mapped.drain(..).filter(|part| !parts.contains(part))).collect();
        for part in gone {
            let len = part.range.end - part.range.start;
            self.add_changed(part.id, part.offset..part.offset + len);
        }
        for part in &parts {
            self.find_written_in(part, tracker)
                .map_err(|source| Error::target("cannot ask what was written to shared memory", source))?;
        }
        self.mapped = parts;
        Ok(())
    }

    fn add_changed(&mut self, id: Id, range: Range<u64>) {
        if let Some(object) = self.list.values_mut().find(|object| object.id == id) {
            object.changed.add(range);
        }
    }

    fn find_written_in(&mut self, part: &Part, tracker: &Tracker) -> std::io::Result<()> {
        let Some(object) = self.list.values_mut().find(|object| object.id == part.id) else {
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
                object.changed.add(offset..offset + (written.end - written.start));
                match tracker.protect(written) {
                    // Not tracked: nothing can be written through it.
                    Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                    protected => protected?,
                }
            }
            at = to;
        }
        Ok(())
    }
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
