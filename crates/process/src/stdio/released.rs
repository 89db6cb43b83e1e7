//! How much of each stream really went outside.
//!
//! A page of the state directory, mapped shared: a store to it survives the death of this process.
//!
//! ```text
//!  byte 0   magic "twpgout2"
//!       8   the boot the counters speak for, 16 bytes; after a reboot they prove nothing
//!      24   the same again
//!      64   slot 0:  counter | place | device | inode | base | least | most, words of 8 bytes
//!     128   slot 1
//!     192   slot 2
//! ```
//!
//! Invariants:
//! * A counter never exceeds what a durable epoch covers.
//! * The kernel itself moves the counter in the system call that writes the bytes (sendfile(2) with
//!   its offset in this page): killed at any instant, the two agree.
//! * `base` is the offset in the outside file of position 0 of the stream, as a wrapping number (a
//!   resumed program may go on in another file).
//! * `place` is 0 while the outside file is not known, else a sum of the three words after it, written last.
//! * `least <= counter <= most` at every instant, and all are the same but while bytes go out: so damage is
//!   told from what a kill leaves.

use super::error::{Error, Result};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_os::shared_page::{PAGE_BYTES, SharedPage};

const MAGIC: &[u8; 8] = b"twpgout2";
const SLOT_BYTES: usize = 64;

/// The most streams a page counts.
pub(super) const SLOTS: usize = 3;

/// Words in a slot.
const WORDS: usize = 7;
const COUNTER: usize = 0;
const PLACE: usize = 1;
const LEAST: usize = 5;
const MOST: usize = 6;

const _: () = assert!(SLOT_BYTES * (SLOTS + 1) <= PAGE_BYTES && SLOT_BYTES >= WORDS * 8);

/// The outside file a stream goes to, for those that can be looked at later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Destination {
    pub(super) dev: u64,
    pub(super) ino: u64,
    /// The offset in the file of position 0 of the stream; wrapping.
    pub(super) base: u64,
}

/// The counters.
#[derive(Debug)]
pub(super) struct Released {
    page: SharedPage,
    file: File,
    /// Whether the counters were left by a process of this boot.
    trusted: bool,
}

impl Released {
    /// Opens the counters of a state directory, or makes new ones (`fresh`).
    pub(super) fn open(dir: &Path, fresh: bool) -> Result<Released> {
        let path = dir.join("released");
        let failed = |e| Error::io(format!("open {}", path.display()), e);
        if !fresh {
            Released::check(dir)?;
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(fresh)
            .open(&path)
            .map_err(failed)?;
        let mut head = [0; 24];
        let boot = boot_id();
        let whole = file.metadata().map_err(failed)?.len() == PAGE_BYTES as u64;
        let known = whole && file.read_exact_at(&mut head, 0).is_ok() && &head[..8] == MAGIC;
        let trusted = known && head[8..] == boot;
        if !known {
            file.write_all_at(&[0; PAGE_BYTES], 0).map_err(failed)?;
            file.write_all_at(MAGIC, 0).map_err(failed)?;
        }
        if !trusted {
            // Until the counters are set they belong to no boot.
            file.write_all_at(&twice([0; 16]), 8).map_err(failed)?;
        }
        let page = SharedPage::map(&file).map_err(|e| Error::io(format!("map {}", path.display()), e))?;
        Ok(Released { page, file, trusted })
    }

    /// Whether the file is as it was made, before the first checkpoint. Without it it is unknown what
    /// was printed.
    ///
    /// # Errors
    /// [`Error::Damaged`] when it is not, [`Error::Io`] when it cannot be read.
    pub(super) fn check(dir: &Path) -> Result<()> {
        let what = dir.join("released");
        let mut why = String::new();
        // A program that runs may write while it is read.
        for _ in 0..4 {
            let page = match std::fs::read(&what) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Error::io(format!("read {}", what.display()), error));
                }
                page => page.unwrap_or_default(),
            };
            match damage(&page) {
                None => return Ok(()),
                Some(found) => why = found,
            }
        }
        Err(Error::Damaged { what, why })
    }

    /// The counters are set: from now on they speak for this boot. `disk`: and what is said of
    /// files outside is on the disk.
    pub(super) fn vouch(&self, disk: bool) -> Result<()> {
        let failed = |e| Error::io("write the counters of what was printed", e);
        self.file.write_all_at(&twice(boot_id()), 8).map_err(failed)?;
        if disk {
            self.file.sync_data().map_err(failed)
        } else {
            Ok(())
        }
    }

    /// Whether the counters are of this boot. After a power cut they may be of any age.
    pub(super) fn trusted(&self) -> bool {
        self.trusted
    }

    /// Moves up to `len` bytes of `from`, from the counter on, to `to`, and the counter with them: one
    /// call of the kernel.
    pub(super) fn send(&self, slot: usize, to: impl AsFd, from: &File, len: usize) -> io::Result<usize> {
        let most = self.get(slot) + len as u64;
        self.word(slot, MOST).store(most, Ordering::Release);
        let sent = self.page.send(to, from, len, place(slot, COUNTER));
        self.close_in(slot);
        sent
    }

    fn word(&self, slot: usize, word: usize) -> &AtomicU64 {
        self.page.word(place(slot, word))
    }

    /// Bytes of the stream that are outside.
    pub(super) fn get(&self, slot: usize) -> u64 {
        self.word(slot, COUNTER).load(Ordering::Acquire)
    }

    /// Sets the counter.
    pub(super) fn set(&self, slot: usize, to: u64) {
        let [least, most] = [LEAST, MOST].map(|bound| self.word(slot, bound));
        least.fetch_min(to, Ordering::AcqRel);
        most.fetch_max(to, Ordering::AcqRel);
        self.word(slot, COUNTER).store(to, Ordering::Release);
        self.close_in(slot);
    }

    /// The counter stands where it is.
    fn close_in(&self, slot: usize) {
        let counter = self.get(slot);
        for bound in [LEAST, MOST] {
            self.word(slot, bound).store(counter, Ordering::Release);
        }
    }

    /// The outside file of the last process that released this stream.
    pub(super) fn place(&self, slot: usize) -> Option<Destination> {
        let word = |i| self.word(slot, i).load(Ordering::Acquire);
        (word(PLACE) != 0).then(|| Destination {
            dev: word(2),
            ino: word(3),
            base: word(4),
        })
    }

    /// Notes the outside file.
    pub(super) fn set_place(&self, slot: usize, place: Option<Destination>) {
        let store = |i, value| self.word(slot, i).store(value, Ordering::Release);
        store(PLACE, 0);
        if let Some(place) = place {
            store(2, place.dev);
            store(3, place.ino);
            store(4, place.base);
            store(PLACE, sum([place.dev, place.ino, place.base]));
        }
    }
}

