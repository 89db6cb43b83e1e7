//! The flat memory a workload computes on, and the port through which a core does.
//!
//! * The space holds the newest data, as the program sees it: what the cores' caches would return.
//! * A [`Port`] does each access at once on the space and appends it to the batch the machine will
//!   time. So the space is ahead of the machine by at most the batch each core is in; checkpoints
//!   fall between batches, where both agree exactly.
//! * Addresses are dense from 0; the space is a whole number of pages and starts as zeros.

use crate::op::{Kind, LINE_BYTES, Op, PAGE_BYTES};

/// The flat memory.
#[derive(PartialEq, Eq)]
pub struct Space {
    bytes: Vec<u8>,
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Space({} bytes)", self.bytes.len())
    }
}

impl Space {
    /// At least `bytes` bytes of zeros. Those never written cost little.
    #[must_use]
    pub fn new(bytes: u64) -> Space {
        let mut bytes = vec![0; bytes.next_multiple_of(PAGE_BYTES) as usize];
        in_large_pages(&mut bytes);
        Space { bytes }
    }

    /// Bytes in it.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All of it, to be filled before a run. During a run only ports write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The `len` bytes at `at`.
    ///
    /// # Panics
    /// Past the end.
    #[must_use]
    pub fn at(&self, at: u64, len: usize) -> &[u8] {
        &self.bytes[at as usize..at as usize + len]
    }
}

impl Clone for Space {
    fn clone(&self) -> Space {
        let mut copy = Space::new(self.len());
        copy.bytes.copy_from_slice(&self.bytes);
        copy
    }
}

/// Asks the system to keep these bytes in large pages: programs touch them anywhere. A system that has
/// none keeps them in ordinary ones.
fn in_large_pages(bytes: &mut [u8]) {
    const LARGE: usize = 2 << 20;
    let skip = bytes.as_ptr().align_offset(LARGE).min(bytes.len());
    let whole = &mut bytes[skip..];
    let len = whole.len() / LARGE * LARGE;
    if len > 0 {
        // SAFETY: the range is ours and whole pages, and the advice changes no byte of it.
        let _ =
            unsafe { rustix::mm::madvise(whole.as_mut_ptr().cast(), len, rustix::mm::Advice::LinuxHugepage) };
    }
}

/// A plain number that lies in memory, little-endian.
pub trait Plain: Copy {
    /// From exactly `size_of::<Self>()` bytes.
    fn get(bytes: &[u8]) -> Self;
    /// Into exactly as many.
    fn put(self, bytes: &mut [u8]);
}

