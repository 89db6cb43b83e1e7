//! A dual-page store on a medium that fails at every place where it can.
//!
//! A fixed run of epochs is repeated once for each call it makes to its medium, and that call fails.
//! Out of room, the last checkpoint is whole and the run goes on once there is room. After an I/O error
//! the store is poisoned, and opening it again gives the last durable commit, or the one in the making.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::{Error, Geometry, PageId, PageLines, Result, Scheme};
use twinpage_os::faulty::{Call, Fault, Faults, Faulty};
use twinpage_os::{Access, AnyMedium, Durability};

const LINE: usize = 64;
const PAGES: u64 = 40;
const EPOCHS: u64 = 14;

type Store = DualPage<Faulty<AnyMedium>>;

/// What a checkpoint holds: the pages that are there, and the context.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
struct Model {
    epoch: u64,
    pages: BTreeMap<u64, Vec<u8>>,
    context: Vec<u8>,
}

/// One change of an epoch.
enum Step {
    Write {
        page: u64,
        first: usize,
        lines: usize,
        fill: u8,
    },
    Discard {
        page: u64,
    },
}

/// What an epoch changes; the same in every run.
fn steps(epoch: u64) -> Vec<Step> {
    let mut state = epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % bound
    };
    let mut steps = Vec::new();
    for _ in 0..4 {
        let (page, first, fill) = (below(PAGES), below(60) as usize, 1 + below(255) as u8);
        steps.push(Step::Write {
            page,
            first,
            lines: 1 + below(64 - first as u64) as usize,
            fill,
        });
    }
    if epoch.is_multiple_of(3) {
        steps.push(Step::Discard { page: below(PAGES) });
    }
    steps
}

/// Runs one epoch on the store; returns what it commits.
fn run_epoch(store: &mut Store, before: &Model) -> Result<Model> {
    let after = next(before);
    for step in steps(after.epoch) {
        match step {
            Step::Write {
                page,
                first,
                lines,
                fill,
            } => {
                let bytes = vec![fill; lines * LINE];
                let _ = store.write(PageLines::from(PageId(page), first, &bytes, LINE))?;
            }
            Step::Discard { page } => store.discard(PageId(page)..PageId(page + 1))?,
        }
    }
    assert_eq!(store.commit(&after.context)?, after.epoch);
    Ok(after)
}

/// What the epoch after `before` commits.
fn next(before: &Model) -> Model {
    let mut after = before.clone();
    after.epoch += 1;
    for step in steps(after.epoch) {
        match step {
            Step::Write {
                page,
                first,
                lines,
                fill,
            } => {
                let bytes = after.pages.entry(page).or_insert_with(|| vec![0; 64 * LINE]);
                bytes[first * LINE..(first + lines) * LINE].fill(fill);
            }
            Step::Discard { page } => {
                after.pages.remove(&page);
            }
        }
    }
    after.context = vec![after.epoch as u8; 40 * after.epoch as usize];
    after
}

/// What the store holds, read line by line.
fn holds(store: &Store, context: Vec<u8>) -> Model {
    let present = (0..PAGES).filter(|&page| store.is_present(PageId(page)));
    let pages = present.map(|page| {
        let mut bytes = vec![0; 64 * LINE];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        (page, bytes)
    });
    Model {
        epoch: store.epoch(),
        pages: pages.collect(),
        context,
    }
}

fn options(pool: PoolLimit) -> Options {
    Options::new(Geometry::new(LINE as u32, 16384).unwrap())
        .pool(pool)
        .journal_bytes(2048)
        .id(7)
}

/// Opens the store again on a medium that works.
fn reopen(path: &Path, durability: Durability) -> (Store, Faults, Model) {
    let medium = AnyMedium::open(path, durability, Access::ReadWrite).unwrap();
    let (medium, faults) = Faulty::new(medium);
    let (store, recovered) = DualPage::recover(medium).unwrap();
    assert_eq!(store.check().unwrap(), []);
    let model = holds(&store, recovered.context);
    assert_eq!(model.epoch, recovered.epoch);
    (store, faults, model)
}

/// One kind of store, and what is to fail.
#[derive(Clone, Copy, Debug)]
struct Case {
    durability: Durability,
    pool: PoolLimit,
    call: Call,
    fault: Fault,
}