/// What is wrong with a page, if anything is.
fn damage(page: &[u8]) -> Option<String> {
    if page.len() != PAGE_BYTES {
        return Some(format!(
            "{PAGE_BYTES} bytes were expected, {} are there",
            page.len()
        ));
    }
    if !page.starts_with(MAGIC) {
        return Some("it does not begin as the counters of what was printed".into());
    }
    if page[8..24] != page[24..40] {
        return Some("it names two boots".into());
    }
    (0..SLOTS).find_map(|slot| {
        let word = |word| word_at(page, place(slot, word));
        let (counter, least, most) = (word(COUNTER), word(LEAST), word(MOST));
        if !(least..=most).contains(&counter) {
            return Some(format!("counter {slot} is {counter}, not from {least} to {most}"));
        }
        let known = word(PLACE) == 0 || word(PLACE) == sum([word(2), word(3), word(4)]);
        (!known).then(|| format!("the file of counter {slot} does not match its sum"))
    })
}

/// The word at a byte of a page.
fn word_at(page: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(page[at..at + 8].try_into().expect("eight bytes"))
}

/// A sum of words, never 0.
fn sum(words: [u64; 3]) -> u64 {
    u64::from(crc32c::crc32c(words.map(u64::to_le_bytes).as_flattened())) | 1 << 32
}

fn twice(boot: [u8; 16]) -> [u8; 32] {
    std::array::from_fn(|i| boot[i % 16])
}

/// Where a word of a slot is in the page.
fn place(slot: usize, word: usize) -> usize {
    assert!(slot < SLOTS && word < WORDS);
    SLOT_BYTES * (slot + 1) + 8 * word
}

/// The counters of a state directory, looked at only; `None` where they prove nothing.
pub(super) fn peek(dir: &Path) -> Option<[u64; SLOTS]> {
    let page = std::fs::read(dir.join("released")).ok()?;
    if page.len() != PAGE_BYTES || !page.starts_with(MAGIC) || page[8..24] != boot_id() {
        return None;
    }
    Some(std::array::from_fn(|slot| word_at(&page, place(slot, COUNTER))))
}

/// A number of the machine's present run, random(4); zeros where the kernel does not tell.
fn boot_id() -> [u8; 16] {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).unwrap_or(0).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stay() {
        let dir = tempfile::tempdir().unwrap();
        let place = Destination {
            dev: 1,
            ino: 2,
            base: 0u64.wrapping_sub(7),
        };
        {
            let released = Released::open(dir.path(), true).unwrap();
            assert!(!released.trusted());
            released.set(1, 77);
            released.set_place(2, Some(place));
            assert_eq!(peek(dir.path()), None, "it was not vouched for");
            released.vouch(true).unwrap();
            assert_eq!(peek(dir.path()), Some([0, 77, 0]));
        }
        let released = Released::open(dir.path(), false).unwrap();
        assert!(released.trusted());
        assert_eq!((released.get(0), released.get(1)), (0, 77));
        assert_eq!((released.place(1), released.place(2)), (None, Some(place)));
        let fresh = Released::open(dir.path(), true).unwrap();
        assert_eq!(fresh.get(1), 0);
        drop(fresh);
        assert!(
            !Released::open(dir.path(), false).unwrap().trusted(),
            "it was not vouched for"
        );
    }

    /// Every bit that counts: bounds that are too wide do no harm.
    #[test]
    fn a_flipped_bit_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let released = Released::open(dir.path(), true).unwrap();
        for slot in 0..SLOTS {
            released.set(slot, 1000 + slot as u64);
            released.set(slot, 500 + slot as u64);
            released.set_place(
                slot,
                (slot != 1).then_some(Destination {
                    dev: 1,
                    ino: 2,
                    base: 3,
                }),
            );
        }
        released.vouch(false).unwrap();
        let page = std::fs::read(dir.path().join("released")).unwrap();
        assert_eq!(damage(&page), None);
        let slots = (0..SLOTS).flat_map(|slot| place(slot, 0)..place(slot, LEAST));
        let empty = place(1, 2)..place(1, 5);
        for at in (0..40).chain(slots).filter(|at| !empty.contains(at)) {
            for bit in 0..8 {
                let mut flipped = page.clone();
                flipped[at] ^= 1 << bit;
                assert!(damage(&flipped).is_some(), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn a_damaged_page_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("released"), b"nonsense").unwrap();
        assert_eq!(peek(dir.path()), None);
        for fresh in [false, true] {
            let opened = Released::open(dir.path(), fresh);
            assert_eq!(matches!(opened, Err(Error::Damaged { .. })), !fresh);
        }
    }
}
