//! Regions whose content is known, and a reader that says what may come of any bytes.
//!
//! * Nothing that is done with a file panics, ends the program or asks for more memory than a small
//!   multiple of the file and of the region in it. One exception: what allocates in a heap that a check
//!   found damaged may say so in a panic, as its documentation has it.
//! * What [`Options::checked`](twinpage::Options::checked) opens can be read and changed like memory that was
//!   never on a medium. What is opened without is read here only where a check finds nothing.

use crate::history::random;
use crate::meter::Counting;
use fastrand::Rng;
use std::fmt::Debug;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use twinpage::collections::{BTreeMap, BTreeSet, Box, HashMap, HashSet, String, Vec, VecDeque};
use twinpage::inspect::inspect;
use twinpage::{Durability, Options, Persist, Region, Root, SchemeKind, Update, View};

/// Bytes of memory for each byte of the file and of the region, and some to begin with.
const MEMORY_TIMES: usize = 16;
const MEMORY_FIRST: usize = 8 << 20;

/// A value with values in it that not all bytes can be; read as text.
#[derive(Persist, Debug)]
#[repr(u8)]
enum Entry<'r> {
    Empty,
    Flag(bool),
    Letter {
        letter: char,
        count: std::num::NonZeroU32,
    },
    Text(String<'r>),
}

#[derive(Persist, Debug)]
struct Mixed<'r> {
    list: Vec<'r, u64>,
    nothing: Vec<'r, ()>,
    boxed: Box<'r, Option<Entry<'r>>>,
    ring: VecDeque<'r, Entry<'r>>,
    names: HashSet<'r, String<'r>>,
    pair: (u16, bool),
    row: [Option<Box<'r, u64>>; 3],
}

/// The roots of the regions made here.
struct Roots {
    mixed: Root<Mixed<'static>>,
    map: Root<HashMap<'static, u64, Vec<'static, u32>>>,
    tree: Root<BTreeMap<'static, u64, String<'static>>>,
    set: Root<BTreeSet<'static, (u8, char)>>,
    large: Root<Vec<'static, [u64; 40]>>,
}

impl Roots {
    fn open(region: &Region) -> twinpage::Result<Roots> {
        Ok(Roots {
            mixed: region.root_with::<Mixed>("mixed", |u| Mixed {
                list: u.empty::<Vec<u64>>(),
                nothing: u.empty::<Vec<()>>(),
                boxed: u.boxed(Some(Entry::Flag(true))),
                ring: u.empty::<VecDeque<Entry>>(),
                names: u.empty::<HashSet<String>>(),
                pair: (7, true),
                row: [None, Some(u.boxed(9)), None],
            })?,
            map: region.root("map")?,
            tree: region.root("tree")?,
            set: region.root("set")?,
            large: region.root("large")?,
        })
    }

    /// One change, inside an update.
    fn change(&mut self, u: &Update<'_>, rng: &mut Rng) {
        let (heap, mixed) = (u.heap(), self.mixed.get_mut(u));
        let (key, text) = (rng.u64(..200), "word".repeat(rng.usize(..40)));
        match rng.u8(..14) {
            0 => mixed.list.extend(0..key),
            1 => mixed.list.truncate(key as usize / 4),
            2 => *mixed.boxed = Some(Entry::Text(String::from_in(&text, heap))),
            3 => mixed.ring.push_back(Entry::Letter {
                letter: rng.char('a'..='π'),
                count: std::num::NonZeroU32::MIN,
            }),
            4 => mixed.ring.push_front(Entry::Empty),
            5 => drop(mixed.ring.pop_back()),
            6 => drop(mixed.names.insert(String::from_in(&text, heap))),
            7 => {
                let mut list = Vec::new_in(heap);
                list.extend(0..key as u32);
                self.map.get_mut(u).insert(key, list);
            }
            8 => drop(self.map.get_mut(u).remove(&key)),
            9 => drop(self.tree.get_mut(u).insert(key, String::from_in(&text, heap))),
            10 => drop(self.tree.get_mut(u).remove(&key)),
            11 => drop(self.set.get_mut(u).insert((key as u8, rng.char('a'..='ω')))),
            12 => self.large.get_mut(u).push([key; 40]),
            _ => {
                if mixed.nothing.len() < usize::MAX {
                    mixed.nothing.push(()); // a list of nothing may have any length, also by damage
                }
                mixed.row[rng.usize(..3)] = Some(Box::new_in(key, heap));
                self.large.get_mut(u).truncate(key as usize / 10);
            }
        }
    }

