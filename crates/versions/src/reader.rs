//! Readers of the last durable version, in this process or another, while the writer goes on.
//!
//! * A reader changes nothing and is not waited for. It copies, then looks whether what it copied was still the durable
//!   version; if not, it reads again.
//! * It goes by the *confirmed* word: what is known to have arrived, not what is in flight.
//! * A version of the durable state is not claimed before a later one is confirmed, so a confirmed word that did not
//!   change says that nothing was missed. A row of numbers that are all of that state or earlier says the same of
//!   one element, whatever was confirmed since.

#![allow(unsafe_code)]

use crate::error::{Error, Result};
use crate::format::{Blocks, CONFIRMED, Header, Kind, WORD_PLACE, checked, number};
use crate::options::{durability_of, fits, header_of};
use crate::value::Value;
use crate::words::{no_such_plane, step_of, word};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};
use twinpage_os::{Access, Direct, DirectFile};

/// How often a reader begins again before it gives up.
const ATTEMPTS: u32 = 10_000;

/// The file as a reader has it.
#[derive(Debug)]
struct Source {
    direct: DirectFile,
    header: Header,
    path: PathBuf,
}

impl Source {
    fn open(path: &Path, wanted: &Header) -> Result<Source> {
        let direct = DirectFile::open(path, durability_of(path)?, None, Access::ReadOnly)?;
        let header = header_of(&direct, path)?;
        let count = header.count;
        fits(
            &header,
            &Header {
                count,
                ..wanted.clone()
            },
            path,
        )?;
        Ok(Source {
            direct,
            header,
            path: path.to_owned(),
        })
    }

    fn confirmed(&self) -> Option<u64> {
        checked(word(&self.direct, CONFIRMED).load(Ordering::Acquire), WORD_PLACE)
    }

    fn busy(&self) -> Error {
        Error::Busy {
            path: self.path.clone(),
            attempts: ATTEMPTS,
        }
    }

    /// Copies a value that may be written meanwhile; whether it was, the caller finds out afterwards.
    fn copy<T: Value>(&self, at: u64, to: &mut [MaybeUninit<T>]) {
        let bytes = size_of_val(to);
        assert!(at + bytes as u64 <= self.direct.len());
        // SAFETY: inside the mapping; read as atomics, as it may change. Any bytes are a value of `T`.
        unsafe {
            let from = self.direct.base().add(at as usize);
            let to = to.as_mut_ptr().cast::<u8>();
            let words = if from.addr().is_multiple_of(8) {
                bytes / 8
            } else {
                0
            };
            for k in 0..words {
                let read = AtomicU64::from_ptr(from.cast::<u64>().add(k)).load(Ordering::Relaxed);
                to.cast::<u64>().add(k).write_unaligned(read);
            }
            for k in 8 * words..bytes {
                to.add(k)
                    .write(AtomicU8::from_ptr(from.add(k)).load(Ordering::Relaxed));
            }
        }
        // What is looked at afterwards is looked at afterwards.
        fence(Ordering::Acquire);
    }
}

/// Reads an array of elements that a program, this one or another, may have open for writing.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("counts.twin");
/// use twinpage_versions::{Reader, Versions};
///
/// let mut counts = Versions::<u64, 3>::open(&path, 1000, |_| 1)?;
/// let reader = Reader::<u64, 3>::open(&path)?;
/// counts.update(|update| (update.set(1, 5), update.set(2, 6)));
/// counts.durable()?;
/// let both = reader.read(|view| Ok((view.get(1)?, view.get(2)?)))?;
/// assert_eq!(both, (5, 6)); // of one update
/// # Ok::<(), twinpage_versions::Error>(())
/// ```
#[derive(Debug)]
pub struct Reader<T: Value, const N: usize = 3> {
    source: Source,
    blocks: Blocks,
    _values: PhantomData<T>,
}

/// The array as of one durable update.
#[derive(Debug)]
pub struct View<'a, T: Value, const N: usize> {
    reader: &'a Reader<T, N>,
    durable: u64,
}

/// What was to be read is no longer there: [`Reader::read`] begins again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved(());

impl<T: Value, const N: usize> Reader<T, N> {
    /// Opens the array in the file `path`. Elements that it gains later are not seen.
    ///
    /// # Errors
    /// When there is no file, it holds another array, or its header is damaged.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let source = Source::open(path.as_ref(), &Header::of::<T>(Kind::Elements, N, 0, None))?;
        Ok(Reader {
            blocks: Blocks::of(&source.header),
            source,
            _values: PhantomData,
        })
    }

    /// Elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.source.header.count as usize
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads some elements as of one durable update. `read` is called again when the writer was quicker.
    ///
    /// # Errors
    /// [`Error::Busy`] when it was quicker thousands of times.
    pub fn read<R>(&self, mut read: impl FnMut(&View<'_, T, N>) -> Result<R, Moved>) -> Result<R> {
        for _ in 0..ATTEMPTS {
            let Some(durable) = self.source.confirmed() else {
                std::hint::spin_loop();
                continue;
            };
            let view = View {
                reader: self,
                durable,
            };
            if let Ok(result) = read(&view) {
                return Ok(result);
            }
            std::thread::yield_now();
        }
        Err(self.source.busy())
    }
}

