//! A run of a scheme beside a model of its content.

use super::random::Random;
use super::recorder::{Log, Op};
use crate::error::{Error, Result};
use crate::geometry::{LINES_PER_PAGE, LineMask, PageId, PageLines};
use crate::scheme::{Epoch, Recovered, Scheme, Simulated};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

/// One step of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Newer versions of `lines` of a page, filled from `value`; zero fills with zeros.
    Write {
        /// The page.
        page: u64,
        /// Its lines.
        lines: LineMask,
        /// The seed of the content.
        value: u64,
    },
    /// The page will be written soon.
    Expect(u64),
    /// The pages hold nothing any more.
    Discard(Range<u64>),
    /// The pages that the scheme wishes for are written whole, as they are.
    Grant,
    /// The derivative pages of at most this number of pages are freed.
    Reclaim(u64),
    /// All space that can be given back is.
    GiveBack,
    /// A commit with a context: its length in bytes, and the value it is filled from.
    Commit(usize, u64),
    /// The same, but not waited for: the epoch becomes durable behind what follows.
    Begin(usize, u64),
    /// Work on the epoch begun, worth this number of lines.
    Proceed(u64),
    /// Forget everything since the last commit.
    Abandon,
}

/// What a store must hold.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct State {
    pages: BTreeMap<u64, Rc<[u8]>>,
    context: Vec<u8>,
}

/// A scheme and its model, step by step.
#[derive(Debug)]
pub struct Run<S> {
    /// The scheme.
    pub scheme: S,
    log: Log,
    newest: State,
    /// The state of every commit since the run began; the first is the initial one.
    pub states: BTreeMap<Epoch, State>,
    /// Epochs that found no room.
    pub lost: u64,
    /// The last epoch that was durable when a step ended, and the last that was begun.
    durable: Epoch,
    begun: Epoch,
}

impl<S: Simulated> Run<S> {
    /// A run from a state the scheme is in.
    pub fn new(scheme: S, log: Log, state: State) -> Run<S> {
        let states = [(scheme.epoch(), state.clone())].into();
        let epoch = scheme.epoch();
        Run {
            durable: epoch,
            begun: epoch,
            scheme,
            log,
            newest: state,
            states,
            lost: 0,
        }
    }

