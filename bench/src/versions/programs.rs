//! The programs: swaps of two random strings, made durable one way or another.

use super::Done;
use super::arguments::SpsArguments;
use super::peers::{engine, msync, sections};
use super::strings::{Strings, Text, check, failed, first, swaps};
use super::variant::Program;
use crate::engine::{Pace, Result};
use crate::engines::{Pmemobj, Twinpage};
use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};
use twinpage::versions::{self, Options, Versions};
use twinpage_os::direct::{Direct, Instructions};
use zerocopy::{Immutable, IntoBytes};

/// An entry of the redo log: what both strings are after a swap. Whole cache lines.
#[repr(C, align(64))]
#[derive(IntoBytes, Immutable, Clone, Copy)]
struct Entry {
    number: u64,
    places: [u64; 2],
    texts: [Text; 2],
    rest: [u64; 5],
}

pub(crate) fn run(arguments: &SpsArguments) -> Result<Done> {
    let instructions = arguments.variant.chosen();
    if let Some(missing) = instructions.write_back.filter(|way| !way.is_here()) {
        return Err(format!("this processor has no {missing:?}"));
    }
    match arguments.variant.program() {
        Program::DiskLogging => disk_logging(arguments),
        Program::Logging { checkpoint } => logging(arguments, instructions, checkpoint),
        Program::Interleaved => interleaved(arguments, instructions),
        Program::Bare => bare(arguments, instructions),
        Program::Threading { each } => threading(arguments, instructions, each),
        Program::Pmemobj => engine::<Pmemobj>(arguments, Pace::Each),
        Program::Msync => msync(arguments),
        Program::Sections => sections(arguments),
        Program::Region => engine::<Twinpage>(arguments, Pace::Every(Duration::from_millis(16))),
    }
}

/// What a swap writes into the log.
fn entry(number: u64, (a, b): (usize, usize), strings: &Strings) -> Entry {
    // SAFETY: strings of the array; the one thread that changes them is this.
    let texts = unsafe { [*strings.at(b), *strings.at(a)] };
    Entry {
        number,
        places: [a as u64, b as u64],
        texts,
        rest: [0; 5],
    }
}

/// Applies an entry to an array of strings.
///
/// # Safety
/// `to` is valid for writes of all strings that entries speak of, and no other thread reaches them.
unsafe fn apply(entry: &Entry, to: *mut Text) {
    for (place, text) in entry.places.iter().zip(&entry.texts) {
        // SAFETY: the caller's.
        unsafe { to.add(*place as usize).copy_from_nonoverlapping(text, 1) };
    }
}

/// DL: a redo log in memory that is written to a file on a disk whenever it is full.
fn disk_logging(arguments: &SpsArguments) -> Result<Done> {
    let memory = tempfile::tempdir_in("/dev/shm").map_err(failed)?;
    let in_memory = SpsArguments {
        place: memory.path().to_owned(),
        ..arguments.clone()
    };
    let strings = Strings::new(&in_memory, Instructions::NONE, 0)?;
    let mut file = File::create_new(arguments.place.join("log")).map_err(failed)?;
    let mut log: Vec<Entry> = Vec::with_capacity(arguments.log_entries);
    let mut done = Done::default();
    let mut write = |log: &mut Vec<Entry>, done: &mut Done| -> Result<()> {
        let bytes = log.as_bytes();
        file.write_all(bytes)
            .and_then(|()| file.sync_data())
            .map_err(failed)?;
        done.stored_bytes += bytes.len() as u64;
        done.fences += 1;
        log.clear();
        Ok(())
    };
    let begun = Instant::now();
    for (number, swap) in swaps(arguments).enumerate() {
        log.push(entry(number as u64, swap, &strings));
        // SAFETY: the strings are this thread's alone.
        unsafe { apply(&log[log.len() - 1], strings.at(0)) };
        done.stored_bytes += 2 * size_of::<Entry>() as u64;
        if log.len() == arguments.log_entries {
            write(&mut log, &mut done)?;
        }
    }
    write(&mut log, &mut done)?;
    done.seconds = begun.elapsed().as_secs_f64();
    done.swaps = arguments.swaps;
    strings.check(arguments)?;
    Ok(done)
}

