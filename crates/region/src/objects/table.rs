//! The table of a region's objects (SIMPO 3.4.1): which there are, each with a number that no other ever has.
//!
//! * It is a root of the region. An object is there if it has an entry: it is made in one update with its entry, and freed
//!   in one with it. So a crash leaves all of an object or nothing of it.
//! * Numbers are given once. An object that is made anew under an old name has another, and calls of the old one, in the
//!   log or by a handle that is still there, are not taken for calls of the new one.
//! * Where an object lies and what type it is say the roots; how large it is with all it owns, a walk of the region.
//! * Regions of builds without a table get it when the first of their objects is opened.

use crate::collections;
use crate::control_socket;
use crate::error::{Error, Result, RootError};
use crate::inspect::inspect;
use crate::persist::Persist;
use crate::reader::{ReadRoot, Reader};
use crate::region::{Inner, Region, Update, View};
use crate::root::Root;
use crate::superblock::LogPosition;
use std::collections::BTreeSet;
use std::path::Path;

/// The root that the table is.
pub(super) const TABLE: &str = "table of objects";
/// What the names of an object's other roots end with: how far its calls were run, what is known of threads with names.
const POSITION: &str = ": position in the operation log";
const THREADS: &str = ": threads";

/// What is kept in the region.
#[derive(Persist)]
pub(super) struct Table<'r> {
    /// The last number that was given.
    last: u64,
    /// In the order in which they were made.
    entries: collections::Vec<'r, Entry<'r>>,
}

/// An object.
#[derive(Persist)]
struct Entry<'r> {
    id: u64,
    name: collections::String<'r>,
}

impl Table<'_> {
    pub(super) fn find(&self, name: &str) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.name == *name);
        entry.map(|entry| entry.id)
    }
}

/// The root with the position of an object's calls.
pub(super) fn position_of(name: &str) -> String {
    format!("{name}{POSITION}")
}

/// The root with what is known of threads.
pub(super) fn threads_of(name: &str) -> String {
    format!("{name}{THREADS}")
}

/// The object that a root is a part of, if it is the one with its position.
pub(super) fn object_of_position(root: &str) -> Option<&str> {
    root.strip_suffix(POSITION)
}

/// Frees an object that is not open, by what the region says of its type: no `Drop` is run.
pub(super) fn remove_unopened(region: &Region, name: &str) -> Result<()> {
    region.remove_root(name)?;
    remove_parts(region, name)
}

/// Removes what is kept beside an object.
fn remove_parts(region: &Region, name: &str) -> Result<()> {
    for part in [position_of(name), threads_of(name)] {
        match region.remove_root(&part) {
            Err(Error::Root(RootError::Missing { .. })) => {}
            other => other?,
        }
    }
    Ok(())
}

/// The table of a region whose objects are open.
#[derive(Debug)]
pub(super) struct ObjectTable {
    root: Root<Table<'static>>,
}

impl ObjectTable {
    /// The table as it should be: made or mended in one update.
    pub(super) fn open(region: &Region) -> Result<ObjectTable> {
        region.update(|update| {
            let root = region.root_with::<Table>(TABLE, |update| Table {
                last: 0,
                entries: collections::Vec::new_in(update.heap()),
            })?;
            let mut table = ObjectTable { root };
            table.mend(region, update)?;
            Ok(table)
        })
    }

    /// Objects of builds without a table get entries. What such a build left when it was killed while it made an object,
    /// or a program that removed an object's root, goes.
    fn mend(&mut self, region: &Region, update: &Update<'_>) -> Result<()> {
        let roots: BTreeSet<String> = region.roots()?.into_iter().map(|root| root.name).collect();
        for name in roots.iter().filter_map(|root| object_of_position(root)) {
            if roots.contains(name) {
                self.give(update, name)?;
            } else {
                remove_parts(region, name)?;
            }
        }
        let lacks_root = |entry: &Entry<'_>| !roots.contains(entry.name.as_str());
        if self.root.get(update).entries.iter().any(lacks_root) {
            let entries = &mut self.root.get_mut(update).entries;
            entries.retain(|entry| !lacks_root(entry));
        }
        Ok(())
    }

    /// The number of an object, if there is one of that name.
    pub(super) fn find(&self, view: &View<'_>, name: &str) -> Option<u64> {
        self.root.get(view).find(name)
    }

    /// All objects, with their numbers.
    pub(super) fn all(&self, inner: &Inner) -> Vec<(u64, String)> {
        inner.in_update(|update| {
            let entries = self.root.get(update).entries.iter();
            entries.map(|entry| (entry.id, entry.name.to_string())).collect()
        })
    }

    /// The last number that was given.
    pub(super) fn last(&self, inner: &Inner) -> u64 {
        inner.in_update(|update| self.root.get(update).last)
    }

