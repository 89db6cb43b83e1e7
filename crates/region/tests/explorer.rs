//! A crash after every operation of a scripted run of heap, collections, growth and give-back: by epochs, and by sections,
//! some of which fail and some of which run beside the commit of another; in stores with room, and in stores that take
//! the fall-back. What is recovered is one of the states that were checkpointed, byte for byte, never older than the last
//! that was reported durable.
//!
//! The images are those of the failure model: everything fenced, and of what was posted since any
//! subset, each write torn at the medium's atom. A few samples of them at every point; more with
//! `TWINPAGE_LONG`.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use twinpage::check::check_image;
use twinpage::collections::{BTreeMap, HashMap, String as Text, Vec as List};
use twinpage::superblock::Superblock;
use twinpage::{Handle, Region, SchemeKind, Section, Stores};
use twinpage_core::crash::Image;
use twinpage_core::dual_page::PoolLimit;
use twinpage_core::{
    Flush, Geometry, Medium, Offset, PageId, ProductScheme, Recovered, Result, Scheme, Setup,
};

#[derive(Clone, Debug)]
enum Op {
    Write(Offset, Vec<u8>),
    Grow(u64),
    Fence,
    /// The checkpoint of this epoch was reported durable.
    Durable(u64),
}

type Log = Arc<Mutex<Vec<Op>>>;

/// A medium that remembers what it was asked to do.
struct Recorder {
    image: Image,
    log: Log,
    device: Arc<Device>,
}

/// Where the last flush of a commit waits until it is let go.
#[derive(Default)]
struct Device {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    is_waiting: bool,
    /// The section that the flush would be of has ended.
    has_ended: bool,
}

impl Device {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }

    /// Holds the flushes that come from now on, or lets all go.
    fn hold(&self, is_held: bool) {
        self.change(|state| (state.is_held, state.has_ended) = (is_held, false));
    }

    /// Waits until a flush waits. False if there is none.
    fn wait_for_flush(&self) -> bool {
        let state = self.state.lock().unwrap();
        let is_open = |state: &mut State| !state.is_waiting && !state.has_ended;
        self.changed.wait_while(state, is_open).unwrap().is_waiting
    }
}

impl Flush for Device {
    fn flush(&self) -> io::Result<()> {
        self.change(|state| state.is_waiting = true);
        let state = self.state.lock().unwrap();
        let mut state = self.changed.wait_while(state, |state| state.is_held).unwrap();
        state.is_waiting = false;
        Ok(())
    }
}

impl Medium for Recorder {
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.log.lock().unwrap().push(Op::Grow(len));
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        self.log.lock().unwrap().push(Op::Write(at, bytes.to_vec()));
        self.image.write(at, bytes)
    }
    fn fence(&mut self) -> Result<()> {
        self.log.lock().unwrap().push(Op::Fence);
        Ok(())
    }
    fn begin_fence(&mut self) -> Result<Option<Arc<dyn Flush>>> {
        Ok(Some(self.device.clone()))
    }
    fn end_fence(&mut self, _: io::Result<()>) -> Result<()> {
        self.fence()
    }
    fn atom(&self) -> usize {
        self.image.atom()
    }
}

/// The region's bytes at every epoch.
type States = Vec<(u64, Vec<u8>)>;

fn keep(region: &Region, log: &Log, states: &mut States) {
    let epoch = region.checkpoint().unwrap();
    keep_last(region, epoch, log, states);
}

fn keep_last(region: &Region, epoch: u64, log: &Log, states: &mut States) {
    note(region, epoch, bytes_of(region), log, states);
}

/// The region's bytes as they are.
fn bytes_of(region: &Region) -> Vec<u8> {
    let place = region.place();
    // SAFETY: usable bytes, which do not change while the test looks.
    unsafe { std::slice::from_raw_parts(place.base(), place.bytes()) }.to_vec()
}

/// The region had these bytes at an epoch, which is reported durable.
fn note(region: &Region, epoch: u64, bytes: Vec<u8>, log: &Log, states: &mut States) {
    log.lock().unwrap().push(Op::Durable(epoch));
    let report = check_image(&bytes, region.place().base().addr() as u64);
    assert!(report.is_sound(), "epoch {epoch}: {report:?}");
    states.push((epoch, bytes));
}

