//! The content of a log.

use super::record::{
    HEAD, MAGIC, NAMED, Raw, RawHeader, WITHDRAWN, call_seed, definition_seed, mark_seed, seed_of,
};
use super::{DEFINITIONS_AT, Group, LEAST_RING, RING_AT, VERSION};
use crate::error::{Error, Result};
use crate::medium::Medium;
use crate::record::{peek, verify};
use std::ops::Range;

/// Bytes that are read at once at least.
const AT_ONCE: usize = 16 << 10;

/// A call that is in the log, with a copy of its arguments.
pub type Entry = InLog<Vec<u8>>;

/// A call that is in the log, whose arguments are where they were found.
pub type Logged<'a> = InLog<&'a [u8]>;

/// A call that is in the log. See [`Entry`] and [`Logged`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct InLog<A> {
    /// Its position.
    pub position: u64,
    /// That of what follows it.
    pub next: u64,
    /// When its group was closed to be made durable, milliseconds of Unix time; 0 where that is not known.
    pub closed_ms: u64,
    /// The number of the definition that names the object and its functions.
    pub object: u16,
    /// The number of the function in it.
    pub function: u16,
    /// The persistent number of the thread that called.
    pub thread: u32,
    /// The part of the object that the call touches; none for a call that may touch all of it.
    pub lane: Option<u64>,
    /// The arguments.
    pub arguments: A,
}

impl<A> InLog<A> {
    /// The call of a record, at this position.
    fn of(raw: &Raw, position: u64, next: u64, closed_ms: u64, arguments: A) -> InLog<A> {
        InLog {
            position,
            next,
            closed_ms,
            object: raw.object.get(),
            function: raw.function.get(),
            thread: raw.thread.get(),
            lane: raw.lane(),
            arguments,
        }
    }

    /// The call with these arguments.
    fn with<B>(&self, arguments: B) -> InLog<B> {
        InLog {
            position: self.position,
            next: self.next,
            closed_ms: self.closed_ms,
            object: self.object,
            function: self.function,
            thread: self.thread,
            lane: self.lane,
            arguments,
        }
    }
}

impl Entry {
    /// The call, whose arguments stay here.
    #[must_use]
    pub fn logged(&self) -> Logged<'_> {
        self.with(&self.arguments)
    }

    /// That its object has one of these definitions, and so has its thread if that has a name.
    fn check_names(&self, definitions: usize) -> Result<()> {
        const WHAT: &str = "definitions of the operation log";
        let thread = (self.thread & NAMED != 0).then_some(self.thread & !NAMED);
        let named = [Some(u32::from(self.object)), thread];
        let gone = (named.into_iter().flatten()).find(|&number| number as usize >= definitions);
        gone.map_or(Ok(()), |number| {
            let why = format!("the definition {number} that a call names is gone");
            Err(Error::damaged(WHAT, DEFINITIONS_AT, why))
        })
    }
}

/// The content of a log.
#[derive(Clone, Debug)]
pub struct Found {
    /// The definitions, by number.
    pub definitions: Vec<String>,
    /// The calls, in order.
    pub entries: Vec<Entry>,
    /// One past the last of them.
    pub end: u64,
    /// The groups they are in, in order.
    pub groups: Vec<GroupAt>,
    /// Bytes of the ring.
    pub ring: u64,
    pub(super) next_definition: u64,
}

/// A group of calls that were made durable together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupAt {
    /// The position of its mark.
    pub position: u64,
    /// The life of the log that wrote it.
    pub life: u64,
}

/// The header of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The number that a store's context names it by.
    pub id: u64,
    /// Bytes of its ring.
    pub ring: u64,
}

/// Reads the header of a log.
///
/// # Errors
/// [`Error::Foreign`] when it is none, or one of another version; [`Error::Damaged`] when it is not as it was written,
/// or the log is cut; those of the medium.
pub fn header(medium: &impl Medium) -> Result<Header> {
    const WHAT: &str = "header of the operation log";
    let mut bytes = [0; size_of::<RawHeader>()];
    if medium.len() < RING_AT {
        let why = format!(
            "it is cut: {} bytes are left, and the ring begins at {RING_AT}",
            medium.len()
        );
        return Err(Error::damaged(WHAT, medium.len(), why));
    }
    medium.read(0, &mut bytes)?;
    let Some(raw) = peek::<RawHeader>(&bytes).filter(|raw| raw.magic == MAGIC) else {
        return Err(Error::Foreign("it is no operation log".into()));
    };
    if raw.version.get() != VERSION {
        return Err(Error::Foreign(format!(
            "an operation log of version {}; this build reads version {VERSION}",
            raw.version
        )));
    }
    verify(&raw, &[], 0).map_err(|mismatch| Error::damaged(WHAT, 0, mismatch.to_string()))?;
    let (id, ring) = (raw.id.get(), raw.ring.get());
    if ring < LEAST_RING || !ring.is_multiple_of(8) || ring > i64::MAX as u64 {
        return Err(Error::damaged(WHAT, 24, format!("a ring of {ring} bytes")));
    }
    if medium.len() < RING_AT + ring {
        let why = format!("it is cut: {} bytes of {} are left", medium.len(), RING_AT + ring);
        return Err(Error::damaged("operation log", medium.len(), why));
    }
    Ok(Header { id, ring })
}

