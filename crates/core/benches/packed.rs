//! Bytes written per changed byte on a medium of 4 KiB lines, and what it takes in time, on plain
//! memory: `cargo bench -p twinpage-core --bench packed [-- --json] [-- --sensitivity]`.
//!
//! Each workload changes a table in epochs; the engines are the dual page with lines of 4 KiB, packed
//! lines over it, and for comparison what a log alone would write (the same strips and directories,
//! never folded, as if there were no recovery).

use std::time::{Duration, Instant};
use twinpage_core::crash::{Image, Random};
use twinpage_core::dual_page::{self, DualPage};
use twinpage_core::packed::{Options, Packed, Tuning};
use twinpage_core::*;

const PAGE: usize = 4096;
const LINE: usize = 64;
const SHEET: usize = 64;

/// A table, and which lines of it an epoch changed.
struct Table {
    bytes: Vec<u8>,
    changed: Vec<u64>,
    random: Random,
    value: u64,
}

impl Table {
    fn new(mib: usize) -> Table {
        let mut random = Random::new(1);
        let words = std::iter::repeat_with(|| random.number().to_le_bytes());
        Table {
            bytes: words.take(mib << 17).flatten().collect(),
            changed: vec![0; mib << 8],
            random: Random::new(2),
            value: 0,
        }
    }

    /// Changes `len` bytes at `at`.
    fn change(&mut self, at: usize, len: usize) {
        for at in (at..at + len).step_by(8) {
            self.value += 1;
            self.bytes[at..at + 8].copy_from_slice(&(self.value << 20 | 0x5a5a5).to_le_bytes());
            self.changed[at / PAGE] |= 1 << (at % PAGE / LINE);
        }
    }

    fn dirty(&self) -> impl Iterator<Item = (usize, LineMask)> {
        let masks = self.changed.iter().enumerate();
        masks
            .filter(|(_, mask)| **mask != 0)
            .map(|(page, &mask)| (page, LineMask(mask)))
    }
}

/// A workload: a table, and what one epoch does to it. Says how many bytes it changed.
struct Workload {
    name: &'static str,
    mib: usize,
    epoch: fn(&mut Table) -> u64,
}

/// 16-byte pairs: 1 M keys in a table of 32 MiB.
fn pairs(table: &mut Table, count: usize, mut pick: impl FnMut(&mut Random, u64) -> u64) -> u64 {
    for _ in 0..count {
        let slots = table.bytes.len() as u64 / 16;
        let at = pick(&mut table.random, slots) as usize * 16;
        table.change(at, 16);
    }
    count as u64 * 16
}

const WORKLOADS: [Workload; 6] = [
    Workload {
        name: "hash-rand: 80,000 pairs of 32 MiB",
        mib: 32,
        epoch: |table| pairs(table, 80_000, |random, slots| random.below(slots)),
    },
    Workload {
        name: "hash-zipf: 80% of them to 15%",
        mib: 32,
        epoch: |table| {
            pairs(table, 80_000, |random, slots| match random.below(5) {
                0 => random.below(slots),
                _ => random.below(slots * 15 / 100).wrapping_mul(7_919) % slots,
            })
        },
    },
    Workload {
        name: "5,000 pairs of 32 MiB",
        mib: 32,
        epoch: |table| pairs(table, 5_000, |random, slots| random.below(slots)),
    },
    Workload {
        name: "5,000 pairs of 256 MiB: a page seldom twice",
        mib: 256,
        epoch: |table| pairs(table, 5_000, |random, slots| random.below(slots)),
    },
    Workload {
        name: "strings: 2,000 of 256 B swapped, of 25 MiB",
        mib: 25,
        epoch: |table| {
            for _ in 0..4_000 {
                let at = table.random.below(table.bytes.len() as u64 / 256) as usize * 256;
                table.change(at, 256);
            }
            4_000 * 256
        },
    },
    Workload {
        name: "sweep: 1% of 256 MiB in a row",
        mib: 256,
        epoch: |table| {
            let len = (table.bytes.len() / 100).next_multiple_of(LINE);
            let at = table.value as usize * 8 % (table.bytes.len() - len) / LINE * LINE;
            table.change(at, len);
            len as u64
        },
    },
];

/// A store that takes a table.
trait Engine: Scheme {
    /// What the epoch changed of the table.
    fn put(&mut self, table: &Table);
    /// All of it.
    fn put_all(&mut self, table: &Table);
}

