//! What goes between a process that shares an object and the one that has its region open: after a line of JSON each way
//! ([`crate::control_socket`]) frames, each with its bytes before it, 4 of them, little-endian.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// The most bytes of a frame: more than the arguments of a call or what one returns take.
const LONGEST: usize = 64 << 20;

/// What is asked.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Asked<'a> {
    /// A deferrable call. There is no answer.
    Defer(#[serde(borrow)] Made<'a>),
    /// An instant call.
    Instant(#[serde(borrow)] Made<'a>),
    /// One that changes nothing.
    Read(#[serde(borrow)] Made<'a>),
    /// That all calls so far are durable and run.
    Sync,
}

/// A call.
#[derive(Serialize, Deserialize, Debug)]
pub(super) struct Made<'a> {
    pub(super) function: u16,
    pub(super) lane: Option<u64>,
    pub(super) arguments: &'a [u8],
}

/// What came of it.
#[derive(Serialize, Deserialize, Debug)]
pub(super) enum Answer {
    /// What it returned, as in the log of a thread.
    Returned(Vec<u8>),
    Freed(String),
    Panicked {
        object: String,
        method: String,
        why: String,
    },
    /// Any other error.
    Failed(String),
    Full(String),
    Poisoned(String),
    Busy {
        inside: String,
        waiting: String,
        waited: Duration,
    },
    Log {
        file: String,
        why: String,
    },
}

impl From<Result<Vec<u8>>> for Answer {
    fn from(result: Result<Vec<u8>>) -> Answer {
        match result {
            Ok(returned) => Answer::Returned(returned),
            Err(Error::Freed { object }) => Answer::Freed(object),
            Err(Error::Panicked { object, method, why }) => Answer::Panicked { object, method, why },
            Err(Error::Full(why)) => Answer::Full(why),
            Err(Error::Poisoned(cause)) => Answer::Poisoned(cause.to_string()),
            Err(Error::Busy {
                inside,
                waiting,
                waited,
            }) => Answer::Busy {
                inside,
                waiting,
                waited,
            },
            Err(Error::Log { file, why }) => Answer::Log {
                file: file.to_string_lossy().into_owned(),
                why,
            },
            Err(error) => Answer::Failed(error.to_string()),
        }
    }
}

impl Answer {
    pub(super) fn result(self) -> Result<Vec<u8>> {
        match self {
            Answer::Returned(returned) => Ok(returned),
            Answer::Freed(object) => Err(Error::Freed { object }),
            Answer::Panicked { object, method, why } => Err(Error::Panicked { object, method, why }),
            Answer::Failed(why) => Err(Error::Invalid(why)),
            Answer::Full(why) => Err(Error::Full(why)),
            Answer::Poisoned(cause) => Err(Error::Poisoned(Arc::new(twinpage_core::Error::Invalid(cause)))),
            Answer::Busy {
                inside,
                waiting,
                waited,
            } => Err(Error::Busy {
                inside,
                waiting,
                waited,
            }),
            Answer::Log { file, why } => Err(Error::Log {
                file: file.into(),
                why,
            }),
        }
    }
}

fn invalid(why: impl ToString) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.to_string())
}

pub(super) fn send(mut to: impl Write, what: &impl Serialize) -> io::Result<()> {
    let mut frame = vec![0; 4];
    frame = postcard::to_extend(what, frame).map_err(invalid)?;
    let bytes = frame.len() - 4;
    if bytes > LONGEST {
        return Err(invalid(format!(
            "{bytes} bytes, where {LONGEST} can be sent at once"
        )));
    }
    frame[..4].copy_from_slice(&(bytes as u32).to_le_bytes());
    to.write_all(&frame)
}

/// The next frame, in `into`; false at the end.
pub(super) fn receive(mut from: impl Read, into: &mut Vec<u8>) -> io::Result<bool> {
    let mut bytes = [0; 4];
    if from.read(&mut bytes[..1])? == 0 {
        return Ok(false);
    }
    from.read_exact(&mut bytes[1..])?;
    let bytes = u32::from_le_bytes(bytes) as usize;
    if bytes > LONGEST {
        return Err(invalid(format!("a frame of {bytes} bytes")));
    }
    into.clear();
    // As much as comes, not as much as is said.
    from.take(bytes as u64).read_to_end(into)?;
    match into.len() == bytes {
        true => Ok(true),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

pub(super) fn decode<'a, T: Deserialize<'a>>(frame: &'a [u8]) -> io::Result<T> {
    postcard::from_bytes(frame).map_err(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received_and_anything_else_is_refused() {
        let made = || Made {
            function: 3,
            lane: Some(7),
            arguments: &[1, 0, 255],
        };
        let mut sent = Vec::new();
        send(&mut sent, &Asked::Defer(made())).unwrap();
        send(&mut sent, &Asked::Sync).unwrap();
        let (mut from, mut frame) = (&sent[..], Vec::new());
        assert!(receive(&mut from, &mut frame).unwrap());
        match decode(&frame).unwrap() {
            Asked::Defer(got) => assert_eq!(
                (got.function, got.lane, got.arguments),
                (3, Some(7), &[1, 0, 255][..])
            ),
            other => panic!("{other:?}"),
        }
        assert!(receive(&mut from, &mut frame).unwrap());
        assert!(matches!(decode(&frame).unwrap(), Asked::Sync));
        assert!(!receive(&mut from, &mut frame).unwrap());
        // Cut anywhere, too long, and bytes that are nothing.
        for end in 1..sent.len() {
            let mut from = &sent[..end];
            let all = std::iter::from_fn(|| {
                receive(&mut from, &mut frame)
                    .map(|more| more.then_some(()))
                    .transpose()
            });
            let whole = all.collect::<io::Result<Vec<()>>>();
            assert_eq!(whole.is_ok(), end == sent.len() - 5, "cut at {end}");
        }
        assert!(receive(&[255; 9][..], &mut frame).is_err());
        assert!(decode::<Asked<'_>>(&[9, 9, 9]).is_err());
    }

    /// An error arrives as the one it was.
    #[test]
    fn errors_keep_their_kind_and_what_they_say() {
        let object = || "pile".to_owned();
        let cause = || Arc::new(twinpage_core::Error::Invalid("the disk is gone".into()));
        let errors = [
            Error::Freed { object: object() },
            Error::Panicked {
                object: object(),
                method: "add".into(),
                why: "7".into(),
            },
            Error::Full("no room".into()),
            Error::Poisoned(cause()),
            Error::Busy {
                inside: "thread 7".into(),
                waiting: "thread 8".into(),
                waited: Duration::from_secs(1),
            },
            Error::Log {
                file: "pile.twin.log".into(),
                why: "it is cut".into(),
            },
            Error::Invalid("other".into()),
        ];
        for error in errors {
            let (kind, said) = (std::mem::discriminant(&error), error.to_string());
            let mut frame = Vec::new();
            send(&mut frame, &Answer::from(Err(error))).unwrap();
            let arrived = decode::<Answer>(&frame[4..]).unwrap().result().unwrap_err();
            assert_eq!(
                (std::mem::discriminant(&arrived), arrived.to_string()),
                (kind, said)
            );
        }
    }
}