fn script(region: &Region, log: &Log, random: &mut fastrand::Rng) -> States {
    let mut states = States::new();
    let mut words = region.root::<HashMap<Text, u64>>("words").unwrap();
    let mut tree = region.root::<BTreeMap<u64, List<u64>>>("tree").unwrap();
    keep(region, log, &mut states);
    for round in 0..6 {
        for _ in 0..random.usize(1..60) {
            region.update(|u| {
                let (words, tree) = (words.get_mut(u), tree.get_mut(u));
                let key = random.u64(..40);
                match random.u8(..10) {
                    0..4 => {
                        words.insert(u.string(&format!("word {key} of {round}")), key);
                    }
                    4 => drop(words.remove(format!("word {key} of {round}").as_str())),
                    5..8 => {
                        let mut list = List::new_in(u.heap());
                        list.extend((0..key * 20).map(|k| k ^ round));
                        tree.insert(key, list);
                    }
                    _ => drop(tree.remove(&key)),
                }
            });
        }
        if round % 2 == 1 {
            region.update(|u| u.heap().give_back()).unwrap();
        }
        if round == 3 {
            // Larger than a step: the region grows, and gives most of it back later.
            region.update(|u| {
                let mut list = List::new_in(u.heap());
                list.resize(400_000, round);
                tree.get_mut(u).insert(1000, list);
            });
        }
        keep(region, log, &mut states);
    }
    region.update(|u| drop(tree.get_mut(u).remove(&1000)));
    region.update(|u| u.heap().give_back()).unwrap();
    keep(region, log, &mut states);
    states
}

/// The roots that sections change.
struct Roots {
    words: Handle<HashMap<'static, Text<'static>, u64>>,
    tree: Handle<BTreeMap<'static, u64, List<'static, u64>>>,
}

/// What a section does; a third of them fail.
fn change(roots: &Roots, section: &Section<'_>, round: u64, seed: u64) -> twinpage::Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let fails = random.u8(..3) == 0 && !matches!(round, 10 | 20);
    let (words, tree) = (roots.words.write(section), roots.tree.write(section));
    for _ in 0..random.usize(1..8) {
        let key = random.u64(..40);
        match random.u8(..10) {
            0..5 => {
                words.insert(section.string(&format!("word {key}")), round);
            }
            5 => drop(words.remove(format!("word {key}").as_str())),
            6..9 => {
                tree.insert(
                    key,
                    section.collect::<List<u64>>((0..key * 20).map(|k| k ^ round)),
                );
            }
            _ => drop(tree.remove(&key)),
        }
    }
    match round {
        // Larger than a step: the region grows, and gives most of it back later.
        10 => {
            let mut list = List::new_in(section.heap());
            list.resize(400_000, round);
            tree.insert(1000, list);
        }
        20 => drop(tree.remove(&1000)),
        _ => {}
    }
    if round.is_multiple_of(5) {
        section.heap().give_back().unwrap();
    }
    match fails {
        true => Err(section.abort()),
        false => Ok(()),
    }
}

/// The same by sections. Some are a commit or a part of one. Some run, or fail, in another thread while a commit is on its
/// way to the medium, in an order that the seed repeats. Returns the states, and the number of sections beside a commit.
fn script_of_sections(
    region: &Region,
    device: &Device,
    log: &Log,
    random: &mut fastrand::Rng,
) -> (States, usize) {
    let mut states = States::new();
    let roots = Roots {
        words: region.shared("words").unwrap(),
        tree: region.shared("tree").unwrap(),
    };
    let run = |round, seed| region.atomic(|section| change(&roots, section, round, seed));
    let run_later = |round, seed| {
        region.atomic_within(Duration::from_secs(3600), |section| {
            change(&roots, section, round, seed)
        })
    };
    keep_last(region, region.epoch(), log, &mut states);
    let mut beside = 0;
    for round in 0..40 {
        let (first, second) = (random.u64(..), random.u64(..));
        match random.u8(..4) {
            0 => {
                let _ = run_later(round, first);
                continue;
            }
            1 if !matches!(round, 10 | 20) => std::thread::scope(|scope| {
                device.hold(true);
                let writer = scope.spawn(|| {
                    let _ = run(round, first);
                    device.change(|state| state.has_ended = true);
                });
                // A section that fails has no commit.
                if device.wait_for_flush() {
                    let bytes = bytes_of(region);
                    let _ = run_later(round, second);
                    beside += 1;
                    device.hold(false);
                    writer.join().unwrap();
                    note(region, region.epoch(), bytes, log, &mut states);
                }
                device.hold(false);
            }),
            _ => drop(run(round, first)),
        }
        region.durable().unwrap();
        keep_last(region, region.epoch(), log, &mut states);
    }
    (states, beside)
}