    /// All there is, as text that is the same for the same values.
    fn text(&self, v: &View<'_>) -> std::string::String {
        fn sorted<T: Debug>(values: impl Iterator<Item = T>) -> std::vec::Vec<std::string::String> {
            let mut all: std::vec::Vec<_> = values.map(|value| format!("{value:?}")).collect();
            all.sort_unstable();
            all
        }
        let mixed = self.mixed.get(v);
        let plain = (
            &mixed.list,
            mixed.nothing.len(),
            &mixed.boxed,
            &mixed.ring,
            mixed.pair,
            &mixed.row,
        );
        let (names, map) = (sorted(mixed.names.iter()), sorted(self.map.get(v).iter()));
        format!(
            "{plain:?} {names:?} {map:?} {:?} {:?} {:?}",
            self.tree.get(v),
            self.set.get(v),
            self.large.get(v)
        )
    }

    /// Looks for what is there, by its key.
    fn look_up(&self, v: &View<'_>, rng: &mut Rng) -> usize {
        let key = rng.u64(..200);
        usize::from(self.map.get(v).contains_key(&key))
            + self.map.get(v).get(&key).map_or(0, |list| list.len())
            + self.tree.get(v).range(key..).count()
            + self
                .tree
                .get(v)
                .range(..key)
                .next_back()
                .map_or(0, |(_, text)| text.len())
            + usize::from(self.mixed.get(v).names.contains("wordword"))
            + self.set.get(v).iter().rev().count()
    }

    /// Where the values of the roots lie in the region.
    fn places(&self, v: &View<'_>, base: usize) -> [Range<usize>; 5] {
        fn place<T>(value: &T, base: usize) -> Range<usize> {
            let at = std::ptr::from_ref(value).addr() - base;
            at..at + size_of::<T>()
        }
        [
            place(self.mixed.get(v), base),
            place(self.map.get(v), base),
            place(self.tree.get(v), base),
            place(self.set.get(v), base),
            place(self.large.get(v), base),
        ]
    }
}

/// A region's file at two instants, and what was in it at the later one.
#[derive(Debug)]
pub struct Sample {
    /// The file, and the same some epochs before.
    pub image: std::vec::Vec<u8>,
    /// See there.
    pub older: std::vec::Vec<u8>,
    /// All its roots hold.
    pub text: std::string::String,
    /// Where in the file lie the heap's header and tables, the table of roots, and the roots themselves.
    pub heads: std::vec::Vec<Range<usize>>,
}

/// A folder for files, and the address their regions are made at: one a test, since tests run side by side.
#[derive(Debug)]
pub struct Bench {
    folder: tempfile::TempDir,
    base: usize,
}

