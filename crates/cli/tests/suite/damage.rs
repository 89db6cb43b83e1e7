//! Damaged files on a disk: what comes of one is what was kept, or an error that names the damage. Never other
//! data without a word, never a panic.
//!
//! - One piece of damage a file, where something is kept: a bit, a byte, a sector, a page that is zero, two pages that
//!   changed places, a write that was lost, the end cut off.
//! - `check` reads everything, so what any reader notices it must notice.
//! - The readers of regions are processes of their own: a damaged page ends its reader with SIGBUS.
//!
//! `TWINPAGE_LONG=1`: 500 files each. A seed repeats a failure.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use twinpage_campaign::{either, seed};

use fastrand::Rng;
use twinpage::collections::{BTreeMap, HashMap, String as Text, Vec as List};
use twinpage::window::{WINDOW_BYTES, ZONE};
use twinpage::{Durability, Persist, Region, Root};

use crate::support::process::twinpage;
use crate::support::state::{Killed, info, on_state, refused_in_order, to_form_of_earlier_builds};
use crate::support::{chance, say};

const PAGE: usize = 4096;

/// How many damaged files are tried.
fn trials() -> u64 {
    either(12, 500)
}

/// Damages `image` once, and says how. `older` is the same file some time before.
fn damage(image: &mut Vec<u8>, older: &[u8], chance: &mut Rng) -> String {
    let kept: Vec<usize> = (0..image.len().div_ceil(PAGE))
        .map(|page| page * PAGE)
        .filter(|&at| {
            image[at..image.len().min(at + PAGE)]
                .iter()
                .any(|&byte| byte != 0)
        })
        .collect();
    let Some(&page) = chance.choice(&kept) else {
        return "nothing, for nothing is kept".into();
    };
    let end = image.len().min(page + PAGE);
    let at = page + chance.usize(0..end - page);
    let sector = page + chance.usize(0..(end - page).div_ceil(512)) * 512;
    let sector = sector..end.min(sector + 512);
    match chance.u8(0..9) {
        0 | 1 => {
            image[at] ^= 1 << chance.u8(0..8);
            format!("a bit of byte {at} flipped")
        }
        2 => {
            image[at] = image[at].wrapping_add(chance.u8(1..=255));
            format!("byte {at} changed")
        }
        3 => {
            chance.fill(&mut image[sector.clone()]);
            format!("the sector at {} overwritten", sector.start)
        }
        4 => {
            image[sector.clone()].fill(0);
            format!("the sector at {} zeroed", sector.start)
        }
        5 => {
            image[page..end].fill(0);
            format!("the page at {page} zeroed")
        }
        6 => {
            let other = *chance.choice(&kept).unwrap_or(&page);
            let len = (end - page).min(image.len() - other);
            let (first, second) = (
                image[page..page + len].to_vec(),
                image[other..other + len].to_vec(),
            );
            image[page..page + len].copy_from_slice(&second);
            image[other..other + len].copy_from_slice(&first);
            format!("the pages at {page} and {other} swapped")
        }
        7 => {
            let lost: Vec<usize> = kept
                .iter()
                .copied()
                .filter(|&at| {
                    older
                        .get(at..at + PAGE)
                        .is_some_and(|old| *old != image[at..image.len().min(at + PAGE)])
                })
                .collect();
            let page = *chance.choice(&lost).unwrap_or(&page);
            if let (Some(old), Some(new)) = (older.get(page..page + PAGE), image.get_mut(page..page + PAGE)) {
                new.copy_from_slice(old);
            }
            format!("the last writes to the page at {page} lost")
        }
        _ => {
            image.truncate(at);
            format!("cut to {at} bytes")
        }
    }
}

/// How a reader ended.
#[derive(PartialEq, Eq, Debug)]
enum End {
    /// It found this.
    Read(Vec<u8>),
    /// It was told what is wrong.
    Told,
}