fn write(store: &mut impl Scheme, page: usize, first: usize, bytes: &[u8], lines: LineMask) {
    let span = PageLines::from(PageId(page as u64), first, bytes, store.geometry().line_bytes());
    let _ = store.write(span.only(lines)).expect("memory has room");
}

impl Engine for DualPage<Image> {
    fn put(&mut self, table: &Table) {
        for (page, _) in table.dirty() {
            let (sheet, line) = (page / SHEET, page % SHEET);
            write(
                self,
                sheet,
                line,
                &table.bytes[page * PAGE..][..PAGE],
                LineMask::run(line, 1),
            );
        }
    }

    fn put_all(&mut self, table: &Table) {
        for (sheet, bytes) in table.bytes.chunks(PAGE * SHEET).enumerate() {
            write(self, sheet, 0, bytes, LineMask::run(0, bytes.len() / PAGE));
        }
    }
}

impl Engine for Packed<DualPage<Image>> {
    fn put(&mut self, table: &Table) {
        for (page, mask) in table.dirty() {
            for run in mask.runs() {
                let bytes = &table.bytes[page * PAGE + run.start * LINE..page * PAGE + run.end * LINE];
                write(self, page, run.start, bytes, LineMask::run(run.start, run.len()));
            }
        }
    }

    fn put_all(&mut self, table: &Table) {
        for (page, bytes) in table.bytes.chunks(PAGE).enumerate() {
            write(self, page, 0, bytes, LineMask::ALL);
        }
    }
}

fn dual_page() -> DualPage<Image> {
    let options = dual_page::Options::new(Geometry::DISK);
    DualPage::create(Image::new(512), &options).expect("memory has room")
}

fn packed(log_mib: u64, tuning: Tuning) -> Packed<DualPage<Image>> {
    let options = Options::default().log_bytes(log_mib << 20);
    let mut store = Packed::create(dual_page(), &options).expect("the options are sound");
    store.set_tuning(tuning);
    store
}

/// What a run cost.
#[derive(Default)]
struct Cost {
    changed: u64,
    lines: u64,
    traffic: Traffic,
    /// The largest commit, in bytes.
    largest: u64,
    /// The largest of the epochs before measuring began.
    largest_before: u64,
    epochs: u64,
    time: Duration,
}

impl Cost {
    fn amplification(&self) -> f64 {
        self.traffic.total_bytes() as f64 / self.changed as f64
    }
}

/// Fills the store, lets it settle for `warm` epochs, measures as many.
fn run(store: &mut impl Engine, workload: &Workload, warm: u64) -> Cost {
    let mut table = Table::new(workload.mib);
    store.put_all(&table);
    store.commit(b"roots").expect("memory has room");
    let mut cost = Cost::default();
    for epoch in 0..2 * warm {
        let bytes = (workload.epoch)(&mut table);
        let before = store.info().traffic;
        let begun = Instant::now();
        store.put(&table);
        store.commit(b"roots").expect("memory has room");
        let time = begun.elapsed();
        let spent = store.info().traffic - before;
        if epoch < warm {
            cost.largest_before = cost.largest_before.max(spent.total_bytes());
        } else {
            cost.changed += bytes;
            cost.lines += table.dirty().map(|(_, mask)| mask.count() as u64).sum::<u64>();
            cost.traffic = [cost.traffic, spent].into_iter().sum();
            cost.largest = cost.largest.max(spent.total_bytes());
            cost.epochs += 1;
            cost.time += time;
        }
        table.changed.fill(0);
    }
    cost
}

/// A row of the table.
#[derive(serde::Serialize)]
struct Row {
    workload: &'static str,
    engine: &'static str,
    bytes_per_changed_byte: f64,
    /// Of them, strips and directories, and pages folded.
    log: f64,
    folded: f64,
    /// The largest commit over the mean one; the largest while the log filled for the first time.
    largest_commit: f64,
    largest_first_lap: f64,
    ns_per_changed_line: f64,
    ms_per_epoch: f64,
    open_ms: f64,
    log_mib: f64,
    index_mib: f64,
}

impl Row {
    fn new(workload: &Workload, engine: &'static str, cost: &Cost) -> Row {
        let per_byte = |bytes: u64| bytes as f64 / cost.changed as f64;
        let mean = cost.traffic.total_bytes() as f64 / cost.epochs as f64;
        Row {
            workload: workload.name,
            engine,
            bytes_per_changed_byte: cost.amplification(),
            log: per_byte(cost.traffic.log_bytes),
            folded: per_byte(cost.traffic.write_back_bytes),
            largest_commit: cost.largest as f64 / mean,
            largest_first_lap: cost.largest_before as f64 / mean,
            ns_per_changed_line: cost.time.as_nanos() as f64 / cost.lines as f64,
            ms_per_epoch: cost.time.as_secs_f64() * 1e3 / cost.epochs as f64,
            open_ms: 0.0,
            log_mib: 0.0,
            index_mib: 0.0,
        }
    }

