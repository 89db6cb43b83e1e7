//! What a checkpoint keeps of the standard streams.
//!
//! Small when nothing was printed: bytes are in the logs of the state directory, and the context
//! says which of them this checkpoint covers. Only where a log would have to be flushed for a few
//! bytes does the context hold the bytes themselves.

use super::log::Kept;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a checkpoint keeps of the standard streams. Stored with each epoch; given back to
/// [`super::Stdio::resume`].
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StdioContext {
    /// For file descriptors 0, 1 and 2: which channel they are an end of; `None` where the program
    /// has the file itself.
    pub(super) fds: [Option<u8>; 3],
    /// The channels: pipes and pseudo-terminals whose other end is held here.
    pub(super) channels: Vec<ChannelContext>,
    /// The input of the program, when it is relayed.
    pub(super) input: Option<InputContext>,
}

/// One pipe or pseudo-terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ChannelContext {
    /// A pseudo-terminal's state; `None` for a pipe.
    pub(super) terminal: Option<TerminalContext>,
    /// What the program printed to it; `None` for the pipe of standard input.
    pub(super) output: Option<OutputContext>,
}

/// What a program printed, as positions in the stream of all it ever printed there.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct OutputContext {
    /// Bytes known to be outside for good when the epoch stopped.
    pub(super) safe: u64,
    /// Bytes printed up to this epoch.
    pub(super) end: u64,
    /// The last of them, when the log is not flushed for their sake.
    #[serde(default, with = "text", skip_serializing_if = "Vec::is_empty")]
    pub(super) tail: Vec<u8>,
    /// The program closed it.
    pub(super) closed: bool,
    /// The running sums of the stream at `safe` and `end`; earlier builds wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sums: Option<[u32; 2]>,
}

impl OutputContext {
    /// What is needed of its log.
    pub(super) fn kept(&self) -> Kept<'_> {
        Kept {
            floor: self.safe,
            end: self.end,
            tail: &self.tail,
            sums: self.sums,
        }
    }
}

/// How far a program read.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub(super) struct InputContext {
    /// Bytes of the input that left the log: the program consumed them, or they are in `queue`.
    pub(super) fed: u64,
    /// Bytes of the input known to be in the log.
    pub(super) end: u64,
    /// The last of them, when the log is not flushed for their sake.
    #[serde(default, with = "text", skip_serializing_if = "Vec::is_empty")]
    pub(super) tail: Vec<u8>,
    /// The input ends at `end`.
    pub(super) eof: bool,
    /// A pseudo-terminal was told so, by its end-of-file character.
    pub(super) told: bool,
    /// The running sums of the stream at `fed` and `end`; earlier builds wrote none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sums: Option<[u32; 2]>,
}

impl InputContext {
    /// What is needed of its log.
    pub(super) fn kept(&self) -> Kept<'_> {
        Kept {
            floor: self.fed,
            end: self.end,
            tail: &self.tail,
            sums: self.sums,
        }
    }
}

/// The state of a pseudo-terminal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct TerminalContext {
    pub(super) modes: Modes,
    /// Rows, columns, horizontal and vertical pixels.
    pub(super) size: [u16; 4],
    /// What was typed and not yet read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) queue: Vec<Typed>,
}

/// A piece of a terminal's input queue, as the line discipline left it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Typed {
    #[serde(with = "text")]
    pub(crate) bytes: Vec<u8>,
    pub(crate) end: LineEnd,
}

/// How a piece of a terminal's input ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum LineEnd {
    /// By a line end, which is its last byte.
    Line,
    /// By an end-of-file character, which is not in the bytes.
    Eof,
    /// Not yet: a line in the making, or a terminal that knows no lines.
    Open,
}

/// Terminal modes, termios(3); the numbers are the kernel's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Modes {
    pub(super) iflag: u32,
    pub(super) oflag: u32,
    pub(super) cflag: u32,
    pub(super) lflag: u32,
    pub(super) line: u8,
    pub(super) cc: [u8; 19],
    pub(super) ispeed: u32,
    pub(super) ospeed: u32,
}

/// Bytes as a string of the characters U+0000 to U+00FF in text formats: JSON would otherwise spell
/// every byte as a number.
mod text {
    use super::{Deserialize, Deserializer, Serialize, Serializer};
    use serde::de::Error;

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            to.collect_str(&bytes.iter().map(|&b| char::from(b)).collect::<String>())
        } else {
            bytes.serialize(to)
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        if !from.is_human_readable() {
            return Vec::deserialize(from);
        }
        String::deserialize(from)?
            .chars()
            .map(|c| u8::try_from(u32::from(c)).map_err(|_| D::Error::custom("not a byte")))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_json() {
        let typed = Typed {
            bytes: (0..=255).collect(),
            end: LineEnd::Open,
        };
        let json = serde_json::to_string(&typed).unwrap();
        assert_eq!(serde_json::from_str::<Typed>(&json).unwrap(), typed);
        assert!(serde_json::from_str::<Typed>(r#"{"bytes":"\u0100","end":"Open"}"#).is_err());
    }

    #[test]
    fn an_idle_context_is_small() {
        let output = OutputContext {
            safe: 123_456,
            end: 123_456,
            tail: vec![],
            closed: false,
            sums: Some([u32::MAX; 2]),
        };
        let channel = ChannelContext {
            terminal: None,
            output: Some(output),
        };
        let context = StdioContext {
            fds: [None, Some(0), Some(1)],
            channels: vec![channel.clone(), channel],
            input: None,
        };
        assert!(serde_json::to_vec(&context).unwrap().len() < 300);
    }
}