impl Case {
    /// Goes through the run with the call after `after` others failing. False when the run makes fewer.
    fn run(self, after: u64, path: &Path) -> bool {
        let (medium, faults) = Faulty::new(AnyMedium::create(path, self.durability).unwrap());
        let mut store = DualPage::create(medium, &options(self.pool)).unwrap();
        faults.plan(self.call, after, self.fault);
        let mut model = Model::default();
        while model.epoch < EPOCHS {
            match run_epoch(&mut store, &model) {
                Ok(committed) => model = committed,
                Err(Error::Full { .. }) => {
                    assert_eq!(self.fault, Fault::NoRoom);
                    self.goes_on(&mut store, &faults, &model, after);
                }
                Err(error) => {
                    self.is_poisoned(store, &model, &error);
                    let (again, _, found) = reopen(path, self.durability);
                    assert!(
                        found == model || found == next(&model),
                        "{self:?} {after}: another state"
                    );
                    (store, model) = (again, found);
                }
            }
            if faults.struck() > 0 {
                faults.make_room();
            }
        }
        assert_eq!(holds(&store, model.context.clone()), model, "{self:?} {after}");
        drop(store);
        let (_, _, found) = reopen(path, self.durability);
        assert!(found == model, "{self:?} {after}: the end of the run");
        faults.struck() > 0
    }

    /// Out of room: abandoned, the newest version is the checkpoint; full or not, it can be read.
    fn goes_on(self, store: &mut Store, faults: &Faults, model: &Model, after: u64) {
        store.abandon();
        assert!(
            holds(store, model.context.clone()) == *model,
            "{self:?} {after}: abandoned"
        );
        if let Err(error) = run_epoch(store, model) {
            assert!(
                matches!(error, Error::Full { .. } | Error::Poisoned(_)),
                "{self:?} {after}: {error}"
            );
            store.abandon();
            assert!(
                holds(store, model.context.clone()) == *model,
                "{self:?} {after}: abandoned twice"
            );
        } else {
            panic!("{self:?} {after}: an epoch that needed room went through without");
        }
        faults.make_room();
    }

    fn is_poisoned(self, mut store: Store, model: &Model, error: &Error) {
        let fence_without_room = self.fault == Fault::NoRoom && self.call == Call::Fence;
        assert!(
            self.fault != Fault::NoRoom || fence_without_room,
            "{self:?}: {error}"
        );
        let refused = run_epoch(&mut store, model).unwrap_err();
        assert!(matches!(refused, Error::Poisoned(_)), "{self:?}: {refused}");
        store.abandon();
        let refused = store.commit(b"").unwrap_err();
        assert!(matches!(refused, Error::Poisoned(_)), "{self:?}: {refused}");
    }
}

/// Both media in memory: here it is the answers that count, not the disk.
fn everywhere(fault: Fault, calls: &[Call]) {
    let shm = Path::new("/dev/shm");
    let folder = if shm.is_dir() {
        tempfile::tempdir_in(shm)
    } else {
        tempfile::tempdir()
    }
    .unwrap();
    let mut places = 0;
    for durability in [Durability::Disk, Durability::Memory] {
        for pool in [PoolLimit::Grow, PoolLimit::Pages(3)] {
            for &call in calls {
                let case = Case {
                    durability,
                    pool,
                    call,
                    fault,
                };
                let path = |n: u64| -> PathBuf { folder.path().join(format!("store-{n}")) };
                let mut after = 0;
                while case.run(after, &path(after)) {
                    std::fs::remove_file(path(after)).unwrap();
                    after += 1;
                }
                std::fs::remove_file(path(after)).unwrap();
                places += after;
            }
        }
    }
    println!("{fault:?}: failed at {places} places");
    assert!(places > 100);
}

const ALL: [Call; 4] = [Call::Write, Call::Fence, Call::Grow, Call::Discard];

#[test]
fn a_refused_call_poisons_and_loses_nothing() {
    everywhere(Fault::Refused, &ALL);
}

#[test]
fn a_half_done_call_poisons_and_loses_nothing() {
    everywhere(Fault::HalfDone, &ALL);
}

#[test]
fn without_room_the_store_goes_on_later() {
    everywhere(Fault::NoRoom, &[Call::Write, Call::Fence, Call::Grow]);
}
