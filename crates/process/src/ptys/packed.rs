//! What waits between both ends of a pseudo-terminal, given again so that all of it fits.
//!
//! ```text
//!   writer -> [buffer][buffer] ... [buffer] -> the queue of the reader, 4095 bytes
//! ```
//!
//! * A buffer is made for a write: as large as that, in steps of 256 bytes, up to 1792. It takes twice its size: the
//!   writes after it go there while all of one fits (`tty_buffer.c`).
//! * One more is made while the sizes of those there are sum to 8192 or less. So most fits where they sum to 8192 when the
//!   last is made, and that one is of the largest size.
//! * The kernel keeps small buffers that were emptied, and gives those again whatever the sum.

use crate::stdio::queue;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// What the queue of a reader takes, in writes after which less than 1536 bytes are left in the last buffer, whatever was
/// left in it before.
const QUEUE: [usize; 3] = [1792, 1792, 511];
/// Writes that fill buffers of 1536, 512 and 1792 bytes.
const BUFFERS: [(usize, usize); 3] = [(1536, 10), (512, 2), (1792, 2)];
/// Two writes fill one that is kept.
const SMALL: usize = 256;
/// As much as fits without buffers that were kept.
const MOST: usize = 4095 + 10 * 1536 + 2 * 512 + 2 * 1792;
/// How long the kernel may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Gives bytes to an end that does not wait, whose reader has none, and does not wait either.
pub(super) fn fill(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    if bytes.len() > MOST {
        make_small_buffers(reader, writer)?;
    }
    let queued = bytes.len().min(QUEUE.iter().sum());
    let (first, rest) = bytes.split_at(queued);
    give(writer, first, QUEUE.into_iter())?;
    let begun = Instant::now();
    while queue::readable(reader)? < queued as u64 && begun.elapsed() < PATIENCE {
        std::thread::yield_now(); // the kernel moves it from the buffers to the queue
    }
    fill_buffers(writer, rest)
}

/// The same behind a queue that is full, where less than 1536 bytes are left in the last buffer.
pub(super) fn fill_buffers(writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let sizes = BUFFERS.into_iter();
    let sizes = sizes.flat_map(|(size, count)| std::iter::repeat_n(size, count));
    give(writer, bytes, sizes.chain(std::iter::repeat(SMALL)))
}

/// Has the kernel keep as many small buffers as it makes.
fn make_small_buffers(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> io::Result<()> {
    let mut room = [0; 1 << 13];
    while write(writer, &[0; SMALL])? > 0 {}
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(reader, &mut room)) {
            Ok(0) | Err(Errno::AGAIN) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes bytes in pieces of these sizes.
fn give(writer: BorrowedFd<'_>, mut bytes: &[u8], sizes: impl Iterator<Item = usize>) -> io::Result<()> {
    for size in sizes {
        let (mut piece, rest) = bytes.split_at(bytes.len().min(size));
        let begun = Instant::now();
        while !piece.is_empty() {
            match write(writer, piece)? {
                // A buffer that was emptied may be counted until the kernel looks at it again.
                0 if begun.elapsed() < PATIENCE => std::thread::yield_now(),
                0 => return Err(Errno::AGAIN.into()),
                given => piece = &piece[given..],
            }
        }
        bytes = rest;
        if bytes.is_empty() {
            break;
        }
    }
    Ok(())
}

/// How many bytes there was room for.
fn write(writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    match rustix::io::retry_on_intr(|| rustix::io::write(writer, bytes)) {
        Err(Errno::AGAIN) => Ok(0),
        written => Ok(written?),
    }
}
