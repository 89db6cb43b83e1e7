//! All records of a state, wherever they are, as a rollback and a look find them.

use super::error::{Error, Result};
use super::format::{Kind, Record};
use super::log::{Entry, ReadLog};
use super::named::{self, Named, NoRecord};
use super::{Durability, Epoch};
use std::path::Path;

/// The two logs, and the records that are names.
pub(super) struct Records {
    logs: [ReadLog; 2],
    named: Vec<Named>,
    /// The first name of a record that is none.
    damaged_name: Option<NoRecord>,
}

/// Where a record is.
#[derive(Clone, Copy)]
enum Place<'r> {
    Log(&'r ReadLog),
    Name(&'r Named),
}

/// A record that may count.
#[derive(Clone, Copy)]
pub(super) struct Found<'r> {
    pub(super) entry: Entry,
    place: Place<'r>,
}

impl Found<'_> {
    /// The file that the record is in.
    pub(super) fn path(&self) -> &Path {
        match self.place {
            Place::Log(log) => &log.path,
            Place::Name(named) => &named.path,
        }
    }

    /// The record itself.
    ///
    /// # Errors
    /// As [`ReadLog::load`].
    pub(super) fn load(&self) -> Result<Record> {
        match self.place {
            Place::Log(log) => log.load(&self.entry),
            Place::Name(named) => Ok(named.record.clone()),
        }
    }
}

impl Records {
    /// Reads all, and verifies every checksum. A checkpoint of epoch `durable` is the newest.
    ///
    /// # Errors
    /// As [`ReadLog::open`].
    pub(super) fn open(dir: &Path, durable: Epoch) -> Result<Records> {
        let logs = [ReadLog::open(dir, 0, durable)?, ReadLog::open(dir, 1, durable)?];
        let (named, damaged_name) = named::read_all(&dir.join("kept"))?;
        Ok(Records {
            logs,
            named,
            damaged_name,
        })
    }

    /// What the records outlive.
    pub(super) fn durability(&self) -> Durability {
        self.logs[0].durability()
    }

    /// What is wrong: which file, where, and why.
    pub(super) fn damage(&self) -> impl Iterator<Item = (&Path, u64, &str)> {
        let in_logs = self.logs.iter().filter_map(|log| {
            let (at, why) = log.damage.as_ref()?;
            Some((log.path.as_path(), *at, why.as_str()))
        });
        let name = self.damaged_name.as_ref();
        in_logs.chain(name.map(|(path, why)| (path.as_path(), 0, why.as_str())))
    }

    /// # Errors
    /// [`Error::Damaged`] when anything is.
    pub(super) fn expect_whole(&self) -> Result<()> {
        match self.damage().next() {
            None => Ok(()),
            Some((file, at, why)) => Err(Error::Damaged {
                file: file.to_owned(),
                at,
                why: why.to_owned(),
            }),
        }
    }

    /// All records, dead ones too, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = Found<'_>> {
        let in_logs = self.logs.iter().flat_map(|log| {
            let place = Place::Log(log);
            log.entries.iter().map(move |&entry| Found { entry, place })
        });
        in_logs.chain(self.named.iter().map(|named| Found {
            entry: Entry::of(&named.record, 0, named.length),
            place: Place::Name(named),
        }))
    }

    /// The records that a checkpoint of epoch `durable` does not cover, newest first.
    pub(super) fn live(&self, durable: Epoch) -> Vec<Found<'_>> {
        let mut all: Vec<_> = self.all().collect();
        all.sort_by_key(|found| std::cmp::Reverse(found.entry.seq));
        let mut at_most = Epoch::MAX;
        all.retain(|Found { entry, .. }| {
            if entry.kind == Kind::Again {
                at_most = at_most.min(entry.again);
                return false;
            }
            entry.tag.min(at_most) > durable
        });
        all
    }
}
