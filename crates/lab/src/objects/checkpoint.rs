//! Checkpoints: the acts of each form, and what they write (3.2, Figure 6).
//!
//! * Dual copy: the copy that is not the checkpoint, then the resilient index with its mask, the log's last entry, the
//!   LogCkpt cursor, the index without the mask; each durable before the next.
//! * Double: the checkpoint, then its copy. A word says which of the two is whole.
//! * Copy-on-write: a place is allocated, the old data copied there and marked valid, written over, and the place freed.
//! * A file: two places in turn, each valid by its checksum. Until the log is flushed, what goes there is in the page cache.

use super::places::{COPY_HEADER, ENTRY, FILE_HEADER, MASK, Places, State};
use super::program::{Act, Program};
use super::recovery::file_checksum;
use super::variant::Form;
use crate::op::{Kind, LINE_BYTES};
use crate::space::{Plain, Port};

/// Instructions of a `write` beside its copy. Open: some hundred nanoseconds of a kernel.
const SYSCALL: u32 = 1000;
/// Lines flushed in a batch.
const FLUSHED: u64 = 64;

impl Program {
    /// The acts of a checkpoint of everything up to an entry.
    pub(super) fn checkpoint(&self, number: u64) -> Vec<Act> {
        let places = &self.places;
        let is_end = !self.variant.each;
        let state = is_end.then_some(Act::SetState(number, State::Resilient));
        match self.variant.form {
            None => Vec::new(),
            Some(Form::File) => vec![Act::ToFile(number), Act::Taken(0, number)],
            Some(Form::Dual) => {
                let copy = 1 - self.resilient;
                let mut acts = vec![Act::CopyOut(copy, number), Act::Put(places.index, copy | MASK)];
                acts.extend(state);
                acts.extend([
                    Act::Put(places.cursor, number),
                    Act::Put(places.index, copy),
                    Act::Taken(copy, number),
                ]);
                acts
            }
            Some(Form::Double) => {
                let mut acts = vec![
                    Act::CopyOut(0, number),
                    Act::Put(places.word, number << 1 | 1),
                    Act::CopyOut(1, number),
                    Act::Put(places.word, number << 1),
                ];
                acts.extend(state);
                acts.push(Act::Taken(1, number));
                acts
            }
            Some(Form::CopyOnWrite) => {
                let mut acts = vec![
                    Act::Put(places.allocator, 1),
                    Act::CopyAside,
                    Act::Put(places.word, 1),
                    Act::CopyOut(0, number),
                    Act::Put(places.cursor, number),
                    Act::Put(places.word, 0),
                ];
                acts.extend(state);
                acts.extend([Act::Put(places.allocator, 0), Act::Taken(0, number)]);
                acts
            }
        }
    }

    pub(super) fn copy_aside(&self, port: &mut Port<'_>) {
        let [from, to] = [0, 1].map(|copy| self.places.copy(copy));
        let position: u64 = port.load(from);
        port.store(to, position);
        self.places.copy_array(from + COPY_HEADER, to + COPY_HEADER, port);
        port.write_back(Kind::FlushOpt, to, COPY_HEADER + self.places.array_bytes());
        port.fence();
    }

    /// As `write` does.
    pub(super) fn to_cache(&self, port: &mut Port<'_>) {
        port.work(SYSCALL);
        self.places
            .copy_array(self.places.array, self.places.cached, port);
    }

    pub(super) fn to_file(&self, number: u64, port: &mut Port<'_>) {
        let mut bytes = vec![0; FILE_HEADER as usize + self.places.array_bytes() as usize];
        port.load_bytes(self.places.array, &mut bytes[FILE_HEADER as usize..]);
        number.put(&mut bytes[..8]);
        let sum = u64::from(file_checksum(&bytes));
        sum.put(&mut bytes[8..16]);
        port.disk_bytes(self.places.file(self.checkpoints % 2), &bytes);
    }
}

/// What checkpoints write, of any object.
impl Places {
    pub(super) fn copy_out(&self, copy: u64, number: u64, port: &mut Port<'_>) {
        let to = self.copy(copy);
        port.store(to, number);
        self.copy_array(self.array, to + COPY_HEADER, port);
        let bytes = COPY_HEADER + self.array_bytes();
        port.write_back(Kind::FlushOpt, to, bytes);
        port.fence();
    }

    fn copy_array(&self, from: u64, to: u64, port: &mut Port<'_>) {
        let all = self.array_bytes();
        for at in (0..all).step_by(LINE_BYTES as usize) {
            let mut line = vec![0; LINE_BYTES.min(all - at) as usize];
            port.load_bytes(from + at, &mut line);
            port.store_bytes(to + at, &line);
        }
    }

    pub(super) fn put(at: u64, value: u64, port: &mut Port<'_>) {
        port.store(at, value);
        port.write_back(Kind::FlushOpt, at, 8);
        port.fence();
    }

    pub(super) fn set_state(&self, number: u64, state: State, is_durable: bool, port: &mut Port<'_>) {
        let at = self.entry(number);
        let mut entry = [0; ENTRY as usize];
        port.load_bytes(at, &mut entry);
        let word = Places::with_state(&entry, state);
        match is_durable {
            true => Places::put(at + 24, word, port),
            false => port.store(at + 24, word),
        }
    }

    /// Flushes the lines of entries and contexts from `first` on, a batch of them; says where the rest begins.
    pub(super) fn flush(&self, first: u64, last: u64, port: &mut Port<'_>) -> Option<u64> {
        // Whole lines of entries: a flush of a line flushes every entry in it.
        let each_line = LINE_BYTES / ENTRY;
        let last_now = last.min((first / each_line + FLUSHED / 2) * each_line - 1);
        for of in [Places::entry, Places::context] {
            let mut before = u64::MAX;
            for number in first..=last_now {
                let line = of(self, number) / LINE_BYTES * LINE_BYTES;
                if line != before {
                    port.write_back(Kind::FlushOpt, line, LINE_BYTES);
                }
                before = line;
            }
        }
        (last_now < last).then_some(last_now + 1)
    }
}