/// L, LCM, LCS and their like: a redo log in memory, written before the strings are changed in place. With a
/// checkpoint there are two logs, and a thread replays the full one into another array meanwhile.
fn logging(arguments: &SpsArguments, instructions: Instructions, checkpoint: bool) -> Result<Done> {
    let entries = arguments.log_entries;
    let (log_bytes, array) = (
        entries * size_of::<Entry>(),
        arguments.strings * size_of::<Text>(),
    );
    let more = if checkpoint {
        2 * log_bytes + array
    } else {
        log_bytes
    };
    let strings = Strings::new(arguments, instructions, more)?;
    let log = |which: usize, entry: usize| {
        strings.behind() + (which * log_bytes + entry * size_of::<Entry>()) as u64
    };
    let mut done = Done::default();
    let copy = Addresses {
        base: strings.direct.base(),
        checkpoint: strings.behind() + 2 * log_bytes as u64,
    };
    if checkpoint {
        // SAFETY: both arrays lie in the mapping.
        unsafe {
            copy.strings()
                .copy_from_nonoverlapping(strings.at(0), strings.count)
        };
    }
    std::thread::scope(|scope| -> Result<()> {
        let (full, replay) = sync_channel::<Full>(0);
        let replayer = checkpoint.then(|| scope.spawn(move || copy.replay(&replay)));
        let (mut which, mut next) = (0, 0);
        let begun = Instant::now();
        for (number, swap) in swaps(arguments).enumerate() {
            let at = log(which, next);
            let entry = entry(number as u64, swap, &strings);
            // SAFETY: an entry of the log, which only this thread reaches until it is full.
            unsafe {
                if instructions.streams {
                    strings.direct.stream(at, entry.as_bytes());
                } else {
                    let to = strings.direct.base().add(at as usize);
                    to.cast::<Entry>().write(entry);
                    strings.direct.write_back(at..at + size_of::<Entry>() as u64);
                }
            }
            if instructions.fence.is_some() {
                strings.direct.fence().map_err(failed)?;
            }
            // SAFETY: the strings are this thread's alone.
            unsafe { apply(&entry, strings.at(0)) };
            next += 1;
            if next == entries {
                next = 0;
                if checkpoint {
                    full.send((log(which, 0), entries)).map_err(failed)?;
                    which ^= 1;
                    done.stored_bytes += (2 * size_of::<Text>() * entries) as u64;
                }
            }
        }
        if checkpoint && next > 0 {
            full.send((log(which, 0), next)).map_err(failed)?;
            done.stored_bytes += (2 * size_of::<Text>() * next) as u64;
        }
        drop(full);
        if let Some(replayer) = replayer {
            replayer.join().map_err(|_| "the checkpoint failed")?;
        }
        done.seconds = begun.elapsed().as_secs_f64();
        Ok(())
    })?;
    let counts = strings.direct.counts();
    done.swaps = arguments.swaps;
    done.write_backs = counts.write_backs;
    done.fences = if instructions.fence.is_some() {
        counts.fences
    } else {
        0
    };
    done.stored_bytes += arguments.swaps * (size_of::<Entry>() + 2 * size_of::<Text>()) as u64;
    strings.check(arguments)?;
    if checkpoint {
        // SAFETY: the checkpoint is not written any more.
        check(arguments, |index| Ok(unsafe { *copy.strings().add(index) }))?;
    }
    Ok(done)
}

/// Two strings, two numbers and the durable word of a swap, stored and written back with two fences. Nothing is read, and
/// nothing decides which version is next: each string has three, used in turn.
fn bare(arguments: &SpsArguments, instructions: Instructions) -> Result<Done> {
    const VERSIONS: usize = 3;
    let versions = SpsArguments {
        strings: VERSIONS * arguments.strings,
        ..arguments.clone()
    };
    let numbers = size_of::<u64>() * versions.strings;
    let strings = Strings::new(&versions, instructions, numbers + size_of::<Entry>())?;
    let direct = &strings.direct;
    let word = strings.behind() + numbers as u64;
    let store = |at: u64, number: u64| {
        // SAFETY: a word behind the strings, which only this thread reaches.
        unsafe { direct.base().add(at as usize).cast::<u64>().write(number) };
        direct.write_back(at..at + 8);
    };
    let mut done = Done::default();
    let begun = Instant::now();
    for (number, (a, b)) in (1..).zip(swaps(arguments)) {
        for string in [a, b] {
            let place = VERSIONS * string + number as usize % VERSIONS;
            let at = (place * size_of::<Text>()) as u64;
            // SAFETY: a string of the array, which only this thread reaches.
            unsafe { strings.at(place).write([number as u8; 256]) };
            direct.write_back(at..at + size_of::<Text>() as u64);
            store(strings.behind() + 8 * place as u64, number);
        }
        direct.fence().map_err(failed)?;
        store(word, number);
        direct.fence().map_err(failed)?;
        done.swaps = number;
    }
    done.seconds = begun.elapsed().as_secs_f64();
    let counts = direct.counts();
    (done.write_backs, done.fences) = (counts.write_backs, counts.fences);
    done.stored_bytes = done.swaps * (2 * (size_of::<Text>() as u64 + 8) + 8);
    Ok(done)
}

