//! The steps of a run on the files of a folder, recorded by strace(1), and those files as a power cut at any instant
//! leaves them.
//!
//! * What was flushed is there. Of what was written since, each atom of 512 bytes is there or not.
//! * A flush is of the writes that had begun when it began: bytes that another process has read were written, whenever the
//!   call returned.
//! * Names and sizes are there at once: a file system keeps their order in its journal.

use crate::support::traced;
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::panic::RefUnwindSafe;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const ATOM: usize = 512;
const CALLS: &str = "trace=openat,rename,renameat2,symlink,symlinkat,unlink,unlinkat,ftruncate,fallocate,write,pwrite64,\
                     pwritev,pwritev2,fsync,fdatasync,mmap,msync,io_uring_enter,linkat,copy_file_range,sendfile";

/// One step of a run. Times are lines of the trace.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Step {
    Create(String),
    Link(String, PathBuf),
    Rename(String, String),
    Remove(String),
    Resize(String, usize),
    Write(String, Write),
    Flush { name: String, began: usize },
    Said(String),
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Write {
    at: usize,
    bytes: Vec<u8>,
    began: usize,
}

/// Runs one test of this binary alone, and records its steps on the files of `folder` and the lines it prints. `None`,
/// with a message, where strace is missing.
pub(crate) fn record(test: &str, folder: &Path, variable: (&str, &OsStr)) -> Option<Vec<Step>> {
    let options = ["--seccomp-bpf", "-y", "-v", "-xx", "-s", "16777216", "-e", CALLS];
    let trace = traced(test, &[variable], &options)?;
    let (mut begun, mut steps) = (HashMap::new(), Vec::new());
    for (line, text) in trace.lines().enumerate() {
        let (thread, text) = text.split_once(' ').unwrap();
        let text = text.trim_start();
        if let Some(first) = text.strip_suffix(" <unfinished ...>") {
            begun.insert(thread.to_owned(), (line, first.to_owned()));
        } else if text.starts_with("<... ") {
            let (began, first) = begun.remove(thread).unwrap();
            let rest = text.split_once("resumed>").unwrap().1;
            steps.extend(step(folder, began, line, &(first + rest)));
        } else {
            steps.extend(step(folder, line, line, text));
        }
    }
    // Those that change memory count from their beginning, the others from their end.
    steps.sort_by_key(|(time, _)| *time);
    Some(steps.into_iter().map(|(_, step)| step).collect())
}

/// Cuts the power at `wanted` instants of a run. `look` gets the files after each cut, and the last number that was
/// printed before it. The first of `files` is there from the first look on. If the flushes of one of them do nothing, a look fails.
pub(crate) fn survives_cuts(
    run: &[Step],
    files: &[&str],
    wanted: usize,
    look: impl Fn(&TempDir, Option<u64>) + RefUnwindSafe,
) {
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let cuts =
        cut(run, files[0], wanted, &mut random, &look).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    println!("{cuts} power cuts in {} steps", run.len());
    assert!(cuts > wanted / 2, "seed {seed}: {cuts} power cuts");
    for file in files {
        let is_flush = |step: &Step| matches!(step, Step::Flush { name, .. } if name == file);
        let without: Vec<Step> = run.iter().filter(|step| !is_flush(step)).cloned().collect();
        let found = (0..10).any(|_| cut(&without, files[0], wanted, &mut random, &look).is_err());
        assert!(
            found,
            "seed {seed}: {file} is never flushed, and nothing shows it"
        );
    }
}

