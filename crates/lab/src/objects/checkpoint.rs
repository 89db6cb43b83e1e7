//! Checkpoints: the acts of each form, and what they write (3.2, Figure 6).
//!
//! * Dual copy: the copy that is not the checkpoint, then the resilient index with its mask, the log's last entry, the
//!   LogCkpt cursor, the index without the mask; each durable before the next.
//! * Double: the checkpoint, then its copy. A word says which of the two is whole.
//! * Copy-on-write: a place is allocated, the old data copied there and marked valid, written over, and the place freed.
//! * A file: two places in turn, each valid by its checksum.

use super::places::{COPY_HEADER, ENTRY, FILE_HEADER, MASK, Places, State};
use super::program::{Act, Program};
use super::recovery::file_checksum;
use super::variant::Form;
use crate::op::{Kind, LINE_BYTES};
use crate::space::{Plain, Port};

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

    pub(super) fn copy_out(&self, copy: u64, number: u64, port: &mut Port<'_>) {
        let to = self.places.copy(copy);
        port.store(to, number);
        self.copy(self.places.array, to + COPY_HEADER, port);
        let bytes = COPY_HEADER + self.places.array_bytes();
        port.write_back(Kind::FlushOpt, to, bytes);
        port.fence();
    }

    pub(super) fn copy_aside(&self, port: &mut Port<'_>) {
        let [from, to] = [0, 1].map(|copy| self.places.copy(copy));
        let position: u64 = port.load(from);
        port.store(to, position);
        self.copy(from + COPY_HEADER, to + COPY_HEADER, port);
        port.write_back(Kind::FlushOpt, to, COPY_HEADER + self.places.array_bytes());
        port.fence();
    }

    fn copy(&self, from: u64, to: u64, port: &mut Port<'_>) {
        let all = self.places.array_bytes();
        for at in (0..all).step_by(LINE_BYTES as usize) {
            let mut line = vec![0; LINE_BYTES.min(all - at) as usize];
            port.load_bytes(from + at, &mut line);
            port.store_bytes(to + at, &line);
        }
    }

    pub(super) fn to_file(&self, number: u64, port: &mut Port<'_>) {
        let mut bytes = vec![0; FILE_HEADER as usize + self.places.array_bytes() as usize];
        port.load_bytes(self.places.array, &mut bytes[FILE_HEADER as usize..]);
        number.put(&mut bytes[..8]);
        let sum = u64::from(file_checksum(&bytes));
        sum.put(&mut bytes[8..16]);
        port.disk_bytes(self.places.file(self.checkpoints % 2), &bytes);
    }

    pub(super) fn put(&self, at: u64, value: u64, port: &mut Port<'_>) {
        port.store(at, value);
        port.write_back(Kind::FlushOpt, at, 8);
        port.fence();
    }

    pub(super) fn set_state(&self, number: u64, state: State, is_durable: bool, port: &mut Port<'_>) {
        let at = self.places.entry(number);
        let mut entry = [0; ENTRY as usize];
        port.load_bytes(at, &mut entry);
        let word = Places::with_state(&entry, state);
        match is_durable {
            true => self.put(at + 24, word, port),
            false => port.store(at + 24, word),
        }
    }
}