    /// The number that an object has, or would get.
    pub(super) fn number_for(&self, view: &View<'_>, name: &str) -> u64 {
        let table = self.root.get(view);
        table.find(name).unwrap_or(table.last + 1)
    }

    /// The number of an object, which gets an entry if it has none.
    pub(super) fn give(&mut self, update: &Update<'_>, name: &str) -> Result<u64> {
        if let Some(id) = self.find(update, name) {
            return Ok(id);
        }
        let mut text = collections::String::new_in(update.heap());
        text.try_reserve(name.len()).map_err(RootError::from)?;
        text.push_str(name);
        let table = self.root.get_mut(update);
        table.entries.try_reserve(1).map_err(RootError::from)?;
        table.last += 1;
        let id = table.last;
        table.entries.push(Entry { id, name: text });
        Ok(id)
    }

    /// Takes an object out.
    pub(super) fn remove(&mut self, update: &Update<'_>, name: &str) {
        let entries = &mut self.root.get_mut(update).entries;
        entries.retain(|entry| entry.name != *name);
    }
}

/// An object of a region, as [`list`] tells of it.
///
/// ```
/// use twinpage::objects::ObjectInfo;
///
/// fn largest(objects: &[ObjectInfo]) -> Option<&ObjectInfo> {
///     objects.iter().max_by_key(|object| object.bytes)
/// }
/// assert!(largest(&[]).is_none());
/// ```
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct ObjectInfo {
    /// Its number, which no other object of the region ever has; none where only builds without a table of objects had it
    /// open.
    pub id: Option<u64>,
    /// Its name.
    pub name: String,
    /// The name of its type.
    pub type_name: String,
    /// Blocks of the heap that it owns.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of those, bytes that are in the region's next level ([`Options::next_level`](crate::Options::next_level)).
    pub next_level_bytes: u64,
    /// Who has it: the process that has the region open, if one has, and those that share the object through it.
    pub holders: Vec<String>,
}

/// The objects of the region in the file `path` at its last durable checkpoint, in the order of their roots. Another
/// process may have it open, and goes on. All of the region is read, and of one whose checkpoints follow each other faster
/// than that a copy is asked for, as by [`Reader::open`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::list;
/// use twinpage::{Persist, Region};
///
/// #[derive(Persist)]
/// struct Counter {
///     value: u64,
/// }
///
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) {
///         self.value += by;
///     }
/// }
///
/// let region = Region::open("counter.twin")?;
/// region.object::<Counter>("counter", |_| Counter { value: 0 })?;
/// region.close()?; // or in another process, which goes on
/// let objects = list("counter.twin")?;
/// assert_eq!((objects[0].id, &*objects[0].name), (Some(1), "counter"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`Reader::open`]; [`Error::Damaged`] for a region that `twinpage check` finds damaged.
pub fn list(path: impl AsRef<Path>) -> Result<Vec<ObjectInfo>> {
    let path = path.as_ref();
    let found = inspect(path)?;
    let never = LogPosition::default();
    if found.superblock.is_none_or(|superblock| superblock.log == never) {
        return Ok(Vec::new());
    }
    let holder = found.in_use.clone();
    let in_level = found.next_level().map(|(_, objects)| objects).unwrap_or_default();
    drop(found);
    let sharers = match &holder {
        // One that does not answer is just about to end.
        Some(_) => control_socket::holders(path).unwrap_or_default(),
        None => Vec::new(),
    };
    let holders_of = |object: &str| {
        let sharers = sharers.iter().filter(|(_, shared)| shared == object);
        let sharers = sharers.map(|(process, _)| format!("process {process}"));
        holder.iter().cloned().chain(sharers).collect()
    };
    let reader = Reader::open(path)?;
    let report = reader.check()?;
    if let Some(finding) = report.damage.first() {
        return Err(Error::Damaged(finding.to_string()));
    }
    let table: Option<ReadRoot<Table>> = match reader.root(TABLE) {
        Err(Error::Root(RootError::Missing { .. })) => None,
        other => Some(other?),
    };
    let id_of = |name: &str| reader.read(|view| table.as_ref()?.get(view).find(name));
    let roots = &report.roots;
    let names: BTreeSet<_> = roots
        .iter()
        .filter_map(|root| object_of_position(&root.name))
        .collect();
    let objects = roots.iter().filter(|root| names.contains(&*root.name));
    let info = objects.map(|root| {
        let id = id_of(&root.name);
        ObjectInfo {
            id,
            name: root.name.clone(),
            type_name: root.type_name.clone(),
            blocks: root.blocks,
            bytes: root.bytes,
            next_level_bytes: id.and_then(|id| in_level.get(&id).copied()).unwrap_or(0),
            holders: holders_of(&root.name),
        }
    });
    Ok(info.collect())
}