/// How many power cuts there were.
fn cut(
    run: &[Step],
    first: &str,
    wanted: usize,
    random: &mut fastrand::Rng,
    look: &(impl Fn(&TempDir, Option<u64>) + RefUnwindSafe),
) -> Result<usize, String> {
    let is_first = |step: &Step| matches!(step, Step::Rename(_, name) | Step::Create(name) if name == first);
    let mut left = run.len() - run.iter().position(is_first).unwrap_or(0);
    let (mut folder, mut last, mut cuts) = (Folder::default(), None, 0);
    for (at, step) in run.iter().enumerate() {
        folder.take(step);
        if let Step::Said(text) = step {
            last = text
                .split_whitespace()
                .last()
                .and_then(|word| word.parse().ok())
                .or(last);
        }
        if !folder.names.contains_key(first) {
            continue;
        }
        // `wanted` of the steps, each with the same probability.
        let is_chosen = random.usize(..left.max(1)) < wanted - cuts;
        left = left.saturating_sub(1);
        if !is_chosen {
            continue;
        }
        cuts += 1;
        let remains = tempfile::tempdir().unwrap();
        folder.leave(remains.path(), random);
        let looked = std::panic::catch_unwind(|| look(&remains, last));
        looked.map_err(|_| format!("step {at} of {} of the run, {last:?} was printed", run.len()))?;
    }
    Ok(cuts)
}

/// The step of a call that began and returned at these lines, if it did something in the folder, and when it is seen.
fn step(folder: &Path, began: usize, returned: usize, call: &str) -> Option<(usize, Step)> {
    let (call, result) = call.rsplit_once(" = ")?;
    let result: usize = result.split(['<', ' ']).next()?.parse().ok()?;
    let (call, arguments) = call.trim_end().strip_suffix(')')?.split_once('(')?;
    let name = |path: Vec<u8>| {
        let path = PathBuf::from(String::from_utf8(path).ok()?);
        Some(path.strip_prefix(folder).ok()?.to_str()?.to_owned()).filter(|name| !name.is_empty())
    };
    let descriptor = || name(hex(arguments.split(['<', '>']).nth(1)?));
    let mut texts = arguments.split('"').skip(1).step_by(2);
    let mut named = || name(hex(texts.next()?));
    let last = || arguments.rsplit(", ").next()?.parse::<usize>().ok();
    let flag = |flag: &str| arguments.contains(flag);
    let at_end = match call {
        "openat" => {
            let name = named().filter(|_| flag("O_CREAT"))?;
            assert!(flag("O_EXCL"), "{name} is opened in a way that is not followed");
            Step::Create(name)
        }
        "symlink" | "symlinkat" => {
            let target = String::from_utf8(hex(arguments.split('"').nth(1)?)).ok()?;
            let name = name(hex(arguments.split('"').nth(3)?))?;
            Step::Link(name, target.into())
        }
        "rename" | "renameat2" => Step::Rename(named()?, named()?),
        "unlink" | "unlinkat" => Step::Remove(named()?),
        "ftruncate" => Step::Resize(descriptor()?, last()?),
        "fsync" | "fdatasync" => Step::Flush {
            name: descriptor()?,
            began,
        },
        "fallocate" if flag("KEEP_SIZE") && !flag("PUNCH_HOLE") => return None,
        "fallocate" => {
            assert!(flag("PUNCH_HOLE"), "{arguments}");
            let mut numbers = arguments.rsplit(", ").map_while(|number| number.parse().ok());
            let (bytes, at): (usize, usize) = (numbers.next()?, numbers.next()?);
            let bytes = vec![0; bytes];
            return Some((began, Step::Write(descriptor()?, Write { at, bytes, began })));
        }
        "write" if arguments.starts_with("1<") => Step::Said(String::from_utf8(hex(texts.next()?)).ok()?),
        "pwrite64" | "pwritev" | "pwritev2" => {
            let (at, mut bytes) = (last()?, texts.flat_map(hex).collect::<Vec<_>>());
            let read = bytes.len();
            assert!(read >= result && call != "pwritev2", "{call}: {read} bytes");
            bytes.truncate(result);
            return Some((began, Step::Write(descriptor()?, Write { at, bytes, began })));
        }
        "mmap" if !(flag("MAP_SHARED") && flag("PROT_WRITE")) => return None,
        _ => {
            let of_the_folder = descriptor();
            assert_eq!(of_the_folder, None, "{call} is not followed");
            return None;
        }
    };
    Some((returned, at_end))
}