    /// Does all steps. An epoch that finds no room is abandoned, and the run goes on.
    ///
    /// # Errors
    /// Any failure of the scheme but [`Error::Full`].
    pub fn go(&mut self, steps: &[Step]) -> Result<()> {
        for step in steps {
            match self.step(step) {
                Err(Error::Full { .. }) => {
                    self.lost += 1;
                    self.step(&Step::Abandon)?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<()> {
        match step {
            Step::Write { page, lines, value } => self.write(*page, *lines, *value)?,
            Step::Expect(page) => drop(self.scheme.preallocate(PageId(*page))?),
            Step::Discard(pages) => {
                self.scheme.discard(PageId(pages.start)..PageId(pages.end))?;
                self.newest.pages.retain(|page, _| !pages.contains(page));
            }
            Step::Grant => self.grant()?,
            Step::Reclaim(pages) => drop(self.scheme.reclaim(*pages)?),
            Step::GiveBack => while self.scheme.give_back()? {},
            Step::Commit(len, value) => {
                self.end_epoch(*len, *value);
                self.scheme.commit(&self.newest.context)?;
            }
            Step::Begin(len, value) => {
                self.end_epoch(*len, *value);
                self.scheme.begin(&self.newest.context)?;
            }
            Step::Proceed(lines) => drop(self.scheme.proceed(*lines)?),
            Step::Abandon => {
                self.scheme.abandon();
                self.begun = self.scheme.epoch();
                self.newest = self.states.get(&self.scheme.epoch()).cloned().unwrap_or_default();
            }
        }
        self.note();
        Ok(())
    }

    /// From now on recovery may find the epoch as it is.
    fn end_epoch(&mut self, len: usize, value: u64) {
        let mut random = Random::new(value);
        self.newest.context = (0..len).map(|_| random.number() as u8).collect();
        self.begun += 1;
        self.states.insert(self.begun, self.newest.clone());
        self.log.borrow_mut().push(Op::Committing(self.begun));
    }

    /// Notes an epoch that has become durable: from now on recovery must find it, or the one begun.
    fn note(&mut self) {
        let epoch = self.scheme.epoch();
        if epoch > self.durable {
            let mut log = self.log.borrow_mut();
            log.push(Op::Durable(epoch));
            if self.begun > epoch {
                log.push(Op::Committing(self.begun));
            }
            self.durable = epoch;
        }
    }

    fn write(&mut self, page: u64, lines: LineMask, value: u64) -> Result<()> {
        let line = self.scheme.geometry().line_bytes();
        let page_bytes = self.scheme.geometry().page_bytes();
        let old = self.newest.pages.get(&page);
        let before = old.map_or_else(|| vec![0; page_bytes], |bytes| bytes.to_vec());
        let mut bytes = before.clone();
        for k in lines.runs().flatten() {
            let word = match value {
                0 => 0,
                value => Random::new(value ^ page << 40 ^ (k as u64) << 32).number(),
            };
            for chunk in bytes[k * line..(k + 1) * line].chunks_exact_mut(8) {
                chunk.copy_from_slice(&word.to_le_bytes());
            }
        }
        // Some writes tell what changed, others let the scheme find out.
        let whole = PageLines::from(PageId(page), 0, &bytes, line);
        let lines = match value % 3 {
            1 => self.scheme.diff(&whole)?,
            _ => lines,
        };
        if !lines.is_empty() {
            let _ = self.scheme.write(whole.only(lines))?;
        }
        // A scheme that overlooks a change does not have it.
        if !lines.is_empty() || bytes != before {
            self.newest.pages.insert(page, bytes.into());
        }
        Ok(())
    }

    fn grant(&mut self) -> Result<()> {
        for page in self.scheme.fold_hints()?.pages {
            if let Some(bytes) = self.newest.pages.get(&page.0) {
                let line = self.scheme.geometry().line_bytes();
                let _ = self.scheme.write(PageLines::from(page, 0, bytes, line))?;
            }
        }
        Ok(())
    }

    /// Where the scheme's newest version is not the model's.
    pub fn differs(&self) -> Result<Option<String>> {
        differs(&self.scheme, &self.newest)
    }
}

/// Where a recovered store is not in `state`.
///
/// # Errors
/// Those of reading.
pub fn differs_after_recovery<S: Scheme>(
    scheme: &S,
    found: &Recovered,
    state: &State,
) -> Result<Option<String>> {
    if found.context != state.context {
        let epoch = found.epoch;
        return Ok(Some(format!("the context of epoch {epoch} is not its own")));
    }
    differs(scheme, state)
}

/// Every page within two of those the model has, so that what must be absent is looked at too; each in two pieces.
fn differs<S: Scheme>(scheme: &S, state: &State) -> Result<Option<String>> {
    let mut bytes = vec![0; scheme.geometry().page_bytes()];
    let zeros = bytes.clone();
    let line = scheme.geometry().line_bytes();
    let last = state.pages.last_key_value().map_or(0, |(&page, _)| page);
    let first = state.pages.first_key_value().map_or(0, |(&page, _)| page);
    for page in first.saturating_sub(2)..last + 3 {
        let expected = state.pages.get(&page);
        if scheme.is_present(PageId(page)) != expected.is_some() {
            let not = if expected.is_some() { "not " } else { "" };
            return Ok(Some(format!("page {page} is {not}there")));
        }
        let second = 1 + page as usize % (LINES_PER_PAGE - 1);
        let (front, back) = bytes.split_at_mut(second * line);
        scheme.read(PageId(page), 0, front)?;
        scheme.read(PageId(page), second, back)?;
        let viewed = scheme.view(PageId(page), second, back.len());
        if viewed.is_some_and(|viewed| viewed != back) {
            return Ok(Some(format!("page {page} is viewed as it is not read")));
        }
        let expected = expected.map_or(&zeros[..], |page| page);
        if bytes != expected {
            let mut lines = bytes.chunks(line).zip(expected.chunks(line));
            let wrong = lines.position(|(a, b)| a != b).unwrap_or_default();
            return Ok(Some(format!("line {wrong} of page {page} is wrong")));
        }
    }
    Ok(None)
}

/// What a random run is made of.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    /// Commits.
    pub epochs: u64,
    /// Pages there may be in the end; the first epochs use fewer.
    pub pages: u64,
    /// Writes in an epoch, at most.
    pub writes: u64,
    /// Bytes of context, at most.
    pub context: u64,
}

/// A random run: first writes and overwrites, discards, growth, huge and empty commits, expected
/// pages, reclaims, abandoned epochs.
#[must_use]
pub fn random_steps(profile: &Profile, random: &mut Random) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut value = random.number() >> 32 << 8;
    let mut context = (0, 1);
    for epoch in 1..=profile.epochs {
        let pages = (profile.pages * epoch).div_ceil(profile.epochs);
        if random.once_in(6) {
            let start = random.below(pages);
            steps.push(Step::Discard(start..start + 1 + random.below(pages)));
        }
        if random.once_in(4) {
            steps.push(Step::Expect(random.below(pages)));
        }
        let huge = random.once_in(8);
        let writes = match huge {
            true => pages,
            false => random.below(profile.writes + 1),
        };
        for write in 0..writes {
            value += 1;
            let page = if huge { write } else { random.below(pages) };
            let value = if random.once_in(12) { 0 } else { value };
            let lines = random_lines(random);
            steps.push(Step::Write { page, lines, value });
            if random.once_in(30) {
                steps.push(Step::Discard(page..page + 1 + random.below(3)));
            }
        }
        if random.once_in(7) {
            steps.push(Step::Reclaim(1 + random.below(pages)));
        }
        if random.once_in(9) {
            steps.push(Step::Abandon);
        }
        if random.once_in(2) {
            context = (random.below(profile.context + 1) as usize, random.number());
        }
        steps.push(Step::Commit(context.0, context.1));
    }
    steps
}

/// The same run with most commits begun, and worked on behind the steps that follow.
#[must_use]
pub fn overlapped(steps: &[Step], random: &mut Random) -> Vec<Step> {
    let mut all = Vec::new();
    for step in steps {
        match step {
            Step::Commit(len, value) if !random.once_in(4) => all.push(Step::Begin(*len, *value)),
            other => all.push(other.clone()),
        }
        if random.once_in(3) {
            all.push(Step::Proceed(random.below(40)));
        }
    }
    all
}

/// Mostly a line or two, sometimes half a page, sometimes all of it.
fn random_lines(random: &mut Random) -> LineMask {
    match random.below(8) {
        0 => LineMask::ALL,
        1 => LineMask(random.number() | 1),
        2 => {
            let first = random.below(64) as usize;
            LineMask::run(first, 1 + random.below(64 - first as u64) as usize)
        }
        _ => LineMask(1 << random.below(64) | 1 << random.below(4)),
    }
}