/// The commands must not fall over, whatever they find.
fn sound_exit(what: &str, out: &Output) -> i32 {
    let stderr = String::from_utf8_lossy(&out.stderr);
    let code = out.status.code();
    let code = code.unwrap_or_else(|| panic!("{what}: ended by {}:\n{stderr}", out.status));
    assert!(
        code != 101 && !stderr.contains("panicked"),
        "{what}: a panic:\n{stderr}"
    );
    code
}

// ---- regions ----

#[derive(Persist)]
struct Order<'r> {
    pieces: u32,
    note: Text<'r>,
}

struct Roots {
    orders: Root<HashMap<'static, u64, Order<'static>>>,
    names: Root<BTreeMap<'static, Text<'static>, u64>>,
    numbers: Root<List<'static, u64>>,
}

fn roots(region: &Region) -> twinpage::Result<Roots> {
    Ok(Roots {
        orders: region.root("orders")?,
        names: region.root("names")?,
        numbers: region.root_with("numbers", |u| List::from_iter_in(0..60_000, u.heap()))?,
    })
}

impl Roots {
    /// All they hold, as text that is the same for the same values.
    fn text(&self, region: &Region) -> String {
        region.read(|v| {
            let orders = self.orders.get(v).iter();
            let mut orders: Vec<_> = orders
                .map(|(id, order)| (id, order.pieces, order.note.as_str()))
                .collect();
            orders.sort_unstable();
            let names = self.names.get(v).iter();
            let names: Vec<_> = names.map(|(name, id)| (name.as_str(), id)).collect();
            format!("{orders:?} {names:?} {:?}", self.numbers.get(v).as_slice())
        })
    }

    /// One of several turns, which leave lines in the log, in pages of their own and in both homes of them.
    fn change(&mut self, region: &Region, turn: u64) {
        region.update(|u| {
            let orders = self.orders.get_mut(u);
            let names = self.names.get_mut(u);
            for id in (turn * 100..turn * 150 + 300).step_by(1 + turn as usize) {
                let (pieces, note) = (turn as u32, u.string(&format!("order {id} of turn {turn}")));
                names.insert(u.string(&format!("{id:05}")), turn);
                orders.insert(id, Order { pieces, note });
            }
            orders.remove(&(turn * 7));
            let numbers = self.numbers.get_mut(u).iter_mut();
            numbers
                .step_by(1 + 40 * turn as usize)
                .for_each(|number| *number += turn);
        });
    }
}

/// A region's file some time before its end and then, and what is in it.
fn sample(path: &Path, durability: Durability, base: usize) -> [Vec<u8>; 3] {
    let options = Region::options()
        .durability(durability)
        .checksums(true)
        .base(base);
    let region = options.open(path).expect("a region");
    let mut roots = roots(&region).expect("its roots");
    let mut older = Vec::new();
    for turn in 0..6_u64 {
        roots.change(&region, turn);
        region.checkpoint().expect("a checkpoint");
        if turn == 4 {
            older = fs::read(path).expect("its file");
        }
    }
    let text = roots.text(&region).into_bytes();
    drop(roots);
    region.close().expect("a last checkpoint");
    [older, fs::read(path).expect("its file"), text]
}

const READ: &str = "TWINPAGE_TEST_READ_REGION";
const REFUSED: i32 = 9;

/// What a process does that a test below starts: opens a region, checked or not, and writes down all it holds.
#[test]
fn a_reader_of_regions() {
    let Ok(path) = std::env::var(READ) else { return };
    let options = match std::env::var_os("TWINPAGE_TEST_CHECKED") {
        Some(_) => Region::options().checked(),
        None => Region::options(),
    };
    let found = options
        .open(&path)
        .and_then(|region| Ok(roots(&region)?.text(&region)));
    match found {
        Ok(text) => fs::write(Path::new(&path).with_extension("text"), text).expect("a file"),
        Err(error) => {
            eprintln!("refused: {error}");
            std::process::exit(REFUSED);
        }
    }
}

