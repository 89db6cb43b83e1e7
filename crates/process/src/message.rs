//! What sendmsg(2) and its kind are given: a `struct msghdr` in the program's memory.

use std::io;
use twinpage_os::remote::Process;
use zerocopy::{FromBytes, IntoBytes};

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