/// The bytes of a string as `strace -xx` prints it.
fn hex(text: &str) -> Vec<u8> {
    let digits = text.split("\\x").skip(1);
    digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect()
}

/// A folder after some steps.
#[derive(Default)]
struct Folder {
    names: BTreeMap<String, Named>,
    contents: Vec<Contents>,
}

enum Named {
    File(usize),
    Link(PathBuf),
}

#[derive(Default)]
struct Contents {
    flushed: Vec<u8>,
    written: Vec<Write>,
}

impl Folder {
    fn take(&mut self, step: &Step) {
        match step {
            Step::Create(name) => {
                self.names.insert(name.clone(), Named::File(self.contents.len()));
                self.contents.push(Contents::default());
            }
            Step::Link(name, target) => drop(self.names.insert(name.clone(), Named::Link(target.clone()))),
            Step::Rename(from, to) => {
                let named = self.names.remove(from).unwrap();
                self.names.insert(to.clone(), named);
            }
            Step::Remove(name) => drop(self.names.remove(name)),
            Step::Resize(name, bytes) => {
                let contents = self.contents(name);
                contents.flushed.resize(*bytes, 0);
                contents
                    .written
                    .iter_mut()
                    .for_each(|write| write.bytes.truncate(bytes.saturating_sub(write.at)));
            }
            Step::Write(name, write) => self.contents(name).written.push(write.clone()),
            Step::Flush { name, began } => {
                let contents = self.contents(name);
                let written = std::mem::take(&mut contents.written).into_iter();
                let (done, rest): (Vec<_>, Vec<_>) = written.partition(|write| write.began < *began);
                contents.written = rest;
                for write in &done {
                    write.into(&mut contents.flushed, || true);
                }
            }
            Step::Said(_) => {}
        }
    }

    fn contents(&mut self, name: &str) -> &mut Contents {
        match self.names.get(name) {
            Some(Named::File(number)) => &mut self.contents[*number],
            _ => panic!("{name} is no file of the folder"),
        }
    }

    /// The files as a power cut leaves them: a share of what is not flushed is there.
    fn leave(&self, folder: &Path, random: &mut fastrand::Rng) {
        for (name, named) in &self.names {
            match named {
                // A link is to a file beside it.
                Named::Link(target) => {
                    let file = folder.join(target.file_name().unwrap());
                    symlink(file, folder.join(name)).unwrap();
                }
                Named::File(number) => {
                    let contents = &self.contents[*number];
                    let (mut bytes, share) = (contents.flushed.clone(), random.u8(..));
                    for write in &contents.written {
                        write.into(&mut bytes, || random.u8(..) <= share);
                    }
                    write_file(&folder.join(name), &bytes);
                }
            }
        }
    }
}

impl Write {
    /// Puts each atom that `is_there` into the contents.
    fn into(&self, contents: &mut Vec<u8>, mut is_there: impl FnMut() -> bool) {
        contents.resize(contents.len().max(self.at + self.bytes.len()), 0);
        let (mut at, mut rest) = (self.at, &self.bytes[..]);
        while !rest.is_empty() {
            let (atom, later) = rest.split_at((ATOM - at % ATOM).min(rest.len()));
            if is_there() {
                contents[at..at + atom.len()].copy_from_slice(atom);
            }
            (at, rest) = (at + atom.len(), later);
        }
    }
}

/// Zeros are left out: most of these files are holes.
fn write_file(path: &Path, bytes: &[u8]) {
    let file = File::create_new(path).unwrap();
    file.set_len(bytes.len() as u64).unwrap();
    for (number, part) in bytes.chunks(1 << 16).enumerate() {
        if part.iter().any(|&byte| byte != 0) {
            file.write_all_at(part, (number as u64) << 16).unwrap();
        }
    }
}