/// Opens the region in another process and reads all of it.
fn read(what: &str, path: &Path, checked: bool) -> End {
    let mut reader = Command::new(std::env::current_exe().expect("this test"));
    reader.args(["--exact", "damage::a_reader_of_regions", "--nocapture"]);
    reader.env(READ, path).stdin(Stdio::null());
    if checked {
        reader.env("TWINPAGE_TEST_CHECKED", "1");
    }
    let text = path.with_extension("text");
    let _ = fs::remove_file(&text);
    let out = reader.output().expect("a reader");
    let stderr = String::from_utf8_lossy(&out.stderr);
    let told = "a page of a region cannot be loaded";
    match (out.status.code(), out.status.signal()) {
        (Some(0), _) => End::Read(fs::read(&text).expect("what it read")),
        (Some(REFUSED), _) if stderr.contains("refused: ") && !stderr.contains("panicked") => End::Told,
        (None, Some(signal)) if signal == rustix::process::Signal::BUS.as_raw() && stderr.contains(told) => {
            End::Told
        }
        _ => panic!("{what}, checked {checked}: {}:\n{stderr}", out.status),
    }
}

fn damaged_regions(name: &str, durability: Durability, number: usize) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("region");
    let [older, image, text] = sample(&path, durability, ZONE.start + number * WINDOW_BYTES);
    let first = seed();
    let (mut same, mut told) = (0, 0);
    for trial in 0..trials() {
        let seed = first + trial;
        let mut chance = chance(seed, name);
        let mut damaged = image.clone();
        let what = damage(&mut damaged, &older, &mut chance);
        let what = format!("{what}; TWINPAGE_SEED={seed}");
        let write = || fs::write(&path, &damaged).expect("room for a file");
        write();
        let check = twinpage()
            .arg("check")
            .arg(&path)
            .output()
            .expect("twinpage starts");
        let whole = sound_exit(&what, &check) == 0;
        for checked in [true, false] {
            write();
            match read(&what, &path, checked) {
                End::Read(found) => assert!(
                    found == text,
                    "{what}, checked {checked}: other data without a word"
                ),
                End::Told => assert!(
                    !whole,
                    "{what}, checked {checked}: told, but the check found nothing"
                ),
            }
        }
        *(if whole { &mut same } else { &mut told }) += 1;
    }
    say(&format!(
        "{name}: {} damaged files: {told} told, {same} harmless; TWINPAGE_SEED={first}",
        trials()
    ));
    assert!(told > 0, "damage is noticed");
}

#[test]
fn a_region_on_a_disk() {
    damaged_regions("a region on a disk", Durability::Disk, 50);
}

#[test]
fn a_region_in_a_memory_file_with_checksums() {
    damaged_regions("a region in a memory file with checksums", Durability::Memory, 51);
}

// ---- states of programs ----

/// Damages one file of copies of a state, and looks at what comes of them.
fn damaged_states(name: &str, killed: &Killed, choose: impl Fn(&mut Rng) -> PathBuf) {
    let first = seed();
    let (mut same, mut told) = (0, 0);
    for trial in 0..trials() {
        let seed = first + trial;
        let mut chance = chance(seed, name);
        let copy = killed.copy("damaged");
        let file = choose(&mut chance);
        let mut damaged = fs::read(killed.path("state").join(&file)).expect("a file of the state");
        let what = damage(&mut damaged, &[], &mut chance);
        let what = format!("{}: {what}; TWINPAGE_SEED={seed}", file.display());
        fs::write(copy.join(&file), damaged).expect("room for a file");
        let info = sound_exit(&what, &on_state(&["info"], &copy)) == 0;
        let whole = sound_exit(&what, &on_state(&["check"], &copy)) == 0;
        assert!(
            info || !whole,
            "{what}: told by info, but the check found nothing"
        );
        let resume = on_state(&["resume"], &copy);
        if resume.status.success() {
            assert!(
                killed.whole(&resume.stdout) == killed.stdout,
                "{what}: the program printed something else without a word"
            );
        } else {
            refused_in_order(&what, &resume);
            assert!(!whole, "{what}: told by resume, but the check found nothing");
        }
        *(if whole { &mut same } else { &mut told }) += 1;
    }
    say(&format!(
        "{name}: {} damaged files: {told} told, {same} harmless; TWINPAGE_SEED={first}",
        trials()
    ));
    assert!(told > 0, "damage is noticed");
}