macro_rules! plain {
    ($($number:ty)*) => {$(
        impl Plain for $number {
            #[inline]
            fn get(bytes: &[u8]) -> Self {
                <$number>::from_le_bytes(bytes.try_into().expect("as many bytes as the number has"))
            }
            #[inline]
            fn put(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
plain!(u8 u16 u32 u64 i32 i64 f32 f64);

/// One core's way to the space: does what it is told, and writes it down for the machine.
#[derive(Debug)]
pub struct Port<'a> {
    space: &'a mut Space,
    batch: &'a mut Vec<Op>,
    /// What is written, byte by byte, where that is wanted.
    written: Option<&'a mut Vec<u8>>,
    work: u32,
    each: u32,
}

impl<'a> Port<'a> {
    /// A port that appends to `batch`.
    pub fn new(space: &'a mut Space, batch: &'a mut Vec<Op>) -> Port<'a> {
        Port {
            space,
            batch,
            written: None,
            work: 0,
            each: 0,
        }
    }

    /// The same, and the bytes of each store and stream go to `written`, as many as its operation says; before those of
    /// a disk's write, their address and number, eight bytes each.
    pub fn recording(space: &'a mut Space, batch: &'a mut Vec<Op>, written: &'a mut Vec<u8>) -> Port<'a> {
        Port {
            space,
            batch,
            written: Some(written),
            work: 0,
            each: 0,
        }
    }

    /// Puts bytes into the space.
    #[inline]
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.space.bytes[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
        if let Some(written) = &mut self.written {
            written.extend_from_slice(bytes);
        }
    }

    /// The space, and the batch that operations go to.
    pub(crate) fn parts(&mut self) -> (&mut Space, &mut Vec<Op>) {
        (self.space, self.batch)
    }

    /// Operations in the batch so far. A workload returns after some hundreds.
    #[must_use]
    pub fn batched(&self) -> usize {
        self.batch.len()
    }

    /// The number at `at`. It must not straddle the end of the space.
    #[inline]
    pub fn load<T: Plain>(&mut self, at: u64) -> T {
        self.note(Kind::Load, at, size_of::<T>(), 0);
        T::get(self.space.at(at, size_of::<T>()))
    }

    /// The same, at an address that the last load gave.
    #[inline]
    pub fn follow<T: Plain>(&mut self, at: u64) -> T {
        self.note(Kind::Load, at, size_of::<T>(), 1);
        T::get(self.space.at(at, size_of::<T>()))
    }

    /// Writes the number.
    #[inline]
    pub fn store<T: Plain>(&mut self, at: u64, value: T) {
        self.note(Kind::Store, at, size_of::<T>(), 0);
        let place = &mut self.space.bytes[at as usize..at as usize + size_of::<T>()];
        value.put(place);
        if let Some(written) = &mut self.written {
            written.extend_from_slice(place);
        }
    }

    /// Reads many bytes: one instruction for each 16.
    pub fn load_bytes(&mut self, at: u64, into: &mut [u8]) {
        self.follow_bytes(at, into, 0);
    }

    /// The same, at an address that the load that many before it gave ([`Op::behind`]).
    pub fn follow_bytes(&mut self, at: u64, into: &mut [u8], behind: u8) {
        self.note(Kind::Load, at, into.len(), behind);
        into.copy_from_slice(self.space.at(at, into.len()));
    }

    /// Writes many bytes: one instruction for each 16.
    pub fn store_bytes(&mut self, at: u64, bytes: &[u8]) {
        self.note(Kind::Store, at, bytes.len(), 0);
        self.put(at, bytes);
    }

    /// Instructions that touch no memory.
    #[inline]
    pub fn work(&mut self, instructions: u32) {
        self.work += instructions;
    }

    /// Instructions that touch no memory, before each load and store from here on.
    pub(crate) fn each(&mut self, instructions: u32) {
        self.each = instructions;
    }

    /// Writes many bytes past the caches: one instruction for each 16.
    pub fn stream_bytes(&mut self, at: u64, bytes: &[u8]) {
        self.note(Kind::Stream, at, bytes.len(), 0);
        self.put(at, bytes);
    }

    /// Asks for the line at `at` to be written back (`clwb`).
    pub fn persist(&mut self, at: u64) {
        self.push(Kind::Persist, at, 0, 0);
    }

    /// Asks for every line of these bytes to be written back: `how` is [`Kind::Persist`], [`Kind::FlushOpt`] or
    /// [`Kind::Flush`].
    pub fn write_back(&mut self, how: Kind, at: u64, bytes: u64) {
        debug_assert!(matches!(how, Kind::Persist | Kind::FlushOpt | Kind::Flush));
        let first = at / LINE_BYTES * LINE_BYTES;
        for line in (first..at + bytes).step_by(LINE_BYTES as usize) {
            self.push(how, line, 0, 0);
        }
    }

    /// Waits for earlier stores and write-backs (`sfence`).
    pub fn fence(&mut self) {
        self.push(Kind::Fence, 0, 0, 0);
    }

    /// Waits for earlier loads too (`mfence`).
    pub fn full_fence(&mut self) {
        self.push(Kind::FullFence, 0, 0, 0);
    }

    /// Writes that many bytes to a file on a disk, and waits until they are durable. Only the machine with its memory
    /// on the bus ([`crate::bus`]) has a disk.
    pub fn disk(&mut self, bytes: u64) {
        self.push(Kind::Disk, bytes, 0, 0);
    }

    /// Writes these bytes to a file on a disk, and waits until they are durable. `at` is a part of the space that no
    /// other operation touches: it stands for the file.
    pub fn disk_bytes(&mut self, at: u64, bytes: &[u8]) {
        self.disk(bytes.len() as u64);
        if let Some(written) = &mut self.written {
            written.extend_from_slice(&at.to_le_bytes());
            written.extend_from_slice(&(bytes.len() as u64).to_le_bytes());
        }
        self.put(at, bytes);
    }

    /// Waits that many femtoseconds, for what is not simulated line by line. Only the machine with its memory on the bus
    /// does this.
    pub fn wait(&mut self, fs: u64) {
        self.push(Kind::Wait, fs, 0, 0);
    }

    /// Takes the lock in the line at `at`. The batch after this one begins with the lock taken.
    pub fn lock(&mut self, at: u64) {
        self.push(Kind::Lock, at, 0, 0);
    }

    /// Gives it back.
    pub fn unlock(&mut self, at: u64) {
        self.push(Kind::Unlock, at, 0, 0);
    }

    /// Adds to the number at `at` in one access, and returns what it was.
    pub fn fetch_add(&mut self, at: u64, by: u64) -> u64 {
        self.push(Kind::Atomic, at, 0, 0);
        let place = &mut self.space.bytes[at as usize..at as usize + 8];
        let old = u64::get(place);
        (old + by).put(place);
        old
    }

    /// A transaction or request ends here.
    pub fn commit(&mut self) {
        self.push(Kind::Commit, 0, 0, 0);
    }

    /// One operation a line, each with an instruction for every 16 bytes.
    #[inline]
    fn note(&mut self, kind: Kind, at: u64, bytes: usize, behind: u8) {
        let first = bytes.min((LINE_BYTES - at % LINE_BYTES) as usize);
        self.push(kind, at, first, behind);
        if first < bytes {
            self.note_rest(kind, at + first as u64, bytes - first);
        }
    }

    fn note_rest(&mut self, kind: Kind, mut at: u64, mut bytes: usize) {
        while bytes > 0 {
            let some = bytes.min(LINE_BYTES as usize);
            self.push(kind, at, some, 0);
            at += some as u64;
            bytes -= some;
        }
    }

    #[inline]
    fn push(&mut self, kind: Kind, at: u64, bytes: usize, behind: u8) {
        let each = match kind {
            Kind::Load | Kind::Store => self.each,
            _ => 0,
        };
        let more = (bytes.saturating_sub(1) / 16) as u32 + each;
        self.batch.push(Op {
            at,
            work: self.work + more,
            bytes: bytes as u8,
            kind,
            behind,
        });
        self.work = 0;
    }
}

impl Drop for Port<'_> {
    /// Work with no access after it counts too.
    fn drop(&mut self) {
        if self.work > 0 {
            self.push(Kind::Work, 0, 0, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_does_and_tells() {
        let mut space = Space::new(5000);
        assert_eq!(space.len(), 8192);
        let mut batch = Vec::new();
        let mut port = Port::new(&mut space, &mut batch);
        port.work(3);
        port.store(8, 77u64);
        assert_eq!(port.load::<u64>(8), 77);
        assert_eq!(port.follow::<u8>(8), 77);
        port.store_bytes(60, &[1; 100]);
        port.work(5);
        port.each(7);
        port.store(8, 78u64);
        port.commit();
        drop(port);
        let told: Vec<_> = batch
            .iter()
            .map(|op| (op.kind, op.at, op.bytes, op.work))
            .collect();
        assert_eq!(
            told,
            [
                (Kind::Store, 8, 8, 3),
                (Kind::Load, 8, 8, 0),
                (Kind::Load, 8, 1, 0),
                (Kind::Store, 60, 4, 0),
                (Kind::Store, 64, 64, 3),
                (Kind::Store, 128, 32, 1),
                (Kind::Store, 8, 8, 12),
                (Kind::Commit, 0, 0, 0),
            ]
        );
        assert_eq!((batch[2].behind, batch[1].behind), (1, 0));
        assert_eq!(space.at(159, 2), [1, 0]);
    }
}
