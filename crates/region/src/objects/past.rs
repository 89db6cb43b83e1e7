//! An object as it was after one of its calls: a copy of the region, made of a base and the calls since.
//!
//! * The copy is a region as a crash leaves one: the base, and beside it a log with the calls up to that one, which are run
//!   when its objects are opened. So going back is recovery, and needs nothing of the program before that.
//! * Calls of several logs come into one: their positions there are others, their order, groups and times are the same.

use super::file::{APART, LogFile, RING, ROOM, log_path, random};
use super::kept::{Base, Calls, Kept};
use super::listing::{Operation, Operations, operation, until_it_stands_still};
use super::replay::id_of;
use crate::error::{Error, Result};
use crate::options::{Options, Products};
use crate::superblock::{LogPosition, Superblock};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use twinpage_core::operation_log::{Call, Entry, Group, Log, NAMED};
use twinpage_core::{Poison, Scheme};
use twinpage_os::{Access, AnyMedium, Draft};

/// How far back: [`go_back`].
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use twinpage::objects::Until;
///
/// let ten_minutes_ago = Until::Time(SystemTime::now() - Duration::from_secs(600));
/// assert_ne!(ten_minutes_ago, Until::Call(7));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Until {
    /// To the call at this position of the log, which is the last one.
    Call(u64),
    /// To the last call that was durable by then.
    Time(SystemTime),
}

/// What a copy of the past has: [`go_back`].
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::{Past, Until, go_back, kept, structures::Stack};
/// use twinpage::Region;
///
/// let region = Region::options().keep_calls("pile.kept", 1 << 30).open("pile.twin")?;
/// region.object::<Stack>("pile", |u| Stack::new_in(u))?.push(1);
/// region.close()?;
/// let first = kept("pile.twin", "pile.kept")?.operations[0].position;
/// let past: Past = go_back("pile.twin", "pile.kept", Until::Call(first), "past.twin")?;
/// assert_eq!(past.last.map(|call| call.position), Some(first));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, serde::Serialize)]
pub struct Past {
    /// The position up to which the base has all calls.
    pub base: u64,
    /// Calls that are run when the objects of the copy are opened.
    pub calls: usize,
    /// The last of them.
    pub last: Option<Operation>,
}

/// All calls since the first base.
struct History {
    kept: Kept,
    parts: Vec<Part>,
}

/// Calls of one log.
struct Part {
    start: u64,
    end: u64,
    calls: Calls,
}

