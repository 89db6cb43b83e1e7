//! Paths kept as their bytes, for serde: a name need not be UTF-8. Where the format is not for people, the
//! bytes of a path that is UTF-8 are the same as those of the string.

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserializer, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

pub(crate) fn serialize<S: Serializer>(path: &Path, into: S) -> Result<S::Ok, S::Error> {
    into.serialize_bytes(path.as_os_str().as_bytes())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<PathBuf, D::Error> {
    from.deserialize_byte_buf(Bytes)
}

struct Bytes;

impl<'de> Visitor<'de> for Bytes {
    type Value = PathBuf;

    fn expecting(&self, into: &mut fmt::Formatter<'_>) -> fmt::Result {
        into.write_str("the bytes of a path")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<PathBuf, E> {
        self.visit_byte_buf(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<PathBuf, E> {
        Ok(OsString::from_vec(bytes).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<PathBuf, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = from.next_element()? {
            bytes.push(byte);
        }
        self.visit_byte_buf(bytes)
    }
}

/// Several of them.
pub(crate) mod list {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::path::PathBuf;

    #[derive(Serialize, Deserialize)]
    struct One(#[serde(with = "super")] PathBuf);

    pub(crate) fn serialize<S: Serializer>(paths: &[PathBuf], into: S) -> Result<S::Ok, S::Error> {
        into.collect_seq(paths.iter().cloned().map(One))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
        Ok(Vec::<One>::deserialize(from)?
            .into_iter()
            .map(|one| one.0)
            .collect())
    }
}
