//! How a recorder works.

use super::Durability;

/// Files of an epoch that get a descriptor of their own; for more, whole file systems are synced.
pub(super) const OWN_MAX: usize = 256;

/// How a [`Recorder`](super::Recorder) works.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// What a checkpoint must survive.
    pub durability: Durability,
    /// The most bytes of records and copies; a change that needs more is refused with [`Error::Full`](super::Error::Full).
    pub bytes_max: u64,
    /// Above that many bytes an early checkpoint is asked for ([`Recorder::pressure`](super::Recorder::pressure)).
    pub pressure_bytes: u64,
    /// Whether the file system of the state makes changes of names durable in their order; `None` asks it.
    pub names_in_order: Option<bool>,
}

impl Options {
    /// A gigabyte at most, an early checkpoint asked for above 64 MiB.
    #[must_use]
    pub fn new(durability: Durability) -> Options {
        Options {
            durability,
            bytes_max: 1 << 30,
            pressure_bytes: 64 << 20,
            names_in_order: None,
        }
    }
}