/// The calls that a region keeps in a folder ([`Options::keep_calls`]), and those that only its log has.
///
/// # Errors
/// As [`operations`](super::operations); those of the folder's files.
pub fn kept(path: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<Operations> {
    let history = History::read(path.as_ref(), folder.as_ref())?;
    let all = history.parts.iter().flat_map(|Part { calls, .. }| {
        let entries = calls.entries.iter();
        entries.map(|entry| operation(&calls.definitions, entry))
    });
    Ok(Operations {
        log: Some(log_path(path.as_ref())).filter(|log| log.exists()),
        start: history.parts.first().map_or(0, |part| part.start),
        end: history.end(),
        operations: all.collect(),
    })
}

/// Makes the new region `to` as the region in the file `path` was after one of its calls, of those that it keeps in a
/// folder ([`Options::keep_calls`]). A program may have that region open, and goes on.
///
/// The calls since the base, a copy in the folder, are run when the objects of the new region are opened; the program
/// needs their methods as they were. It has the same addresses, so it is opened by another process, or when the region is
/// closed. What is not in objects is as it was in the base.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::{Until, go_back, kept, structures::Stack};
/// use twinpage::Region;
///
/// let region = Region::options().keep_calls("pile.kept", 1 << 30).open("pile.twin")?;
/// let pile = region.object::<Stack>("pile", |u| Stack::new_in(u))?;
/// (1..=5).for_each(|value| pile.push(value));
/// region.close()?;
/// let third = kept("pile.twin", "pile.kept")?.operations[2].position;
/// go_back("pile.twin", "pile.kept", Until::Call(third), "past.twin")?;
/// let past = Region::open("past.twin")?;
/// let pile = past.object::<Stack>("pile", |u| Stack::new_in(u))?;
/// assert_eq!(pile.pop()?, Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Invalid`] when there is a file `to`, or nothing is kept so far back; [`Error::Log`] where calls are missing or
/// damaged.
pub fn go_back(
    path: impl AsRef<Path>,
    folder: impl AsRef<Path>,
    until: Until,
    to: impl AsRef<Path>,
) -> Result<Past> {
    let (path, to) = (path.as_ref(), to.as_ref());
    let log = log_path(to);
    if to.exists() || log.exists() {
        return Err(Error::Invalid(format!(
            "{} or its log exists: the past goes into a new file",
            to.display()
        )));
    }
    let history = History::read(path, folder.as_ref())?;
    let limit = history.limit(until)?;
    let base = history.base_before(limit)?;
    let parts = history.between(base, limit)?;
    let durability = Options::default().durability_in_folder_of(to)?;
    let copy = |at: &Path| {
        std::fs::copy(&base.path, at)
            .map_err(|e| Error::system(format!("copying {}", base.path.display()), e))?;
        Ok::<_, Error>(AnyMedium::open(at, durability, Access::ReadWrite)?)
    };
    let (draft, medium) = Draft::make(to, copy)?;
    let (mut scheme, found) = Options::default().find(medium, &Products)?;
    let superblock = Superblock::decode(&found.context)?;
    let new = LogFile::beside(to, durability);
    let bytes = parts
        .iter()
        .flat_map(|part| &part.entries)
        .map(bytes_of)
        .sum::<u64>();
    let written = new.create_with(superblock.log.start + APART, RING.max(bytes), Poison::default())?;
    let place = write(written, &parts).inspect_err(|_| {
        let _ = std::fs::remove_file(&log); // no region names it
    })?;
    scheme.commit(&superblock.at(place).encode())?;
    drop(scheme);
    if !draft.name(to)? {
        return Err(Error::Invalid(format!("{} was made just now", to.display())));
    }
    let last = parts.iter().rev().find_map(|part| {
        let last = part.entries.last()?;
        Some(operation(&part.definitions, last))
    });
    Ok(Past {
        base: base.start,
        calls: parts.iter().map(|part| part.entries.len()).sum(),
        last,
    })
}

/// The most bytes of a log that a call takes, if it is alone in its group.
fn bytes_of(entry: &Entry) -> u64 {
    2 * 24 + (entry.arguments.len() as u64).next_multiple_of(8)
}

impl History {
    fn read(path: &Path, folder: &Path) -> Result<History> {
        let (kept, live) = until_it_stands_still(path, |place| {
            let kept = Kept::look(folder)?;
            let live = kept.rest_in(path, place)?;
            Ok((kept, live))
        })?;
        let mut parts = Vec::new();
        for file in &kept.calls {
            let (start, end, calls) = (file.start, file.end, file.read()?);
            parts.push(Part { start, end, calls });
        }
        parts.extend(live.map(|(start, found)| Part {
            start,
            end: found.end,
            calls: Calls {
                definitions: found.definitions,
                entries: found.entries,
            },
        }));
        Ok(History { kept, parts })
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.parts.iter().flat_map(|part| &part.calls.entries)
    }

    /// One past the last call.
    fn end(&self) -> u64 {
        let last = self.parts.last().map_or(0, |part| part.end);
        last.max(self.kept.bases.last().map_or(0, |base| base.start))
    }

    /// One past the last call that is wanted.
    fn limit(&self, until: Until) -> Result<u64> {
        match until {
            Until::Call(position) => {
                let call = self.entries().find(|entry| entry.position == position);
                call.map(|entry| entry.next).ok_or_else(|| {
                    Error::Invalid(format!(
                        "no call at position {position} is kept: `twinpage log FILE --kept {}` lists those that are",
                        self.kept.folder.display()
                    ))
                })
            }
            Until::Time(time) => {
                let ms = time
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_millis() as u64);
                let first = self.entries().next().map(|entry| entry.closed_ms);
                if first.is_some_and(|first| first > ms) {
                    return Err(self.not_so_far());
                }
                let later = self.entries().find(|entry| entry.closed_ms > ms);
                Ok(later.map_or(self.end(), |entry| entry.position))
            }
        }
    }

    fn base_before(&self, limit: u64) -> Result<&Base> {
        let base = self.kept.bases.iter().rfind(|base| base.end <= limit);
        base.ok_or_else(|| self.not_so_far())
    }

    fn not_so_far(&self) -> Error {
        Error::Invalid(format!(
            "nothing is kept so far back: {} begins with position {}",
            self.kept.folder.display(),
            self.kept.bases.first().map_or(0, |base| base.start)
        ))
    }

    /// The calls that a base lacks, up to a limit.
    fn between(&self, base: &Base, limit: u64) -> Result<Vec<Calls>> {
        let missing = |why: String| Error::Log {
            file: self.kept.folder.clone(),
            why,
        };
        let mut end = base.start;
        for part in self
            .parts
            .iter()
            .filter(|part| part.end > base.start && part.start < limit)
        {
            if part.start > end {
                return Err(missing(format!(
                    "calls between the positions {end} and {} are missing: a program had the region open that kept none",
                    part.start
                )));
            }
            end = part.end;
        }
        let mut all = Vec::new();
        for Part { calls: part, .. } in &self.parts {
            let wanted = |entry: &&Entry| (base.start..limit).contains(&entry.position);
            let entries: Vec<Entry> = part.entries.iter().filter(wanted).cloned().collect();
            let definitions = part.definitions.clone();
            let later = entries.iter().find_map(|entry| {
                let definition = &definitions[usize::from(entry.object)];
                let is_later = id_of(definition).is_some_and(|id| id > base.last_object);
                is_later.then(|| definition.lines().next().unwrap_or_default())
            });
            if let Some(object) = later {
                return Err(missing(format!(
                    "no base has the object {object:?} yet: one is made when a program opens it that keeps calls"
                )));
            }
            all.push(Calls { definitions, entries });
        }
        Ok(all)
    }
}

