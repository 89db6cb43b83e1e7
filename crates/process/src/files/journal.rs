//! The two logs, the kept files and the records that are names, as one journal that records are appended to.
//!
//! * All records of one change are made safe together, before the change; when one of them fails
//!   none counts.
//! * Sequence numbers are never used twice, not even for records that failed.
//! * The log that is written to changes only when every record of the other one is dead.

use super::error::{Doing, Error, Refusal, Result};
use super::extents::next_data;
use super::format::{Attribute, DATA_MAX, Draft, Kept, Kind, State};
use super::keep::Keep;
use super::log::Log;
use super::options::{OWN_MAX, Options};
use super::path_at::Found;
use super::reach::duplicate;
use super::safety::Safety;
use super::whole::{read_at, sync_directory};
use super::{Durability, Epoch, Ident, attributes, named, seen};
use rustix::fd::OwnedFd;
use rustix::fs::Stat;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use twinpage_core::Poison;
use twinpage_os::name;

/// A file in `kept/`, of the record `seq`.
struct KeptFile {
    tag: Epoch,
    seq: u64,
    /// Bytes of a copy.
    copied: u64,
    /// Bytes of a file that would be free had it not been kept.
    held: u64,
}

/// What no rollback will ask for any more.
#[derive(Default)]
pub(super) struct Dead {
    /// Kept files, by the sequence numbers of their records.
    pub(super) kept: Vec<u64>,
    /// Records that are names.
    pub(super) records: Vec<String>,
}

impl Dead {
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty() && self.records.is_empty()
    }
}

/// The journal of changes.
pub(super) struct Journal {
    pub(super) dir: PathBuf,
    pub(super) durability: Durability,
    logs: [Log; 2],
    active: usize,
    keep: Arc<Keep>,
    kept: VecDeque<KeptFile>,
    /// Records that are names, oldest first: the tag, the sequence number and the name of each.
    named: VecDeque<(Epoch, u64, String)>,
    /// The file system whose names change on the medium in their order, `kept/` among them.
    pub(super) order_kept_on: Option<u64>,
    /// What makes the records of the change in progress safe.
    safety: Safety,
    /// Directories in which old files got other names, not known to be durable, and the tag of the last one.
    renamed_in: HashMap<Ident, (Epoch, OwnedFd)>,
    copied_bytes: u64,
    held_bytes: u64,
    bytes_max: u64,
    /// The epoch the program runs towards.
    tag: Epoch,
    /// The sequence number of the next record.
    seq: u64,
    /// Records since the journal was made.
    records: u64,
    buffer: Vec<u8>,
    poison: Poison,
}