/// Applies a write, or those of its atoms that `there` says.
fn write(image: &mut Vec<u8>, op: &Op, atom: usize, mut there: impl FnMut() -> bool) {
    match op {
        Op::Write(at, bytes) => {
            let mut at = *at as usize;
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at((atom - at % atom).min(rest.len()));
                if there() {
                    image[at..at + now.len()].copy_from_slice(now);
                }
                (at, rest) = (at + now.len(), later);
            }
        }
        Op::Grow(len) => image.resize((*len as usize).max(image.len()), 0),
        Op::Fence | Op::Durable(_) => {}
    }
}

/// Recovers an image, and says of which epoch it is.
fn recovered(image: Vec<u8>, atom: usize, states: &States) -> std::result::Result<u64, String> {
    let (store, found) = ProductScheme::recover(Image::from_bytes(image, atom)).map_err(|e| e.to_string())?;
    let Some((_, state)) = states.iter().find(|(epoch, _)| *epoch == found.epoch) else {
        return Ok(found.epoch);
    };
    let superblock = Superblock::decode(&found.context).map_err(|e| e.to_string())?;
    if superblock.bytes as usize != state.len() {
        return Err(format!("epoch {} has {} bytes", found.epoch, superblock.bytes));
    }
    let page = store.geometry().page_bytes();
    let mut bytes = vec![0; page];
    for (id, expected) in state.chunks(page).enumerate() {
        store
            .read(PageId(id as u64), 0, &mut bytes)
            .map_err(|e| e.to_string())?;
        if bytes[..expected.len()] != *expected {
            return Err(format!("epoch {}, page {id} is of another state", found.epoch));
        }
    }
    Ok(found.epoch)
}

/// A region on some medium, changed in one of the two ways.
#[derive(Clone, Copy, Debug)]
struct Case {
    scheme: SchemeKind,
    geometry: Geometry,
    atom: usize,
    in_sections: bool,
    /// The pool and the journal are so small that most commits of a dual page go through the fall-back.
    is_tight: bool,
    /// A mistake made on purpose: of two fences of a commit the first does nothing.
    skips_first_fence: bool,
}

/// Stores with as little room as there can be.
struct Tight;

impl Stores for Tight {
    type Scheme<M: Medium + Send + 'static> = ProductScheme<M>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &Setup,
    ) -> Result<ProductScheme<M>> {
        let setup = Setup {
            pool: PoolLimit::Pages((512 / setup.geometry.line_bytes() as u64).max(1)),
            journal_bytes: 128 * setup.geometry.line_bytes() as u64,
            ..setup.clone()
        };
        ProductScheme::create(kind, medium, &setup)
    }

    fn recover<M: Medium + Send + 'static>(&self, medium: M) -> Result<(ProductScheme<M>, Recovered)> {
        ProductScheme::recover(medium)
    }
}

