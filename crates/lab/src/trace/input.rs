//! Text and binary input that knows where it is, for errors that name the place.

use super::error::{Error, Position, Result};
use std::io::{self, BufRead, Read};

/// No form has longer lines.
const LINE_BYTES: u64 = 1024;

/// Lines of a text, numbered.
pub(crate) struct Lines<R> {
    input: R,
    name: String,
    line: u64,
    buffer: Vec<u8>,
}

impl<R: BufRead> Lines<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        Lines {
            input,
            name: name.to_owned(),
            line: 0,
            buffer: Vec::with_capacity(LINE_BYTES as usize),
        }
    }

    /// The next line, without its end; none at the end of the text.
    pub(crate) fn advance(&mut self) -> Result<Option<&str>> {
        self.buffer.clear();
        let read = (&mut self.input)
            .take(LINE_BYTES)
            .read_until(b'\n', &mut self.buffer)
            .map_err(|why| Error::Io {
                name: self.name.clone(),
                why,
            })?;
        if read == 0 {
            return Ok(None);
        }
        self.line += 1;
        if self.buffer.last() == Some(&b'\n') {
            self.buffer.pop();
        } else if read as u64 == LINE_BYTES {
            return Err(self.refuse(format!("longer than {LINE_BYTES} bytes, so no line of a trace")));
        }
        if self.buffer.last() == Some(&b'\r') {
            self.buffer.pop();
        }
        match std::str::from_utf8(&self.buffer) {
            Ok(_) => Ok(Some(self.text())),
            Err(_) => Err(self.refuse("holds bytes that are not text")),
        }
    }

    /// The line that [`Self::advance`] found.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.buffer).unwrap_or_default()
    }

    /// An error at this line.
    pub(crate) fn refuse(&self, what: impl Into<String>) -> Error {
        Error::Refused {
            name: self.name.clone(),
            place: Position::Line(self.line),
            what: what.into(),
        }
    }
}

/// Bytes, counted.
pub(crate) struct Bytes<R> {
    input: R,
    name: String,
    at: u64,
}

impl<R: Read> Bytes<R> {
    pub(crate) fn new(name: &str, input: R) -> Self {
        Bytes {
            input,
            name: name.to_owned(),
            at: 0,
        }
    }

    /// The offset of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Fills `into`, or as much of it as there is; the number of bytes is less only at the end.
    pub(crate) fn fill(&mut self, into: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        while filled < into.len() {
            match self.input.read(&mut into[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(why) if why.kind() == io::ErrorKind::Interrupted => {}
                Err(why) => {
                    return Err(Error::Io {
                        name: self.name.clone(),
                        why,
                    });
                }
            }
        }
        self.at += filled as u64;
        Ok(filled)
    }

    /// Fills all of `into`.
    pub(crate) fn exact(&mut self, into: &mut [u8], what: &str) -> Result<()> {
        let from = self.at;
        let filled = self.fill(into)?;
        if filled < into.len() {
            return Err(self.refuse(
                from,
                format!(
                    "ends inside {what}: {} bytes expected, {filled} there",
                    into.len()
                ),
            ));
        }
        Ok(())
    }

    /// An error at an offset.
    pub(crate) fn refuse(&self, at: u64, what: impl Into<String>) -> Error {
        Error::Refused {
            name: self.name.clone(),
            place: Position::Byte(at),
            what: what.into(),
        }
    }
}

/// A number as traces write them: hexadecimal after `0x`, else decimal.
pub(crate) fn number(text: &str) -> std::result::Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => hexadecimal(digits),
        None if text.bytes().all(|digit| digit.is_ascii_digit()) => text.parse().ok(),
        None => None,
    };
    parsed.ok_or_else(|| format!("{text:?} is no number of 64 bits, decimal or hexadecimal after 0x"))
}

/// Hexadecimal digits without a prefix.
pub(crate) fn hexadecimal(digits: &str) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let mut value = 0;
    for digit in digits.bytes() {
        value = value << 4 | u64::from(char::from(digit).to_digit(16)?);
    }
    Some(value)
}