/// Reads the log `id` from position `start` on.
///
/// # Errors
/// As [`header`]; [`Error::Foreign`] for the log of another store; [`Error::Damaged`] where a definition or a record is
/// not as it was written and was durable. A last group that a crash has torn is no damage: the log ends in it.
pub fn read(medium: &impl Medium, id: u64, start: u64) -> Result<Found> {
    read_as(medium, id, start, true)
}

/// As [`read`], of a log that is written meanwhile: what follows the last record is not looked at, and so it is not known
/// whether that is damaged. It costs what was written since `start`, and not the whole ring.
///
/// # Errors
/// As [`read`], but for damage behind the last record that is valid.
pub fn read_new(medium: &impl Medium, id: u64, start: u64) -> Result<Found> {
    read_as(medium, id, start, false)
}

fn read_as(medium: &impl Medium, id: u64, start: u64, is_thorough: bool) -> Result<Found> {
    let Header { id: found, ring } = header(medium)?;
    if found != id {
        return Err(Error::Foreign(format!(
            "the operation log {found:016x}, where the store has the log {id:016x}: it is of another store, or of an \
             earlier time of this one"
        )));
    }
    let (definitions, next_definition) = read_definitions(medium, seed_of(id), RING_AT + ring)?;
    let mut scan = Scan {
        lap: Lap::new(medium, RING_AT..RING_AT + ring, RING_AT + start % ring),
        start,
        seed: seed_of(id),
        is_thorough,
    };
    let mut groups = Vec::new();
    let (entries, end) = scan.records(definitions.len(), &mut groups)?;
    Ok(Found {
        definitions,
        entries,
        end,
        groups,
        ring,
        next_definition,
    })
}

/// An area of a medium, once around from a byte in it on, read as far as it is looked at.
struct Lap<'m, M> {
    medium: &'m M,
    area: Range<u64>,
    first: u64,
    most: usize,
    bytes: Vec<u8>,
}

impl<'m, M: Medium> Lap<'m, M> {
    fn new(medium: &'m M, area: Range<u64>, first: u64) -> Lap<'m, M> {
        let most = (area.end - area.start) as usize;
        Lap {
            medium,
            area,
            first,
            most,
            bytes: Vec::new(),
        }
    }

    /// The bytes up to there, or as many as there are.
    fn upto(&mut self, end: usize) -> Result<&[u8]> {
        let (have, end) = (self.bytes.len(), end.min(self.most));
        if have < end {
            // Twice as many each time: a few readings, and of little if that is enough.
            self.bytes
                .resize(end.max(2 * have).max(AT_ONCE).min(self.most), 0);
            let new = &mut self.bytes[have..];
            let Range { start, end } = self.area.clone();
            let from = start + (self.first - start + have as u64) % (end - start);
            let before_end = new.len().min((end - from) as usize);
            let (first, rest) = new.split_at_mut(before_end);
            self.medium.read(from, first)?;
            if !rest.is_empty() {
                self.medium.read(start, rest)?;
            }
        }
        Ok(&self.bytes[..end])
    }
}

/// The definitions, before the ring and behind it, and where the next one goes.
fn read_definitions(medium: &impl Medium, seed: u32, ring_end: u64) -> Result<(Vec<String>, u64)> {
    let (mut all, mut next) = (Vec::new(), DEFINITIONS_AT);
    for area in [DEFINITIONS_AT..RING_AT, ring_end..medium.len()] {
        let (mut lap, mut at) = (Lap::new(medium, area.clone(), area.start), 0);
        while let Some(raw) = peek::<Raw>(&lap.upto(at + HEAD)?[at..]) {
            let content = at + HEAD..(at + HEAD).saturating_add(raw.bytes.get() as usize);
            let seed = definition_seed(seed, area.start + at as u64);
            let text = lap.upto(content.end)?.get(content.clone());
            let text = text.filter(|text| verify(&raw, text, seed).is_ok());
            let text = text.filter(|_| usize::from(raw.object.get()) == all.len());
            let Some(text) = text.and_then(|text| str::from_utf8(text).ok()) else {
                break;
            };
            all.push(text.to_owned());
            at = content.end.next_multiple_of(8).min(lap.most);
            next = area.start + at as u64;
        }
    }
    Ok((all, next))
}

/// What a group begins with.
#[derive(Clone, Copy)]
struct GroupHead {
    life: u64,
    closed_ms: u64,
}

/// A round of the ring, from a position on.
struct Scan<'m, M> {
    lap: Lap<'m, M>,
    start: u64,
    seed: u32,
    /// What is not valid is damage where a group follows.
    is_thorough: bool,
}