/// A full log: where it begins, and how many entries it has.
type Full = (u64, usize);

/// Where logs and the checkpoint are.
#[derive(Clone, Copy)]
struct Addresses {
    base: *mut u8,
    checkpoint: u64,
}

// SAFETY: addresses in a mapping that outlives the thread; logs are handed over through a channel.
unsafe impl Send for Addresses {}

impl Addresses {
    fn strings(self) -> *mut Text {
        // SAFETY: inside the mapping.
        unsafe { self.base.add(self.checkpoint as usize).cast() }
    }

    /// Replays full logs into the checkpoint. The channel has no room: the sender of the next waits until this one is
    /// done.
    fn replay(self, full: &Receiver<Full>) {
        for (at, entries) in full {
            for entry in 0..entries {
                // SAFETY: a full log, which is not written before the next is sent; the checkpoint is this
                // thread's.
                unsafe {
                    let log = self.base.add(at as usize).cast::<Entry>();
                    apply(&*log.add(entry), self.strings());
                }
            }
        }
    }
}

fn opened(arguments: &SpsArguments, options: &Options) -> Result<Versions<Text, 3>> {
    let path = arguments.place.join("strings");
    Versions::open_with(options, path, arguments.strings, |index| first(index as u64)).map_err(failed)
}

/// What a library's array did, checked in its next life.
fn account(
    arguments: &SpsArguments,
    options: &Options,
    strings: Versions<Text, 3>,
    before: versions::Statistics,
    seconds: f64,
) -> Result<Done> {
    let after = strings.statistics();
    drop(strings);
    let strings = opened(arguments, options)?;
    check(arguments, |index| Ok(*strings.get(index)))?;
    let fenced = arguments.variant.chosen().fence.is_some();
    Ok(Done {
        seconds,
        swaps: after.updates,
        write_backs: after.medium.write_backs - before.medium.write_backs,
        fences: if fenced {
            after.medium.fences - before.medium.fences
        } else {
            0
        },
        // Two strings and two numbers a swap, and a word each time.
        stored_bytes: after.updates * 2 * (size_of::<Text>() as u64 + 8) + 16 * after.persists,
        persists: Some(after.persists),
        version_waits: Some(after.version_waits),
        pace_waits: Some(after.pace_waits),
    })
}

/// ICM, ICS, IM: interleaved persistent updates, each made durable by the thread that swaps.
fn interleaved(arguments: &SpsArguments, instructions: Instructions) -> Result<Done> {
    let options = Options::new()
        .instructions(instructions)
        .pace(versions::Pace::Immediate)
        .inline();
    let mut strings = opened(arguments, &options)?;
    let before = strings.statistics();
    let begun = Instant::now();
    for (a, b) in swaps(arguments) {
        strings.update(|update| update.swap(a, b));
    }
    let seconds = begun.elapsed().as_secs_f64();
    account(arguments, &options, strings, before, seconds)
}

/// TCM, TCS, TS: the same, decoupled: a persistence thread makes it durable.
fn threading(arguments: &SpsArguments, instructions: Instructions, each: bool) -> Result<Done> {
    let pace = match each {
        true => versions::Pace::Immediate,
        false => versions::Pace::Threshold(arguments.threshold),
    };
    let options = Options::new().instructions(instructions).pace(pace);
    let mut strings = opened(arguments, &options)?;
    let before = strings.statistics();
    let begun = Instant::now();
    for (a, b) in swaps(arguments) {
        strings.update(|update| update.swap(a, b));
        if each {
            strings.durable().map_err(failed)?;
        }
    }
    strings.durable().map_err(failed)?;
    let seconds = begun.elapsed().as_secs_f64();
    account(arguments, &options, strings, before, seconds)
}