/// Writes calls into a new log. Says from where on they are there.
fn write(mut log: Log<AnyMedium>, parts: &[Calls]) -> Result<LogPosition> {
    let place = LogPosition {
        id: log.id(),
        start: log.end(),
    };
    let (appender, mut taker) = log.queue(random(), ROOM);
    let mut closed_ms = 0;
    for part in parts {
        for entry in &part.entries {
            let mut flush = |log: &mut Log<AnyMedium>, closed_ms| match taker.is_empty() {
                true => Ok(()),
                false => log.flush(&taker.take(Group::default(), closed_ms)),
            };
            if entry.closed_ms != closed_ms {
                flush(&mut log, closed_ms)?;
                closed_ms = entry.closed_ms;
            }
            let mut number = |definition: u32| log.define(&part.definitions[definition as usize]);
            let object = number(entry.object.into())?;
            let thread = match entry.thread & NAMED {
                0 => entry.thread,
                _ => NAMED | u32::from(number(entry.thread & !NAMED)?),
            };
            let call = Call {
                object,
                function: entry.function,
                thread,
                lane: entry.lane,
                arguments: &entry.arguments,
            };
            match appender.append(&call) {
                Err(twinpage_core::Error::Full { .. }) => {
                    flush(&mut log, closed_ms)?;
                    appender.append(&call)?;
                }
                appended => {
                    appended?;
                }
            }
        }
    }
    if !taker.is_empty() {
        log.flush(&taker.take(Group::default(), closed_ms))?;
    }
    Ok(place)
}
