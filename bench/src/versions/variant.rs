//! The variants: the paper's names (4), those it could not run, and the peers.

use clap::ValueEnum;
use twinpage_os::direct::Instructions;
use twinpage_os::flush::{Fence, WriteBack};

/// A variant of SPS.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
#[rustfmt::skip]
pub(crate) enum Variant {
    /// Redo log, written to a file on a disk whenever it is full.
    Dl,
    /// Redo log in memory, no flush and no fence: the baseline.
    L,
    /// The same, with a checkpoint of the array whenever the log is full (Figure 1).
    LCkpt,
    Lcm, Lcs,
    Icm, Ics,
    Tcm, Tcs,
    /// Interleaved, `mfence` and no flush (4.2).
    Im,
    /// Threading, `sfence` and no flush (4.2).
    Ts,
    LcmClwb, LcsClwb,
    IcmClwb, IcsClwb,
    TcmClwb, TcsClwb,
    // With non-temporal stores.
    LnmNt, LnsNt,
    InmNt, InsNt,
    TnmNt, TnsNt,
    /// The stores, write-backs and fences of an interleaved swap and nothing else: no array is faster.
    Bare, BareClwb,
    /// Threading, each swap durable before the next: for the peers.
    TcsClwbEach,
    Pmemobj,
    Msync,
    /// A region of sections, each swap durable before the next.
    RegionSections,
    /// A region with a checkpoint every 16 ms.
    Region16ms,
}

/// What a variant executes to make something durable, by name.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) write_back: Option<&'static str>,
    pub(crate) fence: Option<&'static str>,
}

/// Which program a variant is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    DiskLogging,
    Logging {
        checkpoint: bool,
    },
    Interleaved,
    Bare,
    /// Whether each swap is durable before the next.
    Threading {
        each: bool,
    },
    Pmemobj,
    Msync,
    Sections,
    Region,
}

impl Variant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Variant::Dl => "dl",
            Variant::L => "l",
            Variant::LCkpt => "l-ckpt",
            Variant::Lcm => "lcm",
            Variant::Lcs => "lcs",
            Variant::Icm => "icm",
            Variant::Ics => "ics",
            Variant::Tcm => "tcm",
            Variant::Tcs => "tcs",
            Variant::Im => "im",
            Variant::Ts => "ts",
            Variant::LcmClwb => "lcm-clwb",
            Variant::LcsClwb => "lcs-clwb",
            Variant::IcmClwb => "icm-clwb",
            Variant::IcsClwb => "ics-clwb",
            Variant::TcmClwb => "tcm-clwb",
            Variant::TcsClwb => "tcs-clwb",
            Variant::LnmNt => "lnm-nt",
            Variant::LnsNt => "lns-nt",
            Variant::InmNt => "inm-nt",
            Variant::InsNt => "ins-nt",
            Variant::TnmNt => "tnm-nt",
            Variant::TnsNt => "tns-nt",
            Variant::Bare => "bare",
            Variant::BareClwb => "bare-clwb",
            Variant::TcsClwbEach => "tcs-clwb-each",
            Variant::Pmemobj => "pmemobj",
            Variant::Msync => "msync",
            Variant::RegionSections => "region-sections",
            Variant::Region16ms => "region16ms",
        }
    }

    #[rustfmt::skip]
    pub(crate) fn program(self) -> Program {
        use Variant as V;
        match self {
            V::Dl => Program::DiskLogging,
            V::L | V::Lcm | V::Lcs | V::LcmClwb | V::LcsClwb | V::LnmNt | V::LnsNt => {
                Program::Logging { checkpoint: false }
            }
            V::LCkpt => Program::Logging { checkpoint: true },
            V::Icm | V::Ics | V::Im | V::IcmClwb | V::IcsClwb | V::InmNt | V::InsNt => Program::Interleaved,
            V::Tcm | V::Tcs | V::Ts | V::TcmClwb | V::TcsClwb | V::TnmNt | V::TnsNt => {
                Program::Threading { each: false }
            }
            V::Bare | V::BareClwb => Program::Bare,
            V::TcsClwbEach => Program::Threading { each: true },
            V::Pmemobj => Program::Pmemobj,
            V::Msync => Program::Msync,
            V::RegionSections => Program::Sections,
            V::Region16ms => Program::Region,
        }
    }

    /// The instructions of the variants that choose theirs.
    #[rustfmt::skip]
    pub(crate) fn chosen(self) -> Instructions {
        use Variant as V;
        let write_back = match self {
            V::Lcm | V::Lcs | V::Icm | V::Ics | V::Tcm | V::Tcs | V::Bare => Some(WriteBack::Clflush),
            V::LcmClwb | V::LcsClwb | V::IcmClwb | V::IcsClwb | V::TcmClwb | V::TcsClwb | V::TcsClwbEach
            | V::BareClwb => {
                Some(WriteBack::Clwb)
            }
            _ => None,
        };
        let fence = match self {
            V::Lcm | V::Icm | V::Tcm | V::Im | V::LcmClwb | V::IcmClwb | V::TcmClwb
            | V::LnmNt | V::InmNt | V::TnmNt => Some(Fence::Mfence),
            V::Lcs | V::Ics | V::Tcs | V::Ts | V::LcsClwb | V::IcsClwb | V::TcsClwb | V::TcsClwbEach
            | V::Bare | V::BareClwb | V::LnsNt | V::InsNt | V::TnsNt => Some(Fence::Sfence),
            _ => None,
        };
        let streams = matches!(self, V::LnmNt | V::LnsNt | V::InmNt | V::InsNt | V::TnmNt | V::TnsNt);
        Instructions { write_back, fence, streams }
    }

    pub(crate) fn instructions(self) -> Named {
        let chosen = self.chosen();
        Named {
            write_back: match chosen.write_back {
                Some(WriteBack::Clwb) => Some("clwb"),
                Some(WriteBack::Clflushopt) => Some("clflushopt"),
                Some(WriteBack::Clflush) => Some("clflush"),
                None if chosen.streams => Some("non-temporal"),
                None => None,
            },
            fence: chosen.fence.map(|fence| match fence {
                Fence::Sfence => "sfence",
                Fence::Mfence => "mfence",
            }),
        }
    }

    pub(crate) fn durability(self) -> &'static str {
        match self.program() {
            Program::DiskLogging => "log on disk when full",
            Program::Logging { checkpoint: true } => "none",
            Program::Logging { .. } | Program::Interleaved if self.chosen().fence.is_none() => "none",
            Program::Logging { .. } | Program::Interleaved => "each swap",
            Program::Threading { each: false } => "threshold",
            Program::Bare
            | Program::Threading { each: true }
            | Program::Pmemobj
            | Program::Msync
            | Program::Sections => "each swap",
            Program::Region => "16ms",
        }
    }

    /// Whether its file lies on a disk.
    pub(crate) fn is_on_disk(self) -> bool {
        self == Variant::Dl
    }

    /// Whether it needs what a machine may not have: a library, an instruction.
    pub(crate) fn may_be_absent(self) -> bool {
        self == Variant::Pmemobj || self.chosen().write_back == Some(WriteBack::Clwb)
    }
}
