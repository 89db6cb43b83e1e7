//! The members of a Raft group as persistent objects: three regions, which agree on totals and survive kills.
//!
//! ```text
//! printf '7 1 5\n7 2 7\n7 2 7\n' | cargo run --release --example raft -- group     # 5, 12, 12
//! ```
//!
//! In a package of its own it needs the edition of 2024, `twinpage`, and `serde` with its feature `derive`.
//!
//! A request is `CLIENT NUMBER AMOUNT`: the amount is added to the client's total, once for each number. It is answered
//! when a majority of the members has it in its log.
//!
//! * A **vote**, and entries that are **appended**, must be durable before they are answered: instant methods, each with
//!   one flush.
//! * That entries are **committed** is said often and may be lost: a deferrable method, which is logged and run in batches.
//!   A member that was killed runs again what its checkpoint lacks, in the same order.
//! * The totals are the state machine, and at once the **snapshot**: entries that were applied leave the log, and nothing is
//!   written for it.
//!
//! Messages are calls here, and a member that is not reached is one that a network has cut off: who leads changes.

use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use twinpage::collections::{BTreeMap, Vec as List};
use twinpage::{Persist, Region, Update};

/// Members of the group.
pub(crate) const MEMBERS: usize = 3;
const MAJORITY: usize = MEMBERS / 2 + 1;
/// Applied entries that stay in the log, for members that are behind.
const BEHIND: u64 = 50;

/// What is asked for.
#[derive(Persist, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    pub(crate) client: u64,
    pub(crate) number: u64,
    pub(crate) amount: i64,
}

/// A request in the log.
#[derive(Persist, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    term: u64,
    request: Request,
}

/// The place of an entry: its index, from 1, and its term.
#[derive(Persist, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Mark {
    term: u64,
    index: u64,
}

/// The state of a client.
#[derive(Persist, Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Total {
    pub(crate) number: u64,
    pub(crate) total: i64,
}

/// What a member answers to entries.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Appended {
    /// They are in its log, durably.
    Yes,
    /// It lacks the entry before them.
    Gap,
    /// It knows of a later term.
    Deposed,
}

/// What a member has applied: the last entry, and the totals.
pub(crate) type Snapshot = (Mark, Vec<(u64, Total)>);

/// A member: what Raft calls its persistent state, and the state machine.
#[derive(Persist)]
pub(crate) struct Member<'r> {
    /// The latest term it knows of, and its vote in that.
    term: u64,
    vote: Option<u64>,
    /// The last entry that left the log.
    base: Mark,
    log: List<'r, Entry>,
    /// Entries up to here are in the totals.
    applied: u64,
    totals: BTreeMap<'r, u64, Total>,
}

#[twinpage::object]
impl<'r> Member<'r> {
    fn new_in(u: &Update<'r>) -> Member<'r> {
        Member {
            term: 0,
            vote: None,
            base: Mark::default(),
            log: List::new_in(u.heap()),
            applied: 0,
            totals: BTreeMap::new_in(u.heap()),
        }
    }

    /// Asks for its vote. It has one a term, for a log that is as new as its own.
    pub(crate) fn vote(&mut self, term: u64, candidate: u64, log: Mark) -> bool {
        self.learn(term);
        let is_as_new = (log.term, log.index) >= (self.last().term, self.last().index);
        let is_free = self.vote.is_none_or(|vote| vote == candidate);
        let grants = term == self.term && is_as_new && is_free;
        if grants {
            self.vote = Some(candidate);
        }
        grants
    }

    /// Appends entries of a leader after one that both have.
    pub(crate) fn append(&mut self, term: u64, after: Mark, entries: Vec<Entry>) -> Appended {
        self.learn(term);
        if term < self.term {
            return Appended::Deposed;
        }
        if after.index > self.base.index && self.mark(after.index) != Some(after) {
            return Appended::Gap;
        }
        for (index, entry) in (after.index + 1..).zip(entries) {
            let known = self.mark(index).map(|mark| mark.term);
            if index <= self.base.index || known == Some(entry.term) {
                continue; // it has it
            }
            // What follows is of a leader that no majority followed.
            self.log.truncate((index - self.base.index - 1) as usize);
            self.log.push(entry);
        }
        Appended::Yes
    }

    /// A majority has the entries up to an index: they are applied.
    pub(crate) fn commit(&mut self, index: u64) {
        for next in self.applied + 1..=index.min(self.last().index) {
            let Request {
                client,
                number,
                amount,
            } = self.log[(next - self.base.index - 1) as usize].request;
            let known = self.totals.get(&client).copied().unwrap_or_default();
            if number > known.number {
                let total = known.total + amount;
                self.totals.insert(client, Total { number, total });
            }
            self.applied = next;
        }
        let left = self.applied.saturating_sub(BEHIND);
        if left > self.base.index + BEHIND
            && let Some(mark) = self.mark(left)
        {
            drop(self.log.drain(..(left - self.base.index) as usize));
            self.base = mark;
        }
    }

    /// Takes all that a leader has applied, in place of entries that have left its log.
    pub(crate) fn install(&mut self, term: u64, snapshot: Snapshot) -> bool {
        self.learn(term);
        let (mark, totals) = snapshot;
        let takes = term == self.term && mark.index > self.applied;
        if takes {
            self.log.clear();
            self.totals.clear();
            totals.into_iter().for_each(|(client, total)| {
                self.totals.insert(client, total);
            });
            (self.base, self.applied) = (mark, mark.index);
        }
        takes
    }

    /// The term it knows of, the last entry of its log, and how far it has applied that.
    pub(crate) fn status(&self) -> (u64, Mark, u64) {
        (self.term, self.last(), self.applied)
    }

    /// The entries after an index, and the place of that; none where they have left the log.
    pub(crate) fn entries_after(&self, index: u64) -> Option<(Mark, Vec<Entry>)> {
        let from = index.checked_sub(self.base.index)? as usize;
        Some((self.mark(index)?, self.log.get(from..)?.to_vec()))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let mark = self.mark(self.applied).unwrap_or_default();
        let totals = self.totals.iter().map(|(client, total)| (*client, *total));
        (mark, totals.collect())
    }

    pub(crate) fn total(&self, client: u64) -> Total {
        self.totals.get(&client).copied().unwrap_or_default()
    }

    fn learn(&mut self, term: u64) {
        if term > self.term {
            (self.term, self.vote) = (term, None);
        }
    }

    /// The place of the entry of an index, if it is in the log or the last that left it.
    fn mark(&self, index: u64) -> Option<Mark> {
        let from = index.checked_sub(self.base.index)?;
        match from.checked_sub(1) {
            None => Some(self.base),
            Some(at) => self.log.get(at as usize).map(|entry| Mark {
                term: entry.term,
                index,
            }),
        }
    }

    fn last(&self) -> Mark {
        self.mark(self.base.index + self.log.len() as u64)
            .unwrap_or_default()
    }
}

/// The members, and who leads.
pub(crate) struct Group {
    pub(crate) members: Vec<MemberHandle>,
    leader: Option<(usize, u64)>,
    _regions: Vec<Region>,
}

impl Group {
    /// The group in a folder, with what its members had when they were killed.
    pub(crate) fn open(folder: &Path) -> twinpage::Result<Group> {
        let (mut members, mut regions) = (Vec::new(), Vec::new());
        for number in 0..MEMBERS {
            let region = Region::open(folder.join(format!("member-{number}.twin")))?;
            #[expect(clippy::redundant_closure)] // a function's name is not general enough in its lifetime
            members.push(region.object::<Member>("member", |u| Member::new_in(u))?);
            regions.push(region);
        }
        Ok(Group {
            members,
            leader: None,
            _regions: regions,
        })
    }

