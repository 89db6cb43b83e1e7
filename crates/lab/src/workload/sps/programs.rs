//! What the cores do.

use super::{ENTRY, Method, Persist, Progress, RING, STRING, Sps, WriteBack};
use crate::space::Port;

type Text = [u8; STRING as usize];

/// Instructions that choose two strings and find them.
const CHOOSE: u32 = 40;
/// Entries a checkpoint replays in a batch.
const REPLAYED: u64 = 8;
/// By how many hand-overs the persistence thread may fall behind before a swap waits for it.
const SLACK: f64 = 16.0;

/// The redo log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Log {
    /// Entries in the one that is filled.
    entries: u64,
    /// Which of the two that is.
    current: usize,
    /// Entries of the other that are to be replayed, and those that are.
    full: u64,
    replayed: u64,
}

/// Between the operation and the persistence thread.
#[derive(Clone, Debug, Default)]
pub(super) struct Handover {
    /// Strings changed since the last hand-over: index and version.
    changed: Vec<(u64, u64)>,
    /// What is handed over: how many addresses from where in the ring, and the last update.
    handed: Option<(u64, u64, u64)>,
    /// The update up to which the persistence thread is making all durable.
    working: Option<u64>,
    /// The update up to which all is durable.
    durable: u64,
    /// The last update that was handed over.
    last: u64,
    /// Where the ring goes on.
    next: u64,
    owed: f64,
    pub(super) persists: u64,
    pub(super) waits: u64,
}

impl Handover {
    fn is_idle(&self) -> bool {
        self.handed.is_none() && self.working.is_none()
    }
}

impl Sps {
    /// Two different strings.
    fn choose(&mut self, port: &mut Port<'_>) -> [u64; 2] {
        let strings = self.size.strings;
        let a = self.random.u64(..strings);
        let b = (a + self.random.u64(1..strings)) % strings;
        self.model.swap(a as usize, b as usize);
        self.swaps += 1;
        port.work(CHOOSE);
        [a, b]
    }

    fn read(&self, port: &mut Port<'_>, index: u64, version: u64) -> Text {
        let mut text = [0; STRING as usize];
        port.load_bytes(self.string(index, version), &mut text);
        text
    }

    pub(super) fn swap_in_place(&mut self, port: &mut Port<'_>) -> Progress {
        let is_logging = matches!(self.variant.method, Method::Logging { .. });
        if is_logging && self.log.entries == self.size.log_entries && !self.begin_log(port) {
            return Progress::Waiting;
        }
        let [a, b] = self.choose(port);
        let texts = [self.read(port, b, 0), self.read(port, a, 0)];
        if is_logging {
            self.append(port, [a, b], &texts);
        }
        for (index, text) in [a, b].into_iter().zip(&texts) {
            port.store_bytes(self.string(index, 0), text);
        }
        port.commit();
        Progress::More
    }

    /// The log is full: the next begins. False while the one before is still being replayed.
    fn begin_log(&mut self, port: &mut Port<'_>) -> bool {
        if let Method::Logging { disk: true, .. } = self.variant.method {
            // As `write` does: into the page cache, and from there.
            let [from, to] = self.places.logs;
            let mut line = [0; 64];
            for at in (0..self.log.entries * ENTRY).step_by(64) {
                port.load_bytes(from + at, &mut line);
                port.store_bytes(to + at, &line);
            }
            port.disk(self.log.entries * ENTRY);
        }
        if let Method::Logging { checkpoint: true, .. } = self.variant.method {
            if self.log.full > 0 {
                return false;
            }
            (self.log.full, self.log.replayed) = (self.log.entries, 0);
            self.log.current ^= 1;
        }
        self.log.entries = 0;
        true
    }

    /// An entry of the log: durable before the strings change, where the program fences.
    fn append(&mut self, port: &mut Port<'_>, places: [u64; 2], texts: &[Text; 2]) {
        let at = self.places.logs[self.log.current] + self.log.entries * ENTRY;
        let mut entry = [0; ENTRY as usize];
        entry[..8].copy_from_slice(&self.swaps.to_le_bytes());
        for (k, place) in places.into_iter().enumerate() {
            entry[8 + k * 8..][..8].copy_from_slice(&place.to_le_bytes());
            entry[24 + k * STRING as usize..][..STRING as usize].copy_from_slice(&texts[k]);
        }
        self.variant.put(port, at, &entry);
        self.variant.write_back(port, at, ENTRY);
        self.variant.fence(port);
        self.log.entries += 1;
    }

    /// The second thread: replays the full log into the copy.
    pub(super) fn checkpoint(&mut self, port: &mut Port<'_>) -> Progress {
        if self.log.full == 0 {
            return Progress::Waiting;
        }
        if self.log.replayed == self.log.full {
            // A batch of its own: who waits for the log looks again.
            (self.log.full, self.log.replayed) = (0, 0);
            port.work(8);
            return Progress::More;
        }
        let full = self.places.logs[self.log.current ^ 1];
        for _ in 0..REPLAYED.min(self.log.full - self.log.replayed) {
            let mut entry = [0; ENTRY as usize];
            port.load_bytes(full + self.log.replayed * ENTRY, &mut entry);
            for k in 0..2 {
                let place: [u8; 8] = entry[8 + k * 8..][..8].try_into().expect("eight bytes");
                let text = &entry[24 + k * STRING as usize..][..STRING as usize];
                port.store_bytes(self.places.copy + u64::from_le_bytes(place) * STRING, text);
            }
            port.work(8);
            self.log.replayed += 1;
        }
        Progress::More
    }

