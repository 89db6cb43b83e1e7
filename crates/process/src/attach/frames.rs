//! What keepers and attached terminals send each other, on a stream socket of one machine and one build.
//!
//! ```text
//!  0      1         3
//!  | kind | length  | bytes
//!  | u8   | u16     |
//! ```

use std::io::{self, Write};

/// The most bytes in a frame.
pub(super) const MOST: usize = 16 << 10;
const HEAD: usize = 3;

/// One message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Frame {
    /// To the keeper: keys. From it: what the program prints.
    Bytes(Vec<u8>),
    /// To the keeper: rows, columns, and both in pixels.
    Size([u16; 4]),
    /// From the keeper: twinpage ended, with this exit code.
    Ended(u8),
    /// From the keeper: this terminal took too little, and is let go.
    TooSlow,
}

const BYTES: u8 = 0;
const SIZE: u8 = 1;
const ENDED: u8 = 2;
const TOO_SLOW: u8 = 3;

impl Frame {
    /// Adds the frame to `into`.
    pub(super) fn put(&self, into: &mut impl Write) -> io::Result<()> {
        match self {
            Frame::Bytes(bytes) => bytes.chunks(MOST).try_for_each(|chunk| put(into, BYTES, chunk)),
            Frame::Size(size) => {
                let bytes: Vec<u8> = size.iter().flat_map(|number| number.to_le_bytes()).collect();
                put(into, SIZE, &bytes)
            }
            Frame::Ended(code) => put(into, ENDED, &[*code]),
            Frame::TooSlow => put(into, TOO_SLOW, &[]),
        }
    }
}

fn put(into: &mut impl Write, kind: u8, bytes: &[u8]) -> io::Result<()> {
    into.write_all(&[kind])?;
    into.write_all(&(bytes.len() as u16).to_le_bytes())?;
    into.write_all(bytes)
}

/// Takes the first frame off `from`; `None` while it is not whole.
///
/// # Errors
/// When there is no frame of this form.
pub(super) fn take(from: &mut Vec<u8>) -> io::Result<Option<Frame>> {
    let Some(&[kind, low, high]) = from.first_chunk::<HEAD>() else {
        return Ok(None);
    };
    let end = HEAD + usize::from(u16::from_le_bytes([low, high]));
    if from.len() < end {
        return Ok(None);
    }
    let bytes: Vec<u8> = from.drain(..end).skip(HEAD).collect();
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("a frame of kind {kind}"));
    let frame = match (kind, bytes.as_slice()) {
        (BYTES, _) => Frame::Bytes(bytes),
        (SIZE, &[a, b, c, d, e, f, g, h]) => {
            Frame::Size([[a, b], [c, d], [e, f], [g, h]].map(u16::from_le_bytes))
        }
        (ENDED, &[code]) => Frame::Ended(code),
        (TOO_SLOW, []) => Frame::TooSlow,
        _ => return Err(damaged()),
    };
    Ok(Some(frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let frames = [
            Frame::Bytes(b"keys".to_vec()),
            Frame::Size([24, 80, 1000, 65535]),
            Frame::Bytes(vec![7; MOST]),
            Frame::Ended(130),
            Frame::TooSlow,
        ];
        let mut sent = Vec::new();
        frames.iter().for_each(|frame| frame.put(&mut sent).unwrap());
        for step in [1, 2, 3, 1000, sent.len()] {
            let (mut held, mut got) = (Vec::new(), Vec::new());
            for piece in sent.chunks(step) {
                held.extend_from_slice(piece);
                while let Some(frame) = take(&mut held).unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, frames);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        for bytes in [&[9, 0, 0][..], &[SIZE, 1, 0, 0], &[ENDED, 0, 0]] {
            take(&mut bytes.to_vec()).unwrap_err();
        }
    }
}