#[test]
fn a_state_of_a_program() {
    damaged_states("a state of a program", &Killed::midway(), |_| "store".into());
}

#[test]
fn a_state_of_an_earlier_build() {
    let killed = Killed::midway();
    to_form_of_earlier_builds(&killed.path("state"));
    damaged_states("a state of an earlier build", &killed, |_| "store".into());
}

#[test]
fn a_state_of_a_tree_of_programs() {
    let killed = Killed::midway_in_a_tree();
    let info = info(&killed.path("state"));
    assert_eq!(info["program"]["processes"], 3, "{info}");
    damaged_states("a state of a tree of programs", &killed, |_| "store".into());
}

/// Output that is held, input that was read, and every other file beside the store.
#[test]
fn streams_of_a_program() {
    let killed = Killed::with_full_streams();
    let files = killed.files();
    let logs: Vec<_> = files.iter().filter(|file| is_of_streams(file)).cloned().collect();
    assert!(logs.len() >= 4, "both logs, and what counts them: {files:?}");
    damaged_states("streams of a program", &killed, |chance| {
        let of = if chance.u8(0..4) > 0 { &logs } else { &files };
        chance.choice(of).expect("a file").clone()
    });
}

fn is_of_streams(file: &Path) -> bool {
    let name = file.to_string_lossy();
    ["output-", "input", "released"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// Every part of the logs that is still needed, a bit at a time: noticed by `info`, `check` and `resume`. The end of
/// each may be in the context too (docs/format.md, `tail`): then its damage may be mended in silence instead.
#[test]
fn a_flipped_bit_in_a_log_of_a_program() {
    const MOST_IN_CONTEXT: usize = 16 << 10;
    let killed = Killed::with_full_streams();
    let first = seed();
    let (mut told, mut mended) = (0, 0);
    for log in ["output-1.0000000000000000", "input.0000000000000000"] {
        let whole = fs::read(killed.path("state").join(log)).expect("a log");
        let mut chance = chance(first, log);
        for trial in 0..either(6, 100) {
            // This much is held: the outside took less than a pipe's worth, the program a few lines.
            let before_end = 1 + chance.usize(0..whole.len() / 4);
            let at = whole.len() - before_end;
            let copy = killed.copy("damaged");
            let mut flipped = whole.clone();
            flipped[at] ^= 1 << chance.u8(0..8);
            fs::write(copy.join(log), flipped).expect("room for a log");
            let what = format!("a bit of byte {at} of {log}; trial {trial}, TWINPAGE_SEED={first}");
            let answers = ["info", "check", "resume"].map(|command| (command, on_state(&[command], &copy)));
            if answers.iter().all(|(_, out)| out.status.success()) {
                assert!(
                    before_end <= MOST_IN_CONTEXT + Killed::GIVEN_LAST_BYTES,
                    "{what}: not noticed"
                );
                let [.., (_, resumed)] = &answers;
                assert!(
                    killed.whole(&resumed.stdout) == killed.stdout,
                    "{what}: the program printed something else without a word"
                );
                mended += 1;
                continue;
            }
            for (command, out) in answers {
                assert_ne!(sound_exit(&what, &out), 0, "{what}: not noticed by {command}");
                let told = [&out.stdout[..], &out.stderr[..]].concat();
                let name = log.split('.').next().unwrap_or(log);
                assert!(
                    String::from_utf8_lossy(&told).contains(name),
                    "{what}: {command} does not name it"
                );
            }
            told += 1;
        }
    }
    say(&format!(
        "{told} flipped bits told, {mended} mended; TWINPAGE_SEED={first}"
    ));
    assert!(told > 0, "damage is noticed");
}