    /// Has a majority agree on a request, through the members that are reached. None where there is no majority: then it is
    /// not known whether it will be agreed on.
    pub(crate) fn request(
        &mut self,
        request: Request,
        reached: [bool; MEMBERS],
    ) -> twinpage::Result<Option<Total>> {
        let led = self.leader.filter(|(leader, _)| reached[*leader]);
        let led = led.map_or_else(|| self.elect(reached), |led| Ok(Some(led)))?;
        let Some((leader, term)) = led else {
            return Ok(None);
        };
        self.leader = Some((leader, term));
        let (_, last, _) = self.members[leader].status()?;
        let own = self.members[leader].append(term, last, vec![Entry { term, request }])?;
        let mut have = usize::from(own == Appended::Yes);
        for member in (0..MEMBERS).filter(|&member| member != leader && reached[member]) {
            have += usize::from(self.bring_up(leader, term, member)?);
        }
        if have < MAJORITY {
            self.leader = None;
            return Ok(None);
        }
        for (member, _) in self.members.iter().zip(reached).filter(|(_, reached)| *reached) {
            member.commit(last.index + 1);
        }
        Ok(Some(self.members[leader].total(request.client)?))
    }

    /// Lets the members elect one of those that are reached, and says which, and its term.
    fn elect(&self, reached: [bool; MEMBERS]) -> twinpage::Result<Option<(usize, u64)>> {
        let voters = || (0..MEMBERS).filter(|&member| reached[member]);
        for candidate in voters() {
            let mut term = 0;
            for member in voters() {
                term = term.max(self.members[member].status()?.0 + 1);
            }
            let (_, log, _) = self.members[candidate].status()?;
            let mut votes = 0;
            for member in voters() {
                votes += usize::from(self.members[member].vote(term, candidate as u64, log)?);
            }
            if votes >= MAJORITY {
                return Ok(Some((candidate, term)));
            }
        }
        Ok(None)
    }

    /// Gives a member what it lacks of the leader's log. Whether it has all of it.
    fn bring_up(&self, leader: usize, term: u64, member: usize) -> twinpage::Result<bool> {
        let (leader, member) = (&self.members[leader], &self.members[member]);
        let (_, last, _) = leader.status()?;
        let mut from = member.status()?.1.index.min(last.index);
        loop {
            match leader.entries_after(from)? {
                Some((after, entries)) => match member.append(term, after, entries)? {
                    Appended::Yes => return Ok(true),
                    Appended::Deposed => return Ok(false),
                    Appended::Gap => from -= 1,
                },
                None => {
                    let snapshot = leader.snapshot()?;
                    from = snapshot.0.index;
                    if !member.install(term, snapshot)? {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: raft FOLDER")?;
    std::fs::create_dir_all(&folder)?;
    let mut group = Group::open(Path::new(&folder))?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<_> = line.split_whitespace().collect();
        let [client, number, amount] = words[..] else {
            return Err("a request is CLIENT NUMBER AMOUNT".into());
        };
        let request = Request {
            client: client.parse()?,
            number: number.parse()?,
            amount: amount.parse()?,
        };
        match group.request(request, [true; MEMBERS])? {
            Some(Total { total, .. }) => println!("{total}"),
            None => println!("no majority"),
        }
    }
    Ok(())
}
