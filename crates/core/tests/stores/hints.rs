//! What a medium is told of what it is asked to do: every byte written has the cause it is counted for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use twinpage_baselines::{AnyScheme, Setup};
use twinpage_core::crash::*;
use twinpage_core::*;

/// Bytes by cause, for all waiters.
type Told = Rc<RefCell<BTreeMap<Cause, [u64; 2]>>>;

/// Memory that counts what it is told.
struct Listening {
    image: Image,
    hint: Cell<(Cause, Path)>,
    told: Told,
}

impl Medium for Listening {
    fn hint(&self, cause: Cause, path: Path) {
        self.hint.set((cause, path));
    }
    fn len(&self) -> u64 {
        self.image.len()
    }
    fn grow(&mut self, len: u64) -> Result<()> {
        self.image.grow(len)
    }
    fn read(&self, at: Offset, into: &mut [u8]) -> Result<()> {
        self.image.read(at, into)
    }
    fn write(&mut self, at: Offset, bytes: &[u8]) -> Result<()> {
        let (cause, path) = self.hint.get();
        self.told.borrow_mut().entry(cause).or_default()[path as usize] += bytes.len() as u64;
        self.image.write(at, bytes)
    }
    fn fence(&mut self) -> Result<()> {
        Ok(())
    }
    fn atom(&self) -> usize {
        8
    }
}

#[test]
fn a_medium_is_told_what_everything_is_for() {
    let profile = Profile {
        epochs: 30,
        pages: 20,
        writes: 12,
        context: 300,
    };
    let mut setup = Setup::new(Geometry::new(64, 4096).unwrap());
    setup.pool = twinpage_core::dual_page::PoolLimit::Pages(8);
    setup.journal_bytes = 512;
    // What packed lines write is data to the scheme below, which is the one to give hints.
    let kinds = SchemeKind::ALL
        .into_iter()
        .filter(|&kind| kind != SchemeKind::Packed);
    for kind in kinds {
        let told = Told::default();
        let medium = Listening {
            image: Image::new(8),
            hint: Cell::new((Cause::Data, Path::Critical)),
            told: Rc::clone(&told),
        };
        let store = AnyScheme::create(kind, medium, &setup).unwrap();
        told.borrow_mut().clear();
        let mut steps = random_steps(&profile, &mut Random::new(3));
        steps.retain(|step| !matches!(step, Step::Abandon));
        let mut run = Run::new(store, Log::default(), State::default());
        run.go(&steps).unwrap();
        let traffic = run.scheme.info().traffic;
        let told = told.borrow();
        println!("{kind}: bytes the call waits for, and not: {told:?}");
        for cause in Cause::ALL {
            let bytes = told.get(&cause).copied().unwrap_or_default();
            assert_eq!(bytes.iter().sum::<u64>(), traffic.of(cause), "{kind}: {cause:?}");
        }
        let posted: u64 = told.values().map(|bytes| bytes[Path::Background as usize]).sum();
        assert!(posted > 0, "{kind}: an evicted line is posted");
    }
}