impl<T: Value, const N: usize> View<'_, T, N> {
    /// The update this is the state of.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.durable
    }

    /// An element.
    ///
    /// # Errors
    /// [`Moved`] when the writer replaced it meanwhile.
    ///
    /// # Panics
    /// When `index` is not below [`Reader::len`].
    pub fn get(&self, index: usize) -> Result<T, Moved> {
        let Reader { source, blocks, .. } = self.reader;
        assert!(
            index < self.reader.len(),
            "element {index} of {}",
            self.reader.len()
        );
        let at = blocks.numbers(index as u64);
        let row = || -> [u64; N] {
            std::array::from_fn(|version| {
                word(&source.direct, at + 8 * version as u64).load(Ordering::Acquire)
            })
        };
        let before = row();
        let numbers = before.map(number);
        let of_state = (0..N).filter(|&version| (1..=self.durable).contains(&numbers[version]));
        let version = of_state
            .max_by_key(|&version| numbers[version])
            .ok_or(Moved(()))?;
        let mut value = MaybeUninit::<T>::uninit();
        source.copy(
            blocks.value(index as u64, version),
            std::slice::from_mut(&mut value),
        );
        let nothing_newer = numbers.iter().all(|&number| number <= self.durable);
        let stands = row() == before && (nothing_newer || source.confirmed() == Some(self.durable));
        // SAFETY: all its bytes were written, and any bytes are a value.
        stands.then(|| unsafe { value.assume_init() }).ok_or(Moved(()))
    }
}

/// Reads planes that a program, this one or another, may have open for writing.
#[derive(Debug)]
pub struct PlanesReader<T: Value, const N: usize = 3> {
    source: Source,
    _values: PhantomData<T>,
}

impl<T: Value, const N: usize> PlanesReader<T, N> {
    /// Opens the planes in the file `path`.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let wanted = Header::of::<T>(Kind::Planes, N, 0, None);
        Ok(PlanesReader {
            source: Source::open(path.as_ref(), &wanted)?,
            _values: PhantomData,
        })
    }

    /// Copies the plane of the last durable step. Says which step.
    ///
    /// # Errors
    /// [`Error::Busy`] when steps became durable faster than they could be copied, thousands of times.
    pub fn read(&mut self, into: &mut Vec<T>) -> Result<u64> {
        for _ in 0..ATTEMPTS {
            if let Some(step) = self.attempt(into)? {
                return Ok(step);
            }
            std::thread::yield_now();
        }
        Err(self.source.busy())
    }

    fn attempt(&mut self, into: &mut Vec<T>) -> Result<Option<u64>> {
        let Some(confirmed) = self.source.confirmed() else {
            return Ok(None);
        };
        let (step, plane) = step_of(confirmed);
        if confirmed >> 2 == 0 || plane >= N {
            return Err(no_such_plane(&self.source.path, plane).into());
        }
        let header = &self.source.header;
        let count = header.count as usize;
        into.clear();
        into.reserve(count);
        let at = header.first + plane as u64 * header.stride;
        self.source.copy(at, &mut into.spare_capacity_mut()[..count]);
        let stands = self.source.confirmed() == Some(confirmed);
        if header_of(&self.source.direct, &self.source.path).ok().as_ref() != Some(header) {
            // It grew, and its planes are elsewhere: past the end of what is mapped here.
            let path = self.source.path.clone();
            *self = PlanesReader::open(path)?;
            return Ok(None);
        }
        // SAFETY: all of them were written, and any bytes are values.
        unsafe { into.set_len(count) };
        Ok(stands.then_some(step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Planes;
    use crate::format::encode;

    #[test]
    fn a_word_of_a_plane_that_is_not_there_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("planes");
        drop(Planes::<u64, 2>::open(&path, 1000).unwrap());
        let whole = std::fs::read(&path).unwrap();
        for word in [1 << 2 | 2, 1 << 2 | 3, 1] {
            let mut file = whole.clone();
            file[CONFIRMED as usize..][..8].copy_from_slice(&encode(word, WORD_PLACE).to_le_bytes());
            std::fs::write(&path, &file).unwrap();
            let mut reader = PlanesReader::<u64, 2>::open(&path).unwrap();
            let error = reader.read(&mut Vec::new()).unwrap_err();
            assert!(error.to_string().contains("plane"), "{error}");
        }
    }
}