impl Bench {
    /// Number `number` of them.
    ///
    /// # Panics
    /// When there is no room for files in memory.
    #[must_use]
    pub fn new(number: usize) -> Bench {
        let (zone, window) = (twinpage::window::ZONE, twinpage::window::WINDOW_BYTES);
        Bench {
            folder: tempfile::tempdir_in("/dev/shm").expect("a folder in memory"),
            base: zone.start + number * window,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a region, every choice by `rng`.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    pub fn sample(&self, rng: &mut Rng) -> Sample {
        let scheme = SchemeKind::PRODUCTS[rng.usize(..SchemeKind::PRODUCTS.len())];
        let path = self.path("good");
        let _ = std::fs::remove_file(&path);
        let options = Region::options().base(self.base).scheme(scheme);
        let region = options
            .durability(Durability::Memory)
            .open(&path)
            .expect("a region");
        let mut roots = Roots::open(&region).expect("its roots");
        let mut older = std::vec::Vec::new();
        for _ in 0..rng.u64(2..8) {
            for _ in 0..rng.usize(1..60) {
                region.update(|update| roots.change(update, rng));
            }
            region.checkpoint().expect("a checkpoint");
            if older.is_empty() || rng.bool() {
                older = std::fs::read(&path).expect("its file");
            }
        }
        region.update(|update| roots.change(update, rng));
        let (text, parts) = (region.read(|v| roots.text(v)), heads(&region, &roots));
        drop(roots);
        region.close().expect("a last checkpoint");
        let image = std::fs::read(&path).expect("its file");
        let heads = parts.iter().flat_map(|part| find(&image, part)).collect();
        Sample {
            image,
            older,
            text,
            heads,
        }
    }

    /// Does all that can be done with a file of these bytes. Says what was in it, if it could be opened
    /// and checked.
    ///
    /// # Panics
    /// When any of what the module promises does not hold.
    pub fn read(&self, image: &[u8], rng: &mut Rng) -> Option<std::string::String> {
        let path = self.path("bad");
        std::fs::write(&path, image).expect("room for a file");
        let sound = self.look(&path, image.len());
        // A damaged page with a checksum ends its reader, which would be this process.
        if sound || !has_checksums(&path) {
            self.open_unchecked(&path, sound);
        }
        std::fs::write(&path, image).expect("room for a file");
        let found = open_checked(&path, rng);
        assert!(
            sound || found.is_none(),
            "a check found damage, and it was opened all the same"
        );
        found
    }

    /// Looks from outside, and says whether a check found nothing.
    fn look(&self, path: &Path, len: usize) -> bool {
        let Ok(look) = inspect(path) else { return false };
        let region = look.superblock.map_or(0, |superblock| superblock.bytes as usize);
        let (checked, peak) = Counting::peak(|| {
            let _ = format!("{:?}", look.info());
            look.check()
        });
        assert!(
            peak <= MEMORY_FIRST + MEMORY_TIMES * len + region + region / 8,
            "{peak} bytes of memory for a file of {len} and a region of {region}"
        );
        let copy = self.path("copy");
        if look.backup(&copy).is_ok() {
            assert!(copy.exists());
            std::fs::remove_file(&copy).expect("the copy");
        }
        match checked {
            Ok((store, heap)) => store.is_empty() && heap.is_none_or(|heap| heap.damage.is_empty()),
            Err(_) => false,
        }
    }

    /// Opens it without a check: roots are handed out or refused, and can be read if the check said so.
    fn open_unchecked(&self, path: &Path, sound: bool) {
        let Ok(region) = Region::open(path) else { return };
        let _ = region.roots();
        if sound {
            if let Ok(roots) = Roots::open(&region) {
                let _ = region.read(|v| roots.text(v));
            }
        } else if let Err(panic) = catch_unwind(AssertUnwindSafe(|| Roots::open(&region).map(drop))) {
            // A root whose name was damaged is made again, and making it allocates.
            let said = panic.downcast_ref::<std::string::String>();
            if !said.is_some_and(|said| said.starts_with("the heap of the region is damaged")) {
                resume_unwind(panic);
            }
        }
    }
}

/// Whether the lines of the region in a file have checksums, if there is one.
fn has_checksums(path: &Path) -> bool {
    inspect(path).is_ok_and(|look| look.info().checksums)
}

/// Opens it, checked, and uses it.
fn open_checked(path: &Path, rng: &mut Rng) -> Option<std::string::String> {
    let open = || Options::default().checked().open(path);
    let region = open().ok()?;
    let mut roots = Roots::open(&region).ok()?;
    let text = region.read(|v| roots.text(v));
    for _ in 0..rng.usize(..100) {
        region.update(|update| roots.change(update, rng));
        let _ = region.read(|v| roots.look_up(v, rng));
    }
    let changed = region.read(|v| roots.text(v));
    drop(roots);
    match region.close() {
        // Forged numbers can be at their end, and a store may be found wanting only when it is written.
        Err(_) => return Some(text),
        Ok(()) => drop(region_again(open, &changed)),
    }
    Some(text)
}

/// What was written is there, and nothing was damaged by going on.
fn region_again(open: impl Fn() -> twinpage::Result<Region>, text: &str) -> Region {
    let region = open().expect("its own checkpoint");
    let roots = Roots::open(&region).expect("its own roots");
    assert!(region.read(|v| roots.text(v)) == text, "not what was written");
    drop(roots);
    region
}

/// The bytes of the heads, as they are in memory.
fn heads(region: &Region, roots: &Roots) -> std::vec::Vec<std::vec::Vec<u8>> {
    let place = region.place();
    let base = place.base().addr();
    // SAFETY: these bytes are usable, and do not change.
    let all = unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) };
    let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|k| all[at + k])) as usize;
    // `docs/format.md`: the header, its lists, the table of units; the table of roots and its entries.
    let table = word(48) - base;
    let entries = word(table) - base;
    let mut parts = vec![0..64, 64..512, 1024..4096, 16384..16384 + 64 * 16];
    parts.extend([table..table + 32, entries..entries + 5 * 88]);
    parts.extend(region.read(|v| roots.places(v, base)));
    let slabs = (1..all.len() >> 16).map(|unit| unit << 16);
    parts.extend(
        slabs
            .filter(|at| all[at + 24..at + 28] == *b"TpSl")
            .map(|at| at..at + 64),
    );
    // By lines, which is how they lie together in a file.
    let lines = parts.into_iter().flat_map(|part| {
        let end = part.end;
        (part.start / 64 * 64..end).step_by(64)
    });
    lines
        .map(|at| all[at..at + 64].to_vec())
        .filter(|line| line.iter().any(|&byte| byte != 0))
        .collect()
}

