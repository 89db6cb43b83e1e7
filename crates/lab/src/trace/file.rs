//! A trace file: decompressed, its form recognised, its records given one by one.

use super::champsim::ChampSim;
use super::csv::{Csv, TITLE};
use super::dramsim3::DramSim3;
use super::error::{Error, Result};
use super::native::{MAGIC, NativeReader};
use super::ramulator::{Ramulator, RamulatorCore};
use super::{Form, Header, Lackey, Reader, Record};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const BUFFER_BYTES: usize = 1 << 16;
/// No form has a longer first line.
const AHEAD_BYTES: u64 = 1024;

/// A trace that is being read.
pub struct Trace {
    form: Form,
    reader: Box<dyn Reader>,
    progress: Progress,
}

/// How far reading has come, in bytes of the file as it is on the disk.
#[derive(Clone, Debug)]
pub struct Progress {
    read: Arc<AtomicU64>,
    total: u64,
}

impl Progress {
    /// Bytes read until now.
    #[must_use]
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the file; 0 where it is no ordinary file.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

struct Counted<R> {
    input: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(into)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Trace {
    /// Opens a file. Its form is told from its content where `form` is none; ChampSim's records have
    /// no mark and need a name with `champsim` in it, or `form`.
    pub fn open(path: &Path, form: Option<Form>) -> Result<Trace> {
        let name = path.display().to_string();
        let failed = |why| Error::Io {
            name: name.clone(),
            why,
        };
        let file = File::open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        if metadata.is_dir() {
            return Err(failed(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let progress = Progress {
            read: Arc::default(),
            total: if metadata.is_file() { metadata.len() } else { 0 },
        };
        let input = Counted {
            input: file,
            read: progress.read.clone(),
        };
        let (form, reader) = reader(
            &name,
            Box::new(BufReader::with_capacity(BUFFER_BYTES, input)),
            form,
        )?;
        Ok(Trace {
            form,
            reader,
            progress,
        })
    }

    /// Reads bytes that are already there, as if they were in a file called `name`.
    pub fn from_bytes(name: &str, bytes: Vec<u8>, form: Option<Form>) -> Result<Trace> {
        let progress = Progress {
            read: Arc::default(),
            total: bytes.len() as u64,
        };
        let input = Counted {
            input: io::Cursor::new(bytes),
            read: progress.read.clone(),
        };
        let (form, reader) = reader(name, Box::new(BufReader::new(input)), form)?;
        Ok(Trace {
            form,
            reader,
            progress,
        })
    }

    /// Its form.
    #[must_use]
    pub fn form(&self) -> Form {
        self.form
    }

    /// What holds for the whole trace.
    #[must_use]
    pub fn header(&self) -> &Header {
        self.reader.header()
    }

    /// How far reading has come.
    #[must_use]
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// The next record; none at the end.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        self.reader.next()
    }
}

impl Iterator for Trace {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Result<Record>> {
        self.reader.next().transpose()
    }
}

type Input = Box<dyn BufRead + Send>;

fn reader(name: &str, input: Input, form: Option<Form>) -> Result<(Form, Box<dyn Reader>)> {
    let mut input = ahead(decompress(name, ahead(input))?);
    let form = match form {
        Some(form) => form,
        None => recognise(name, input.as_mut())?,
    };
    let reader: Box<dyn Reader> = match form {
        Form::Native => Box::new(NativeReader::new(name, input)?),
        Form::ChampSim => Box::new(ChampSim::new(name, input)),
        Form::DramSim3 => Box::new(DramSim3::new(name, input)),
        Form::Ramulator => Box::new(Ramulator::new(name, input)),
        Form::RamulatorCore => Box::new(RamulatorCore::new(name, input)),
        Form::Lackey => Box::new(Lackey::new(name, input)),
        Form::Csv => Box::new(Csv::new(name, input)),
    };
    Ok((form, reader))
}

/// Reads the first bytes: a pipe may give them in pieces, and they are looked at together. An error that comes among them
/// is told behind those before it.
fn ahead(mut input: Input) -> Input {
    let mut begin = Vec::new();
    let failed = (&mut input).take(AHEAD_BYTES).read_to_end(&mut begin).err();
    Box::new(io::Cursor::new(begin).chain(Failed(failed)).chain(input))
}

/// An error in the place of bytes, once.
struct Failed(Option<io::Error>);

impl Read for Failed {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

impl BufRead for Failed {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.take().map_or(Ok(&[]), Err)
    }

    fn consume(&mut self, _: usize) {}
}

/// Puts a decompressor in front, where the first bytes ask for one.
fn decompress(name: &str, mut input: Input) -> Result<Input> {
    let failed = |why| Error::Io {
        name: name.to_owned(),
        why,
    };
    let begin = input.fill_buf().map_err(failed)?;
    Ok(if begin.starts_with(b"\x1f\x8b") {
        Box::new(BufReader::with_capacity(
            BUFFER_BYTES,
            flate2::bufread::MultiGzDecoder::new(input),
        ))
    } else if begin.starts_with(b"\xfd7zXZ\0") {
        Box::new(BufReader::with_capacity(
            BUFFER_BYTES,
            lzma_rust2::XzReader::new(input, true),
        ))
    } else if begin.starts_with(b"\x28\xb5\x2f\xfd") {
        let unpacked = zstd::stream::read::Decoder::with_buffer(input).map_err(failed)?;
        Box::new(BufReader::with_capacity(BUFFER_BYTES, unpacked))
    } else {
        input
    })
}

fn recognise(name: &str, input: &mut dyn BufRead) -> Result<Form> {
    let begin = input.fill_buf().map_err(|why| Error::Io {
        name: name.to_owned(),
        why,
    })?;
    let unknown = |what: &str| Error::Form {
        name: name.to_owned(),
        what: format!(
            "{what}; say its form, one of {}",
            Form::ALL.map(Form::name).join(", ")
        ),
    };
    if begin.is_empty() {
        return Err(unknown("an empty file is no trace of a form that could be told"));
    }
    if begin.starts_with(MAGIC) {
        return Ok(Form::Native);
    }
    if name.to_ascii_lowercase().contains("champsim") {
        return Ok(Form::ChampSim);
    }
    let line = begin.split(|&byte| byte == b'\n').next().unwrap_or_default();
    std::str::from_utf8(line)
        .ok()
        .and_then(|line| by_line(line.trim_end_matches('\r')))
        .ok_or_else(|| unknown("its first line is of no form known here"))
}

/// The form that has such a first line.
fn by_line(line: &str) -> Option<Form> {
    if line == TITLE {
        return Some(Form::Csv);
    }
    if ["==", "I  ", " L ", " S ", " M "]
        .iter()
        .any(|begin| line.starts_with(begin))
    {
        return Some(Form::Lackey);
    }
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        [_, "READ" | "WRITE", _] => Some(Form::DramSim3),
        ["LD" | "ST", _] => Some(Form::Ramulator),
        _ if line.split(',').count() == 3 => Some(Form::Csv),
        [_, _] | [_, _, _] if words.iter().all(|word| super::input::number(word).is_ok()) => {
            Some(Form::RamulatorCore)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow pipe may.
    struct Slow(io::Cursor<Vec<u8>>);

    impl Read for Slow {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let some = into.len().min(1);
            self.0.read(&mut into[..some])
        }
    }

    #[test]
    fn a_form_is_told_however_slowly_its_bytes_come() {
        use std::io::Write;
        let text = "I  04001000,4\n L 1ffe,8\n";
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        for bytes in [text.as_bytes().to_vec(), packed.finish().unwrap()] {
            let input = BufReader::new(Slow(io::Cursor::new(bytes)));
            let (form, mut reader) = reader("pipe", Box::new(input), None).unwrap();
            assert_eq!(form, Form::Lackey);
            assert!(reader.next().unwrap().is_some() && reader.next().unwrap().is_none());
        }
    }
}
