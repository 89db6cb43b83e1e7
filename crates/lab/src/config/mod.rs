//! Configuration files of machines.
//!
//! * Unknown keys, numbers without units and values that cannot be are errors, never ignored.
//! * Every table names the `source` of its values; a value may name its own.

pub(crate) mod layers;
pub mod machine;
pub(crate) mod processor;

use crate::text::{ConfigError, SourceText};
use layers::Kind;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A machine that a file describes.
pub trait Described: Serialize + Sized {
    /// What its file says.
    #[doc(hidden)]
    type File: DeserializeOwned;

    /// Files of its kind.
    #[doc(hidden)]
    const KIND: Kind;

    /// The machine of what its file says.
    #[doc(hidden)]
    fn resolve(source: SourceText<'_>, said: Self::File) -> Result<Self, ConfigError>;

    /// A built-in machine by name, or a machine file by its path.
    ///
    /// # Errors
    /// Neither; or what is wrong with the file, and in which line.
    fn find(name: &str) -> Result<Self, ConfigError> {
        Self::with(name, &[])
    }

    /// The same with single values set, each as `cpu.cores=2`.
    ///
    /// # Errors
    /// As [`Described::find`]; a value that cannot be.
    fn with(name: &str, set: &[String]) -> Result<Self, ConfigError> {
        Self::KIND.read(name, set)
    }

    /// The machine a text describes; `file` is for errors.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let source = SourceText { file, text };
        Self::resolve(source, source.read()?)
    }

    /// All of it as JSON: what the hash is of.
    #[must_use]
    fn resolved(&self) -> String {
        serde_json::to_string(self).expect("plain data")
    }

    /// A short name for exactly this machine.
    #[must_use]
    fn hash(&self) -> String {
        hash(&self.resolved())
    }
}

/// A short name for the exact content of a resolved configuration: 16 hexadecimal digits.
#[must_use]
pub fn hash(resolved: &str) -> String {
    format!("{:016x}", hash_more(HASH_BEGIN, resolved.as_bytes()))
}

/// The hash of nothing.
pub(crate) const HASH_BEGIN: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash with more bytes in it: FNV-1a, the same on every machine; not meant against forgery.
pub(crate) fn hash_more(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
