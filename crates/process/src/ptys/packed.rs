//! Refills the kernel's buffers between both ends of a pseudo-terminal, so that all bytes taken out of them fit again.
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

use super::read_all;
use crate::stdio::queue;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Writes that fill the queue of a reader, after which less than 1536 bytes are left in the last buffer, however many were left
/// in it before.
const QUEUE: [usize; 3] = [1792, 1792, 511];
const QUEUE_BYTES: usize = QUEUE[0] + QUEUE[1] + QUEUE[2];
/// Writes that fill buffers of 1536, 512 and 1792 bytes.
const BUFFERS: [(usize, usize); 3] = [(1536, 10), (512, 2), (1792, 2)];
/// Two writes fill one that is kept.
const SMALL: usize = 256;
/// As much as fits without buffers that were kept.
const MOST: usize = QUEUE_BYTES + in_all(BUFFERS[0]) + in_all(BUFFERS[1]) + in_all(BUFFERS[2]);
/// How long the kernel's worker may take: it waits for a processor, as all else does.
const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of `count` writes of `size` bytes each.
const fn in_all((size, count): (usize, usize)) -> usize {
    size * count
}

/// Gives bytes to an end that does not wait, whose reader has none, and does not wait either.
pub(super) fn fill(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    prepare(reader, writer, bytes.len())?;
    let (first, rest) = bytes.split_at(bytes.len().min(QUEUE_BYTES));
    give(writer, first, QUEUE.into_iter())?;
    queue::await_readable(reader, first.len(), PATIENCE)?;
    fill_buffers(writer, rest)
}

/// Makes the kernel keep small buffers, if this number of bytes needs them. The reader reads bytes, not lines, and none wait.
pub(super) fn prepare(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    if bytes > MOST {
        make_small_buffers(reader, writer)?;
    }
    Ok(())
}

/// The same as [`fill`] behind a queue that is full, where less than 1536 bytes are left in the last buffer.
pub(super) fn fill_buffers(writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<()> {
    let sizes = BUFFERS.into_iter();
    let sizes = sizes.flat_map(|(size, count)| std::iter::repeat_n(size, count));
    give(writer, bytes, sizes.chain(std::iter::repeat(SMALL)))
}

/// Has the kernel keep as many small buffers as it makes.
fn make_small_buffers(reader: BorrowedFd<'_>, writer: BorrowedFd<'_>) -> io::Result<()> {
    while write(writer, &[0; SMALL])? > 0 {}
    read_all(reader).map(drop)
}

/// Writes bytes in pieces of these sizes.
fn give(writer: BorrowedFd<'_>, mut bytes: &[u8], sizes: impl Iterator<Item = usize>) -> io::Result<()> {
    for size in sizes {
        let (mut piece, rest) = bytes.split_at(bytes.len().min(size));
        let begun = Instant::now();
        while !piece.is_empty() {
            match write(writer, piece)? {
                // A buffer that was emptied may be counted until the kernel looks at it again.
                0 if begun.elapsed() < PATIENCE => queue::pause(begun),
                0 => return Err(too_many(piece.len() + rest.len())),
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

fn too_many(left: usize) -> io::Error {
    io::Error::other(format!(
        "the kernel has no room for {left} bytes that were on their way through it"
    ))
}

/// How many bytes there was room for.
fn write(writer: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    match rustix::io::retry_on_intr(|| rustix::io::write(writer, bytes)) {
        Err(Errno::AGAIN) => Ok(0),
        written => Ok(written?),
    }
}