impl<M: Medium> Scan<'_, M> {
    /// The calls, and one past the last of them.
    fn records(&mut self, definitions: usize, groups: &mut Vec<GroupAt>) -> Result<(Vec<Entry>, u64)> {
        let (mut entries, mut group, mut at) = (Vec::new(), None, 0);
        loop {
            let position = self.start + at as u64;
            if let Some(mark) = self.mark(at)? {
                let life = mark.life;
                groups.push(GroupAt { position, life });
                (group, at) = (Some(mark), at + HEAD);
                continue;
            }
            let entry = match group {
                Some(mark) => self.call(at, mark)?,
                None => Err("no group begins here".to_owned()),
            };
            match entry {
                Ok(entry) => {
                    entry.check_names(definitions)?;
                    at = (entry.next - self.start) as usize;
                    if entry.function != WITHDRAWN {
                        entries.push(entry);
                    }
                }
                Err(_) if !self.is_thorough => return Ok((entries, position)),
                Err(why) => match self.next_mark(at + 8)? {
                    None => return Ok((entries, position)),
                    Some(later) => {
                        let why = format!(
                            "{why}, and the group at position {later} was written after it was durable"
                        );
                        let at = RING_AT + position % self.lap.most as u64;
                        return Err(Error::damaged("record of the operation log", at, why));
                    }
                },
            }
        }
    }

    /// The mark there, if there is one.
    fn mark(&mut self, at: usize) -> Result<Option<GroupHead>> {
        let raw = self.lap.upto(at + HEAD)?.get(at..).and_then(peek::<Raw>);
        let mark = raw.and_then(|raw| {
            let mark = GroupHead {
                life: raw.as_mark()?,
                closed_ms: raw.closed_ms(),
            };
            let seed = mark_seed(self.seed, self.start + at as u64);
            verify(&raw, &[], seed).is_ok().then_some(mark)
        });
        Ok(mark)
    }

    /// The position of the first mark from there on.
    fn next_mark(&mut self, from: usize) -> Result<Option<u64>> {
        for at in (from..self.lap.most).step_by(8) {
            if self.mark(at)?.is_some() {
                return Ok(Some(self.start + at as u64));
            }
        }
        Ok(None)
    }

    /// The call there, of a group with this mark, or why there is none.
    fn call(&mut self, at: usize, mark: GroupHead) -> Result<Result<Entry, String>> {
        let position = self.start + at as u64;
        let Some(raw) = self.lap.upto(at + HEAD)?.get(at..).and_then(peek::<Raw>) else {
            return Ok(Err("the round ends here".to_owned()));
        };
        let content = at + HEAD..(at + HEAD).saturating_add(raw.bytes.get() as usize);
        let (end, most) = (content.end.next_multiple_of(8), self.lap.most);
        let Some(arguments) = self.lap.upto(content.end)?.get(content) else {
            return Ok(Err(format!(
                "a record of {} bytes, which are more than there can be",
                raw.bytes
            )));
        };
        let sum = verify(&raw, arguments, call_seed(self.seed, mark.life, position));
        if let Err(mismatch) = sum {
            return Ok(Err(mismatch.to_string()));
        }
        if raw.as_mark().is_some() {
            return Ok(Err("the mark of a group, with the checksum of a call".to_owned()));
        }
        if end > most {
            let len = raw.bytes;
            return Ok(Err(format!(
                "a call of {len} bytes that ends past the round of {most}"
            )));
        }
        let (next, arguments) = (self.start + end as u64, arguments.to_vec());
        Ok(Ok(InLog::of(&raw, position, next, mark.closed_ms, arguments)))
    }
}

impl Group {
    /// Its calls, in order, as they lie in it.
    #[inline]
    pub fn calls(&self) -> impl Iterator<Item = Logged<'_>> {
        let closed_ms = peek::<Raw>(self.bytes()).map_or(0, |mark| mark.closed_ms());
        let (mut rest, mut position) = (
            self.bytes().get(HEAD..).unwrap_or_default(),
            self.start() + HEAD as u64,
        );
        let all = std::iter::from_fn(move || {
            let raw = peek::<Raw>(rest)?;
            let (length, at) = (raw.bytes.get() as usize, position);
            let (arguments, bytes) = (&rest[HEAD..][..length], (HEAD + length).next_multiple_of(8));
            (rest, position) = (&rest[bytes..], position + bytes as u64);
            Some(Logged::of(&raw, at, position, closed_ms, arguments))
        });
        all.filter(|call| call.function != WITHDRAWN)
    }

    /// Its calls, in order: as [`read()`] gives them after a crash.
    pub fn entries(&self) -> impl Iterator<Item = Entry> + '_ {
        self.calls().map(|call| call.with(call.arguments.to_vec()))
    }
}