    /// With what recovery takes and the log is like.
    fn opened(mut self, begun: Instant, log: Option<LogInfo>) -> Row {
        self.open_ms = begun.elapsed().as_secs_f64() * 1e3;
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        if let Some(log) = log {
            (self.log_mib, self.index_mib) = (mib(log.used_bytes), mib(log.index_bytes));
        }
        self
    }

    fn print(&self) {
        println!(
            "{:<44}{:<11}{:>9.2}{:>7.2}{:>8.2}{:>8.2}{:>8.2}{:>9.0}{:>9.2}{:>9.2}{:>8.1}{:>8.2}",
            self.workload,
            self.engine,
            self.bytes_per_changed_byte,
            self.log,
            self.folded,
            self.largest_commit,
            self.largest_first_lap,
            self.ns_per_changed_line,
            self.ms_per_epoch,
            self.open_ms,
            self.log_mib,
            self.index_mib
        );
    }
}

fn compare(warm: u64, json: bool) {
    let mut rows = Vec::new();
    if !json {
        println!(
            "{:<44}{:<11}{:>9}{:>7}{:>8}{:>8}{:>8}{:>9}{:>9}{:>9}{:>8}{:>8}",
            "", "", "B/B", "log", "folded", "max", "first", "ns/line", "ms", "open ms", "log MiB", "idx MiB"
        );
    }
    for workload in &WORKLOADS {
        let mut store = dual_page();
        let cost = run(&mut store, workload, warm / 4);
        let row = Row::new(workload, "dual-page", &cost);
        let image = store.into_medium();
        let begun = Instant::now();
        let (store, _) = DualPage::recover(image).expect("it was committed");
        let row = row.opened(begun, store.info().log);
        drop(store);

        let mut store = packed(64, Tuning::default());
        let cost = run(&mut store, workload, warm);
        let ours = Row::new(workload, "packed", &cost);
        let image = store.into_medium();
        let begun = Instant::now();
        let (store, _) = Packed::<DualPage<Image>>::recover(image).expect("it was committed");
        let ours = ours.opened(begun, store.info().log);
        let log = Row {
            engine: "log alone",
            bytes_per_changed_byte: ours.log,
            folded: 0.0,
            largest_commit: 1.0,
            largest_first_lap: 1.0,
            ns_per_changed_line: 0.0,
            ms_per_epoch: 0.0,
            open_ms: 0.0,
            index_mib: 0.0,
            ..ours
        };
        for row in [row, ours, log] {
            if !json {
                row.print();
            }
            rows.push(row);
        }
    }
    if json {
        println!("{}", serde_json::json!({ "rows": rows }));
    }
}

/// How much each choice matters, one at a time.
fn sensitivity(warm: u64) {
    let base = Tuning::default();
    let line = |what: String, log_mib: u64, tuning: Tuning| {
        print!("{what:<28}");
        for workload in WORKLOADS.iter().take(5) {
            let cost = run(&mut packed(log_mib, tuning), workload, warm);
            let mean = cost.traffic.total_bytes() as f64 / cost.epochs as f64;
            print!(
                "{:>9.2} ({:>4.1},{:>4.1})",
                cost.amplification(),
                cost.largest as f64 / mean,
                cost.largest_before as f64 / mean
            );
        }
        println!();
    };
    println!("bytes per changed byte (largest commit over the mean: settled, at first)");
    for log_mib in [8, 16, 32, 64, 128, 256] {
        line(format!("log of {log_mib} MiB"), log_mib, base);
    }
    for whole_lines in [8, 16, 24, 32, 40, 48, 56, 64] {
        let tuning = Tuning { whole_lines, ..base };
        line(format!("whole from {whole_lines} lines"), 64, tuning);
    }
    for pressure_percent in [0, 12, 25, 50, 100, 200, 400] {
        let tuning = Tuning {
            pressure_percent,
            ..base
        };
        line(format!("pressure {pressure_percent}%"), 64, tuning);
    }
}

fn main() {
    let has = |flag: &str| std::env::args().any(|arg| arg == flag);
    match has("--sensitivity") {
        true => sensitivity(60),
        false => compare(80, has("--json")),
    }
}