impl Journal {
    /// An empty journal for changes towards epoch `tag`.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn create(dir: &Path, options: Options, tag: Epoch) -> Result<Journal> {
        let durability = options.durability;
        let keep = Arc::new(Keep::open(dir, durability)?);
        // First: a log may say of records that are names that they are dead.
        keep.clear()?;
        let logs = [Log::create(dir, 0, durability)?, Log::create(dir, 1, durability)?];
        let mut order_kept_on = None;
        if durability == Durability::Disk {
            sync_directory(dir)?;
            let kept_on = rustix::fs::fstat(keep.fd()).doing("look at", keep.path())?.st_dev;
            let in_order = options.names_in_order;
            let in_order = in_order.unwrap_or_else(|| named::keeps_order(keep.fd()));
            order_kept_on = in_order.then_some(kept_on);
        }
        Ok(Journal {
            dir: dir.to_owned(),
            durability,
            logs,
            active: (tag % 2) as usize,
            keep,
            kept: VecDeque::new(),
            named: VecDeque::new(),
            order_kept_on,
            safety: Safety::Synced,
            renamed_in: HashMap::new(),
            copied_bytes: 0,
            held_bytes: 0,
            bytes_max: options.bytes_max,
            tag,
            seq: 1,
            records: 0,
            buffer: Vec::new(),
            poison: Poison::default(),
        })
    }

    /// The epoch the program runs towards.
    pub(super) fn tag(&self) -> Epoch {
        self.tag
    }

    /// Records since the journal was made, dead ones too.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// The sequence number of the next record.
    pub(super) fn next_seq(&self) -> u64 {
        self.seq
    }

    /// The name of the file that record `seq` keeps.
    pub(super) fn kept_path(&self, seq: u64) -> PathBuf {
        self.keep.path_of(seq)
    }

    /// Bytes written for records and copies that are not known to be dead.
    pub(super) fn bytes(&self) -> u64 {
        let named = self.named.len() as u64 * named::BYTES;
        self.logs[0].bytes() + self.logs[1].bytes() + self.copied_bytes + named
    }

    /// Bytes of removed files that will be free when their epoch is dead.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Files in `kept/`.
    pub(super) fn kept_files(&self) -> usize {
        self.kept.len()
    }

    /// Writes the records of one change and makes them safe.
    ///
    /// # Errors
    /// Those of `write`; none of its records then counts. [`Error::Poisoned`] after a failed write.
    pub(super) fn change(
        &mut self,
        safety: Safety,
        write: impl FnOnce(&mut Journal) -> Result<()>,
    ) -> Result<()> {
        self.poison.check().map_err(|error| match error {
            twinpage_core::Error::Poisoned(cause) => Error::Poisoned(cause),
            cause => Error::Poisoned(Arc::new(cause)),
        })?;
        if safety == Safety::Synced {
            self.settle_names()?;
        }
        let first = self.seq;
        self.safety = safety;
        let done = write(self).and_then(|()| {
            let sealed = self.logs[self.active].seal(self.seq, safety == Safety::Synced);
            self.poisoned_by(sealed)
        });
        if done.is_err() {
            self.logs[self.active].unwind();
            while self.kept.back().is_some_and(|kept| kept.seq >= first) {
                self.drop_kept_back();
            }
            while let Some((.., name)) = self.named.pop_back_if(|(_, seq, _)| *seq >= first) {
                // Left behind it undoes what did not happen.
                let _ = self.keep.forget_name(&name);
            }
            self.seq += 1;
        }
        done
    }

    /// An old file gets another name in the directory `found` is in, by a change whose record is a name.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn note_renamed_in(&mut self, dir: Ident, found: &Found) -> Result<()> {
        if let Some((tag, _)) = self.renamed_in.get_mut(&dir) {
            *tag = self.tag;
            return Ok(());
        }
        if self.renamed_in.len() >= OWN_MAX {
            self.settle_names()?;
        }
        self.renamed_in
            .insert(dir, (self.tag, duplicate(&found.parent.fd)?));
        Ok(())
    }

    /// Makes the names durable that old files got, for a record that calls files by them.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub(super) fn settle_names(&mut self) -> Result<()> {
        for (_, (_, dir)) in self.renamed_in.drain() {
            rustix::fs::fsync(&dir).doing("sync the directory", name::of_open(&dir))?;
        }
        Ok(())
    }

    /// Appends a record without data.
    ///
    /// # Errors
    /// [`Error::Full`], and [`Error::Io`], which poisons the journal.
    pub(super) fn append(&mut self, draft: &Draft<'_>) -> Result<()> {
        check_names(draft)?;
        draft.start(&mut self.buffer);
        self.append_buffer(draft)
    }

    /// Appends a record with data.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub(super) fn append_data(&mut self, draft: &Draft<'_>, data: &[u8]) -> Result<()> {
        check_names(draft)?;
        draft.start(&mut self.buffer);
        self.buffer.extend_from_slice(data);
        self.append_buffer(draft)
    }

    /// Appends what `file` holds in `range`, in as many records as it takes. `draft` describes the file. Of an
    /// open file of ours holes are told apart.
    ///
    /// # Errors
    /// As [`Journal::append`].
    pub(super) fn append_content(
        &mut self,
        draft: &Draft<'_>,
        file: &OwnedFd,
        is_ours: bool,
        range: Range<u64>,
    ) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            let data = if is_ours {
                next_data(file, at..range.end).doing("look for data in", draft.path)?
            } else {
                Some(at..range.end)
            };
            let data = data.unwrap_or(range.end..range.end);
            if at < data.start {
                let hole = Draft {
                    kind: Kind::Hole,
                    at,
                    ..*draft
                };
                self.append_data(&hole, &(data.start - at).to_le_bytes())?;
            }
            self.append_bytes(draft, file, data.clone())?;
            at = data.end;
        }
        Ok(())
    }

    fn append_bytes(&mut self, draft: &Draft<'_>, file: &OwnedFd, range: Range<u64>) -> Result<()> {
        check_names(draft)?;
        let mut at = range.start;
        while at < range.end {
            let draft = Draft { at, ..*draft };
            draft.start(&mut self.buffer);
            let start = self.buffer.len();
            let want = (range.end - at).min(DATA_MAX as u64) as usize;
            self.buffer.resize(start + want, 0);
            let got = read_at(file, &mut self.buffer[start..], at).doing("read", draft.path)?;
            self.buffer.truncate(start + got);
            if got == 0 {
                break;
            }
            self.append_buffer(&draft)?;
            at += got as u64;
        }
        Ok(())
    }

    /// A handle on the directory of kept files, to remove the dead ones with.
    pub(super) fn keep_handle(&self) -> Arc<Keep> {
        self.keep.clone()
    }

    /// Keeps what `found` names for the next record. Of a directory extended attributes are kept by records before that.
    ///
    /// # Errors
    /// As [`Keep::take`], and of [`Journal::append`].
    pub(super) fn keep(&mut self, found: &Found, stat: &Stat) -> Result<Kept> {
        if seen::is_directory(stat) {
            self.keep_attributes(found, stat)?;
        }
        let room = self.bytes_max.saturating_sub(self.bytes());
        let synced = self.safety == Safety::Synced;
        let (kept, bytes) = self.keep.take(found, stat, (self.seq, room), synced)?;
        if matches!(kept, Kept::Link | Kept::Copy) {
            let (copied, held) = if kept == Kept::Copy {
                (bytes, 0)
            } else {
                (0, bytes)
            };
            self.kept.push_back(KeptFile {
                tag: self.tag,
                seq: self.seq,
                copied,
                held,
            });
            self.copied_bytes += copied;
            self.held_bytes += held;
        }
        Ok(kept)
    }

    fn keep_attributes(&mut self, found: &Found, stat: &Stat) -> Result<()> {
        let all = attributes::read_all_of(&found.parent.fd, found.last.as_ref());
        let draft = |kind| Draft {
            file: Ident::from(stat),
            before: State::from(stat),
            path: &found.path,
            ..Draft::new(kind)
        };
        let all = all.doing("read the extended attributes of", &found.path)?;
        if !all.is_empty() {
            // An access control list changes the mode with it: that is undone after it.
            self.append(&draft(Kind::Attributes))?;
        }
        for (name, value) in all {
            let value = Some(value);
            self.append_data(&draft(Kind::Extended), &Attribute { name, value }.to_bytes())?;
        }
        Ok(())
    }

    /// Epoch `epoch` is captured; what is recorded from now on belongs to the next. Gives what is dead now that
    /// `durable` is durable to `dead`.
    ///
    /// # Errors
    /// [`Error::Order`] when the epochs are not in order, and those of [`Journal::append`].
    pub(super) fn begin_epoch(&mut self, epoch: Epoch, durable: Epoch, dead: &mut Dead) -> Result<()> {
        if durable >= epoch {
            let why = format!("it is only being captured, and epoch {durable} was said to be durable");
            return Err(Error::Order { given: epoch, why });
        }
        if epoch + 1 == self.tag {
            self.capture_again(epoch)?;
        } else if epoch != self.tag {
            let why = format!("expected {}, or {} again", self.tag, self.tag - 1);
            return Err(Error::Order { given: epoch, why });
        }
        self.tag = epoch + 1;
        while self.kept.front().is_some_and(|kept| kept.tag <= durable) {
            if let Some(kept) = self.kept.pop_front() {
                self.forget_bytes(&kept);
                dead.kept.push(kept.seq);
            }
        }
        while let Some((.., name)) = self.named.pop_front_if(|(tag, ..)| *tag <= durable) {
            dead.records.push(name);
        }
        self.renamed_in.retain(|_, (tag, _)| *tag > durable);
        self.switch(durable)
    }

    /// The epoch was captured before and abandoned: what was recorded since counts as of it again.
    fn capture_again(&mut self, epoch: Epoch) -> Result<()> {
        let named = self.named.back().map_or(0, |(tag, ..)| *tag);
        if self.logs.iter().all(|log| log.tag() <= epoch) && named <= epoch {
            return Ok(());
        }
        self.change(Safety::Synced, |journal| {
            journal.append(&Draft {
                at: epoch,
                ..Draft::new(Kind::Again)
            })
        })
    }

    /// Goes over to the other log when its records are dead and this one has some.
    fn switch(&mut self, durable: Epoch) -> Result<()> {
        let other = 1 - self.active;
        if self.logs[self.active].tag() == 0 || self.logs[other].tag() > durable {
            return Ok(());
        }
        let rewound = self.logs[other].rewind(self.seq);
        self.poisoned_by(rewound)?;
        self.active = other;
        Ok(())
    }

    fn append_buffer(&mut self, draft: &Draft<'_>) -> Result<()> {
        draft.finish(&mut self.buffer, self.seq, self.tag);
        let needed = self.buffer.len() as u64;
        let room = self.bytes_max.saturating_sub(self.bytes());
        if needed > room {
            return Err(Error::Full {
                what: "the undo log".into(),
                needed: needed - room,
                by_bound: true,
            });
        }
        if self.safety == Safety::Named {
            let put = self.keep.put_record(self.seq, &self.buffer);
            let name = self.poisoned_by(put)?;
            self.named.push_back((self.tag, self.seq, name));
        } else {
            let appended = self.logs[self.active].append(&self.buffer, self.tag);
            self.poisoned_by(appended)?;
        }
        self.seq += 1;
        self.records += 1;
        Ok(())
    }

    fn drop_kept_back(&mut self) {
        if let Some(kept) = self.kept.pop_back() {
            self.forget_bytes(&kept);
            // Left behind it is harmless: no record has its number, and the next run clears it.
            let _ = self.keep.forget(kept.seq);
        }
    }

    fn forget_bytes(&mut self, kept: &KeptFile) {
        self.copied_bytes -= kept.copied;
        self.held_bytes -= kept.held;
    }

    /// After a failed write or sync of a log nothing is known about it. A full disk is no failure.
    fn poisoned_by<T>(&mut self, result: Result<T>) -> Result<T> {
        if let Err(Error::Io { doing, path, source }) = &result {
            self.poison.set(&twinpage_core::Error::Io {
                what: format!("cannot {doing} {}", path.display()),
                at: 0,
                source: match source.raw_os_error() {
                    Some(number) => std::io::Error::from_raw_os_error(number),
                    None => std::io::Error::new(source.kind(), source.to_string()),
                },
            });
        }
        result
    }
}

/// A record has room for names of 65535 bytes, which no file system here reaches.
fn check_names(draft: &Draft<'_>) -> Result<()> {
    for name in [draft.path, draft.to] {
        if name.as_os_str().len() > usize::from(u16::MAX) {
            return Err(Refusal::NoName(name.to_owned()).into());
        }
    }
    Ok(())
}
