//! Traces played back: `trace:FILE` or `trace:FILE,FILE,...`.
//!
//! * A trace of one core is played by each core; of several traces of one core, core `i` plays number
//!   `i`, going round. A trace of several cores is played alone, its records in its order.
//! * The program's pages become pages of the space as they are first touched, in that order; programs share
//!   none. The pages of a physical trace are packed the same way.
//! * Where a trace carries no data, a store writes a number that follows from its place in the trace.
//! * Where cores play traces of their own the run is over with the first trace: what the others would do
//!   without it is another mix.
//! * All traces are read once before the first run, so that damage is refused before anything happens; not
//!   again for another run of this process while they stay as they were. Each is played once.
//!
//! Check: the trace played on an ordinary map of pages gives the same bytes.

use super::table::scramble;
use super::{Progress, Workload};
use crate::op::{PAGE_BYTES, RECENT};
use crate::space::{Port, Space};
use crate::trace::{self, Event, Record, Trace};
use std::collections::{HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::SystemTime;

const BATCH: usize = 256;
/// Entries of the cache of page numbers, a power of two.
const CACHED: usize = 4096;

/// Traces as a workload.
pub(super) struct Replay {
    name: String,
    players: Vec<Player>,
    /// Which player each core runs.
    cores: Vec<usize>,
    pages: u64,
    next_page: u64,
}

/// One playing of one trace.
struct Player {
    path: PathBuf,
    trace: Trace,
    /// The record read but not yet played.
    next: Option<Record>,
    cores: u8,
    played: u64,
    /// Instructions of the trace that are still to be told.
    owed: Vec<i64>,
    /// Of each core, its load operations so far, and the first operation of each of its last loads.
    operations: Vec<u64>,
    loads: Vec<VecDeque<u64>>,
    table: HashMap<u64, u64>,
    cache: Vec<(u64, u64)>,
    failed: Option<String>,
}

impl Replay {
    /// Opens and reads the traces that the comma-separated `paths` name.
    ///
    /// # Errors
    /// A file that is no trace, is damaged, or has too many cores.
    pub(super) fn open(paths: &str, cores: usize) -> Result<Replay, String> {
        let files: Vec<&Path> = paths.split(',').map(Path::new).collect();
        if files.len() > cores {
            return Err(format!(
                "{paths} are {} traces; the machine has {cores} cores",
                files.len()
            ));
        }
        let mut scans = Vec::new();
        for file in &files {
            // Read again, a pipe would have nothing, or wait for another writer for ever.
            if file
                .metadata()
                .is_ok_and(|there| !there.is_file() && !there.is_dir())
            {
                return Err(format!(
                    "{}: is no ordinary file, and a trace that is played is read twice: write it to a file (lab convert)",
                    file.display()
                ));
            }
            scans.push(Scan::of(file).map_err(|why| why.to_string())?);
        }
        let several = scans.iter().any(|scan| scan.cores > 1);
        if several && files.len() > 1 {
            return Err("a trace of several cores is played alone, not beside others".into());
        }
        if several && usize::from(scans[0].cores) > cores {
            return Err(format!(
                "{paths} has {} cores; the machine has {cores}",
                scans[0].cores
            ));
        }
        let count = if several { 1 } else { cores };
        let mut players = Vec::new();
        let mut pages = 0;
        for i in 0..count {
            let file = files[i % files.len()];
            pages += scans[i % files.len()].pages;
            players.push(Player::open(file).map_err(|why| why.to_string())?);
        }
        let cores = (0..cores).map(|core| if several { 0 } else { core }).collect();
        Ok(Replay {
            name: format!("trace:{paths}"),
            players,
            cores,
            pages,
            next_page: 0,
        })
    }
}

/// What a first reading finds.
#[derive(Clone, Copy)]
struct Scan {
    cores: u8,
    pages: u64,
}

/// What was found, by file, length and time of its last change.
type Scans = Mutex<HashMap<(PathBuf, u64, Option<SystemTime>), Scan>>;
static SCANS: LazyLock<Scans> = LazyLock::new(Scans::default);

impl Scan {
    /// Held for the whole of a first reading, so that runs of the same traces wait for it.
    fn of(path: &Path) -> trace::Result<Scan> {
        let Ok(file) = path.metadata() else {
            return Scan::read(path); // which says why
        };
        let mut scans = SCANS.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (path.to_owned(), file.len(), file.modified().ok());
        if let Some(scan) = scans.get(&key) {
            return Ok(*scan);
        }
        let scan = Scan::read(path)?;
        scans.insert(key, scan);
        Ok(scan)
    }

    fn read(path: &Path) -> trace::Result<Scan> {
        let mut trace = Trace::open(path, None)?;
        let cores = trace.header().cores;
        let mut pages = std::collections::HashSet::new();
        let mut last = u64::MAX;
        while let Some(record) = trace.next_record()? {
            let Some((at, size)) = touched(&record.event) else {
                continue;
            };
            for page in at / PAGE_BYTES..=(at + u64::from(size) - 1) / PAGE_BYTES {
                if page != last {
                    last = page;
                    pages.insert(page);
                }
            }
        }
        let pages = pages.len() as u64;
        Ok(Scan { cores, pages })
    }
}

/// The bytes an event touches.
fn touched(event: &Event) -> Option<(u64, u16)> {
    match *event {
        Event::Load { at, size }
        | Event::Follow { at, size, .. }
        | Event::Store { at, size, .. }
        | Event::Persist { at, size } => Some((at, size)),
        Event::Fence | Event::Commit => None,
    }
}

/// The parts of an access in different pages.
fn parts(at: u64, size: u16) -> impl Iterator<Item = (u64, usize)> {
    let end = at + u64::from(size) - 1;
    (at / PAGE_BYTES..=end / PAGE_BYTES).map(move |page| {
        let first = at.max(page * PAGE_BYTES);
        let last = end.min(page * PAGE_BYTES + (PAGE_BYTES - 1));
        (first, (last - first) as usize + 1)
    })
}

/// What a store writes: the data of the trace, or what follows from its number.
fn data(number: u64, value: Option<u64>, into: &mut [u8]) {
    let first = value.unwrap_or_else(|| scramble(0x57, number));
    for (i, bytes) in into.chunks_mut(8).enumerate() {
        let word = first.wrapping_add(i as u64).to_le_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
}

/// Instructions that the port counts for an access of that many bytes at such a place in a line.
fn counted(at: u64, bytes: usize) -> i64 {
    let first = bytes.min((64 - at % 64) as usize);
    let mut rest = bytes - first;
    let mut counted = 1 + (first as i64 - 1) / 16;
    while rest > 0 {
        let some = rest.min(64);
        counted += 1 + (some as i64 - 1) / 16;
        rest -= some;
    }
    counted
}

impl Player {
    fn open(path: &Path) -> trace::Result<Player> {
        let mut trace = Trace::open(path, None)?;
        let cores = trace.header().cores;
        Ok(Player {
            path: path.to_owned(),
            next: trace.next_record()?,
            trace,
            cores,
            played: 0,
            owed: vec![0; cores.into()],
            operations: vec![0; cores.into()],
            loads: vec![VecDeque::new(); cores.into()],
            table: HashMap::new(),
            cache: vec![(u64::MAX, 0); CACHED],
            failed: None,
        })
    }

    /// The page of the space for a page of the program.
    #[inline]
    fn page(&mut self, page: u64, next_page: &mut u64) -> u64 {
        let entry = &mut self.cache[page as usize % CACHED];
        if entry.0 == page {
            return entry.1;
        }
        let mapped = *self.table.entry(page).or_insert_with(|| {
            *next_page += 1;
            *next_page - 1
        });
        *entry = (page, mapped);
        mapped
    }

    fn play(&mut self, record: &Record, port: &mut Port<'_>, next_page: &mut u64) {
        let core = usize::from(record.core);
        self.owed[core] += i64::from(record.after);
        match record.event {
            Event::Fence => {
                self.pay(core, port, 1);
                port.fence();
            }
            Event::Commit => {
                self.pay(core, port, 1);
                port.commit();
            }
            Event::Load { at, size } => self.load(core, port, (at, size, 0), next_page),
            Event::Follow { at, size, behind } => self.load(core, port, (at, size, behind), next_page),
            Event::Store { at, size, value } => {
                let mut bytes = [0; 2 * PAGE_BYTES as usize];
                let bytes = &mut bytes[..usize::from(size)];
                data(self.played, value, bytes);
                let mut done = 0;
                for (at, len) in parts(at, size) {
                    let to = self.page(at / PAGE_BYTES, next_page) * PAGE_BYTES + at % PAGE_BYTES;
                    self.pay(core, port, counted(to, len));
                    port.store_bytes(to, &bytes[done..done + len]);
                    done += len;
                }
            }
            Event::Persist { at, size } => {
                for (at, len) in parts(at, size) {
                    let to = self.page(at / PAGE_BYTES, next_page) * PAGE_BYTES + at % PAGE_BYTES;
                    for line in to / 64..=(to + len as u64 - 1) / 64 {
                        self.pay(core, port, 1);
                        port.persist(line * 64);
                    }
                }
            }
        }
        self.played += 1;
    }

    /// A load, in the operations it takes. One that follows a pointer waits for the first operation of the load that gave it.
    fn load(
        &mut self,
        core: usize,
        port: &mut Port<'_>,
        (at, size, behind): (u64, u16, u8),
        next_page: &mut u64,
    ) {
        let loads = &self.loads[core];
        let pointer = loads
            .len()
            .checked_sub(behind.into())
            .and_then(|place| loads.get(place));
        let mut done = self.operations[core];
        let mut behind = pointer.map_or(0, |first| u8::try_from(done - first).unwrap_or(0));
        if self.loads[core].len() == usize::from(RECENT) {
            self.loads[core].pop_front();
        }
        self.loads[core].push_back(done);
        let mut bytes = [0; PAGE_BYTES as usize];
        for (at, len) in parts(at, size) {
            let to = self.page(at / PAGE_BYTES, next_page) * PAGE_BYTES + at % PAGE_BYTES;
            self.pay(core, port, counted(to, len));
            let before = port.batched();
            port.follow_bytes(to, &mut bytes[..len], std::mem::take(&mut behind));
            done += (port.batched() - before) as u64;
        }
        self.operations[core] = done;
    }

    /// Tells the instructions before an operation for which the port counts some itself. Where it counts
    /// more than the trace has, the next ones get less.
    #[inline]
    fn pay(&mut self, core: usize, port: &mut Port<'_>, counted: i64) {
        let owed = &mut self.owed[core];
        let work = (*owed - counted).max(0);
        port.work(work as u32);
        *owed -= work + counted;
    }
}

impl Workload for Replay {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint_bytes(&self) -> u64 {
        self.pages.max(1) * PAGE_BYTES
    }

    fn fill(&self, _: &mut Space) {}

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        let player = &mut self.players[self.cores[core]];
        while port.batched() < BATCH {
            let Some(record) = player.next else {
                return Progress::Done;
            };
            if player.cores > 1 && usize::from(record.core) != core {
                return match () {
                    () if port.batched() > 0 => Progress::More,
                    () if core < player.cores.into() => Progress::Waiting,
                    () => Progress::Done,
                };
            }
            player.play(&record, port, &mut self.next_page);
            player.next = player.trace.next_record().unwrap_or_else(|why| {
                // It was whole when it was first read.
                player.failed = Some(why.to_string());
                None
            });
        }
        Progress::More
    }

    fn is_mix(&self) -> bool {
        self.players.len() > 1
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        for player in &self.players {
            player.check(space)?;
        }
        Ok(())
    }
}

impl Player {
    fn check(&self, space: &Space) -> Result<(), String> {
        if let Some(why) = &self.failed {
            return Err(format!("the trace changed while it was played: {why}"));
        }
        let mut pages: HashMap<u64, Box<[u8]>> = HashMap::new();
        let trace = Trace::open(&self.path, None).map_err(|why| why.to_string())?;
        let mut bytes = [0; 2 * PAGE_BYTES as usize];
        for (number, record) in (0..self.played).zip(trace) {
            let record = record.map_err(|why| why.to_string())?;
            if let Event::Store { at, size, value } = record.event {
                let bytes = &mut bytes[..usize::from(size)];
                data(number, value, bytes);
                for (byte, &data) in (at..).zip(bytes.iter()) {
                    let page = pages.entry(byte / PAGE_BYTES);
                    page.or_insert_with(|| vec![0; PAGE_BYTES as usize].into())
                        [(byte % PAGE_BYTES) as usize] = data;
                }
            }
        }
        let zeros = vec![0; PAGE_BYTES as usize];
        for (page, mapped) in &self.table {
            let expected = pages.get(page).map_or(&zeros[..], |page| page);
            let found = space.at(mapped * PAGE_BYTES, PAGE_BYTES as usize);
            if let Some(byte) = found
                .iter()
                .zip(expected)
                .position(|(found, expected)| found != expected)
            {
                let at = page * PAGE_BYTES + byte as u64;
                return Err(format!(
                    "{}: byte {at:#x} is not what was stored last",
                    self.path.display()
                ));
            }
        }
        Ok(())
    }
}