/// Everywhere in the file where the line is.
fn find(image: &[u8], line: &[u8]) -> std::vec::Vec<Range<usize>> {
    let lines = image.chunks_exact(64).enumerate();
    let found = lines.filter(|(_, chunk)| *chunk == line);
    found.map(|(k, _)| k * 64..k * 64 + 64).collect()
}

/// Changes some bytes of a head to something.
pub fn damage_heads(sample: &Sample, image: &mut [u8], rng: &mut Rng) {
    for _ in 0..rng.usize(1..4) {
        let Some(line) = rng.choice(&sample.heads) else {
            return;
        };
        let at = line.start + rng.usize(..8) * 8;
        let Some(word) = image.get_mut(at..at + 8) else {
            return;
        };
        let old = u64::from_le_bytes(std::array::from_fn(|k| word[k]));
        let other = rng.choice(&sample.heads).map_or(0, |line| line.start);
        let new = match rng.u8(..8) {
            0 => old ^ 1 << rng.u32(..64),
            1 => old.wrapping_add_signed(rng.i64(-64..=64)),
            2 => old.wrapping_add_signed(rng.i64(-4..=4) << 16),
            3 => 0,
            4 => u64::MAX,
            5 => rng.u64(..),
            6 => old ^ u64::from(rng.u8(..)) << (8 * rng.u32(..8)),
            _ => u64::from_le_bytes(sample.image[other..other + 8].try_into().unwrap_or_default()),
        };
        word.copy_from_slice(&new.to_le_bytes());
    }
}

/// Lengths to cut a file to: the ends and edges of its parts, and some between.
pub fn cuts(sample: &Sample, rng: &mut Rng) -> std::vec::Vec<usize> {
    let len = sample.image.len();
    let mut cuts = vec![
        0,
        1,
        7,
        8,
        63,
        64,
        4095,
        4096,
        len / 2,
        len - 1,
        len.saturating_sub(64),
    ];
    let parts = crate::forge::metadata(&sample.image)
        .into_iter()
        .chain(sample.heads.iter().cloned());
    let mut edges: std::vec::Vec<_> = parts
        .flat_map(|part| [part.start, part.start + 1, part.end - 1, part.end])
        .collect();
    rng.shuffle(&mut edges);
    cuts.extend(edges.into_iter().take(12));
    cuts.extend((0..6).map(|_| rng.usize(..len)));
    cuts.retain(|&cut| cut < len);
    cuts
}

/// Bytes of which only some begin as a file of ours does.
pub fn noise(sample: &Sample, rng: &mut Rng) -> std::vec::Vec<u8> {
    let len = [1, 64, 4096, 100_000][rng.usize(..4)];
    let kept = rng.usize(..len).min(sample.image.len());
    let mut bytes = random(rng, len);
    bytes[..kept].copy_from_slice(&sample.image[..kept]);
    bytes
}
