//! The programs of the study, by name.

use crate::op::Kind;
use crate::space::Port;

/// How a program keeps its strings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// In place, without fault tolerance.
    Plain,
    /// In place, with a redo log.
    Logging {
        /// A second thread replays a full log into a copy of the strings, meanwhile.
        checkpoint: bool,
        /// A full log is written to a file on a disk.
        disk: bool,
    },
    /// In versions, durable one swap at a time (3.1).
    Interleaved,
    /// In versions, made durable by a thread of its own (3.2).
    Threading,
}

/// How lines get to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBack {
    /// When the caches evict them.
    None,
    /// `clflush`.
    Clflush,
    /// `clwb`.
    Clwb,
    /// Non-temporal stores instead of stores.
    Stream,
}

/// What orders them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fence {
    /// Nothing.
    None,
    /// `sfence`.
    Sfence,
    /// `mfence`.
    Mfence,
}

/// A program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variant {
    /// Its name: the paper's, in small letters, with the instruction the paper could not use behind it.
    pub name: &'static str,
    /// How it keeps its strings.
    pub method: Method,
    /// How lines get to memory.
    pub write_back: WriteBack,
    /// What orders them.
    pub fence: Fence,
}

const LOG: Method = Method::Logging {
    checkpoint: false,
    disk: false,
};

const fn variant(name: &'static str, method: Method, write_back: WriteBack, fence: Fence) -> Variant {
    Variant {
        name,
        method,
        write_back,
        fence,
    }
}

/// All programs, in the order of the paper's figures; then those with instructions it could not use.
pub const ALL: [Variant; 24] = {
    use Fence::{Mfence, Sfence};
    use Method::{Interleaved, Logging, Plain, Threading};
    use WriteBack::{Clflush, Clwb, Stream};
    let disk = Logging {
        checkpoint: false,
        disk: true,
    };
    let checkpoint = Logging {
        checkpoint: true,
        disk: false,
    };
    [
        variant("none", Plain, WriteBack::None, Fence::None),
        variant("dl", disk, WriteBack::None, Fence::None),
        variant("l", LOG, WriteBack::None, Fence::None),
        variant("l-ckpt", checkpoint, WriteBack::None, Fence::None),
        variant("lcm", LOG, Clflush, Mfence),
        variant("lcs", LOG, Clflush, Sfence),
        variant("icm", Interleaved, Clflush, Mfence),
        variant("ics", Interleaved, Clflush, Sfence),
        variant("tcm", Threading, Clflush, Mfence),
        variant("tcs", Threading, Clflush, Sfence),
        variant("im", Interleaved, WriteBack::None, Mfence),
        variant("ts", Threading, WriteBack::None, Sfence),
        variant("lcm-clwb", LOG, Clwb, Mfence),
        variant("lcs-clwb", LOG, Clwb, Sfence),
        variant("icm-clwb", Interleaved, Clwb, Mfence),
        variant("ics-clwb", Interleaved, Clwb, Sfence),
        variant("tcm-clwb", Threading, Clwb, Mfence),
        variant("tcs-clwb", Threading, Clwb, Sfence),
        variant("lnm-nt", LOG, Stream, Mfence),
        variant("lns-nt", LOG, Stream, Sfence),
        variant("inm-nt", Interleaved, Stream, Mfence),
        variant("ins-nt", Interleaved, Stream, Sfence),
        variant("tnm-nt", Threading, Stream, Mfence),
        variant("tns-nt", Threading, Stream, Sfence),
    ]
};

impl Variant {
    /// The program with this name.
    #[must_use]
    pub fn find(name: &str) -> Option<Variant> {
        ALL.into_iter().find(|variant| variant.name == name)
    }

    /// Cores it runs on.
    #[must_use]
    pub fn cores(self) -> usize {
        match self.method {
            Method::Threading | Method::Logging { checkpoint: true, .. } => 2,
            _ => 1,
        }
    }

    /// Versions of each string.
    pub(super) fn versions(self) -> u64 {
        match self.method {
            Method::Plain | Method::Logging { .. } => 1,
            Method::Interleaved => 2,
            Method::Threading => 3,
        }
    }

    /// Writes what is to be durable at the next fence, or what is written back before.
    pub(super) fn put(self, port: &mut Port<'_>, at: u64, bytes: &[u8]) {
        match self.write_back {
            WriteBack::Stream => port.stream_bytes(at, bytes),
            _ => port.store_bytes(at, bytes),
        }
    }

    /// Has lines written back, where the program does it by instructions.
    pub(super) fn write_back(self, port: &mut Port<'_>, at: u64, bytes: u64) {
        match self.write_back {
            WriteBack::Clflush => port.write_back(Kind::Flush, at, bytes),
            WriteBack::Clwb => port.write_back(Kind::Persist, at, bytes),
            WriteBack::None | WriteBack::Stream => {}
        }
    }

    pub(super) fn fence(self, port: &mut Port<'_>) {
        match self.fence {
            Fence::Sfence => port.fence(),
            Fence::Mfence => port.full_fence(),
            Fence::None => {}
        }
    }
}