/// Crashes a run at many points, and says how many images were recovered.
fn explore(case: Case, random: &mut fastrand::Rng) -> std::result::Result<u64, String> {
    let long = twinpage_campaign::is_long();
    let Case {
        atom, in_sections, ..
    } = case;
    let (log, device) = (Log::default(), Arc::<Device>::default());
    let medium = Recorder {
        image: Image::new(atom),
        log: log.clone(),
        device: device.clone(),
    };
    let options = Region::options().scheme(case.scheme);
    let options = match in_sections {
        true => options
            .sections()
            .consolidation(twinpage::Consolidation::WhenNeeded),
        false => options,
    };
    let region = match case.is_tight {
        true => options.open_on_with(medium, case.geometry, &Tight),
        false => options.open_on(medium, case.geometry),
    };
    let region = region.unwrap();
    // The first commit is in the log already; before it there is no region under its name.
    let begin = log.lock().unwrap().len();
    let states = match in_sections {
        true => {
            let (states, beside) = script_of_sections(&region, &device, &log, random);
            assert!(beside > 0, "{case:?}: no section ran beside a commit");
            states
        }
        false => script(&region, &log, random),
    };
    let fallback = region.info().traffic.fallback_bytes;
    // A packed store writes pages apart and needs none.
    let has_fallback = case.is_tight && case.scheme == SchemeKind::DualPage;
    assert_eq!(
        has_fallback,
        fallback > 0,
        "{case:?}: {fallback} bytes of fall-back"
    );
    drop(region);
    let mut log = log.lock().unwrap();
    // A section that makes a root is a commit, whose state is not kept.
    let kept = log.iter().position(|op| matches!(op, Op::Durable(_))).unwrap();
    let begin = if in_sections { kept } else { begin };
    if case.skips_first_fence {
        let mut fences = 0;
        let mut at = 0;
        log.retain(|op| {
            let is_fence = matches!(op, Op::Fence);
            (fences, at) = (fences + u64::from(is_fence), at + 1);
            at <= begin || !is_fence || fences % 2 == 0
        });
    }
    let (mut durable, mut pending, mut last) = (Vec::new(), Vec::<&Op>::new(), 1);
    let mut images = 0;
    // Points in the middle of an epoch are alike: all near fences, and some of the others.
    let every = if long { 1 } else { (log.len() / 60).max(1) };
    for (at, op) in log.iter().enumerate() {
        match op {
            Op::Durable(epoch) => last = *epoch,
            Op::Fence => {
                let all = std::mem::take(&mut pending);
                all.iter().for_each(|op| write(&mut durable, op, atom, || true));
            }
            op => pending.push(op),
        }
        let near = log[at..log.len().min(at + 3)]
            .iter()
            .any(|op| matches!(op, Op::Fence));
        if at < begin || !(near || matches!(op, Op::Fence) || at % every == 0) {
            continue;
        }
        for sample in 0..if long { 6 } else { 2 } {
            let mut image = durable.clone();
            let share = random.u8(..);
            for op in &pending {
                // Growth is there, or the writes behind it could not be.
                write(&mut image, op, atom, || match sample {
                    0 => random.u8(..) <= share,
                    _ => random.bool(),
                });
            }
            images += 1;
            let found = recovered(image, atom, &states);
            let found = found.map_err(|why| format!("{case:?}, operation {at}: {why}"))?;
            if !(last..=last + 1).contains(&found) {
                return Err(format!(
                    "{case:?}, operation {at}: epoch {found}, {last} was durable"
                ));
            }
        }
    }
    println!(
        "{case:?}: {images} images at {} operations, {} states",
        log.len(),
        states.len()
    );
    Ok(images)
}

fn seeded() -> (u64, fastrand::Rng) {
    let seed = twinpage_campaign::seed();
    (seed, fastrand::Rng::with_seed(seed))
}

#[test]
fn every_crash_point_of_a_region_is_one_of_its_states() {
    let (seed, mut random) = seeded();
    for (scheme, geometry, atom) in [
        (SchemeKind::DualPage, Geometry::MEMORY, 8),
        (SchemeKind::DualPage, Geometry::DISK, 512),
        (SchemeKind::Packed, Geometry::DISK, 512),
    ] {
        for (in_sections, is_tight) in [(false, false), (true, false), (true, true)] {
            let case = Case {
                scheme,
                geometry,
                atom,
                in_sections,
                is_tight,
                skips_first_fence: false,
            };
            let images = explore(case, &mut random).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            assert!(images > 50);
        }
    }
}

/// SSP's Figure 2: the mapping is durable before the lines it speaks of.
#[test]
fn a_section_without_its_first_fence_is_found() {
    let (seed, mut random) = seeded();
    let case = Case {
        scheme: SchemeKind::DualPage,
        geometry: Geometry::MEMORY,
        atom: 8,
        in_sections: true,
        is_tight: false,
        skips_first_fence: true,
    };
    let found = (0..10).any(|_| explore(case, &mut random).is_err());
    assert!(
        found,
        "seed {seed}: the explorer does not see that a fence is missing"
    );
}
