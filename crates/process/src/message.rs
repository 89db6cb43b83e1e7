//! What calls are given in the program's memory: lists of buffers, and of sendmsg(2) and its kind a `struct msghdr`.

use std::io;
use twinpage_os::remote::{Process, Remote};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes of a struct iovec, and the most of them that the kernel takes: readv(2), `IOV_MAX`.
pub(crate) const VECTOR_BYTES: u64 = 16;
const MOST_VECTORS: u64 = 1024;

/// The buffers that `count` structs iovec at an address list, but empty ones.
pub(crate) fn buffers(process: &Process, at: u64, count: u64) -> io::Result<Vec<Remote>> {
    let mut vectors = vec![[0_u64; 2]; count.min(MOST_VECTORS) as usize];
    process.read(at, vectors.as_mut_bytes())?;
    let buffers = vectors.into_iter().map(|[start, len]| Remote {
        start,
        len: len as usize,
    });
    Ok(buffers.filter(|buffer| buffer.len > 0).collect())
}

/// Bytes of all buffers together.
pub(crate) fn len(buffers: &[Remote]) -> usize {
    let lengths = buffers.iter().map(|buffer| buffer.len);
    lengths.fold(0, usize::saturating_add)
}

/// Such a structure, read at once.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes)]
#[repr(C)]
pub(crate) struct Head {
    /// Where the address is that the message is for; 0: the socket's peer.
    pub(crate) name: u64,
    /// The kernel takes an int: the upper half is padding.
    name_bytes: u64,
    /// Where the list of buffers is.
    pub(crate) buffers: u64,
    pub(crate) count: u64,
    control: u64,
    control_bytes: u64,
    flags: u64,
}

const _: () = assert!(size_of::<Head>() == 56);

impl Head {
    pub(crate) fn read(process: &Process, at: u64) -> io::Result<Head> {
        let mut head = Head::default();
        process.read(at, head.as_mut_bytes())?;
        Ok(head)
    }

    /// Bytes of the address.
    pub(crate) fn name_bytes(&self) -> u64 {
        self.name_bytes & 0xffff_ffff
    }

    /// Whether something is sent along with the bytes: cmsg(3).
    pub(crate) fn is_accompanied(&self) -> bool {
        self.control_bytes != 0
    }
}