    /// The newest version of a string and its number, and the version that no durable state needs.
    fn versions(&self, port: &mut Port<'_>, index: u64) -> (u64, u64, u64) {
        let count = self.variant.versions();
        let numbers: Vec<u64> = (0..count)
            .map(|version| port.load(self.number(index, version)))
            .collect();
        port.work(6);
        let newest = (0..count).max_by_key(|version| numbers[*version as usize]);
        let newest = newest.expect("two versions at least");
        let durable = (0..count)
            .filter(|version| numbers[*version as usize] <= self.handover.durable + 1)
            .max_by_key(|version| numbers[*version as usize]);
        let free = (0..count).find(|version| *version != newest && Some(*version) != durable);
        (newest, numbers[newest as usize], free.unwrap_or(newest))
    }

    /// A swap into versions: the strings, and the versions written.
    fn swap_versions(&mut self, port: &mut Port<'_>) -> [(u64, u64); 2] {
        let [a, b] = self.choose(port);
        let of = [a, b].map(|index| self.versions(port, index));
        let texts = [self.read(port, b, of[1].0), self.read(port, a, of[0].0)];
        let mut written = [(a, 0), (b, 0)];
        for (k, index) in [a, b].into_iter().enumerate() {
            let (newest, number, free) = of[k];
            // Not handed over yet: in place.
            let is_ours = number > self.handover.last + 1;
            let version = if is_ours { newest } else { free };
            self.variant.put(port, self.string(index, version), &texts[k]);
            let number = (self.swaps + 1).to_le_bytes();
            self.variant.put(port, self.number(index, version), &number);
            written[k].1 = version;
        }
        written
    }

    /// Says that all is durable up to an update.
    fn set_word(&self, port: &mut Port<'_>, update: u64) {
        self.variant
            .put(port, self.places.word, &(update + 1).to_le_bytes());
        self.variant.write_back(port, self.places.word, 8);
        self.variant.fence(port);
    }

    pub(super) fn swap_interleaved(&mut self, port: &mut Port<'_>) -> Progress {
        let written = self.swap_versions(port);
        for (index, version) in written {
            self.variant.write_back(port, self.string(index, version), STRING);
            self.variant.write_back(port, self.number(index, version), 8);
        }
        self.variant.fence(port);
        self.set_word(port, self.swaps);
        (self.handover.durable, self.handover.last) = (self.swaps, self.swaps);
        port.commit();
        Progress::More
    }

    /// The operation thread (Algorithm 1).
    pub(super) fn swap_threading(&mut self, port: &mut Port<'_>) -> Progress {
        let room = RING / 2 - 4;
        let is_late = self.handover.owed >= SLACK || self.handover.changed.len() as u64 * 2 >= room;
        if is_late && !self.handover.is_idle() {
            self.handover.waits += 1;
            return Progress::Waiting;
        }
        let written = self.swap_versions(port);
        if self.size.persist == Persist::Last {
            self.handover.changed.clear();
        }
        for change in written {
            if !self.handover.changed.contains(&change) {
                self.handover.changed.push(change);
            }
        }
        self.handover.owed += self.size.threshold;
        // Whether the persistence thread is idle: its word in the ring's last line but one.
        let _: u64 = port.load(self.places.ring + RING * 8 + 64);
        if self.handover.owed >= 1.0 && self.handover.is_idle() {
            self.hand_over(port);
        }
        port.commit();
        Progress::More
    }

    fn hand_over(&mut self, port: &mut Port<'_>) {
        let ring = self.places.ring;
        let (from, mut next) = (self.handover.next, self.handover.next);
        for &(index, version) in &self.handover.changed {
            for at in [self.string(index, version), self.number(index, version)] {
                port.store(ring + next % RING * 8, at);
                next += 1;
            }
        }
        if self.variant.write_back == WriteBack::Stream {
            self.variant.fence(port);
        }
        port.store(ring + RING * 8, self.swaps);
        let handover = &mut self.handover;
        handover.handed = Some((from, next - from, self.swaps));
        (handover.next, handover.last) = (next, self.swaps);
        handover.changed.clear();
        handover.owed -= 1.0;
        handover.persists += 1;
    }

    /// The persistence thread (Algorithm 2).
    pub(super) fn persist(&mut self, port: &mut Port<'_>) -> Progress {
        let done = self.handover.working.take();
        self.handover.durable = done.unwrap_or(self.handover.durable);
        let ring = self.places.ring;
        let handed = self.handover.handed.take();
        if done.is_none() && handed.is_none() {
            return Progress::Waiting;
        }
        let _: u64 = port.load(ring + RING * 8);
        let Some((from, count, update)) = handed else {
            // A batch of its own: a swap that waits looks again.
            return Progress::More;
        };
        for k in from..from + count {
            let at: u64 = port.load(ring + k % RING * 8);
            let bytes = if at < self.places.numbers { STRING } else { 8 };
            self.variant.write_back(port, at, bytes);
        }
        self.variant.fence(port);
        self.set_word(port, update);
        port.store(ring + RING * 8 + 64, update);
        self.handover.working = Some(update);
        Progress::More
    }
}
