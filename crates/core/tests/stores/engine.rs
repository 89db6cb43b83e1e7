//! The epoch engine, with a scheme that keeps everything in memory and fails when told to.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use twinpage_core::crash::Image;
use twinpage_core::dual_page::DualPage;
use twinpage_core::engine::{Engine, EngineError, Inline, Witness};
use twinpage_core::*;

type Pages = BTreeMap<u64, Vec<u8>>;

/// Pages in memory; the n-th commit fails with `failures[n]`.
#[derive(Debug)]
struct Toy {
    durable: Pages,
    newest: Pages,
    epoch: Epoch,
    commits: u64,
    failures: BTreeMap<u64, fn() -> Error>,
    poison: Poison,
}

impl Scheme for Toy {
    fn geometry(&self) -> Geometry {
        Geometry::MEMORY
    }
    fn read(&self, page: PageId, first: usize, into: &mut [u8]) -> Result<()> {
        match self.newest.get(&page.0) {
            Some(bytes) => into.copy_from_slice(&bytes[first * 64..][..into.len()]),
            None => into.fill(0),
        }
        Ok(())
    }
    fn is_present(&self, page: PageId) -> bool {
        self.newest.contains_key(&page.0)
    }
    fn diff(&self, lines: &PageLines<'_>) -> Result<LineMask> {
        let mut line = [0; 64];
        lines.held.runs().flatten().try_fold(LineMask::NONE, |differ, k| {
            self.read(lines.page, k, &mut line)?;
            let differs = line != *lines.line(k);
            Ok(differ | LineMask(u64::from(differs) << k))
        })
    }
    fn write(&mut self, lines: PageLines<'_>) -> Result<Pressure> {
        let page = self.newest.entry(lines.page.0).or_insert_with(|| vec![0; 4096]);
        for run in lines.changed.runs() {
            page[run.start * 64..run.end * 64].copy_from_slice(lines.run(run));
        }
        Ok(Pressure::None)
    }
    fn discard(&mut self, pages: Range<PageId>) -> Result<()> {
        self.newest.retain(|&page, _| !pages.contains(&PageId(page)));
        Ok(())
    }
    fn commit(&mut self, context: &[u8]) -> Result<Epoch> {
        assert_eq!(context, (self.epoch + 1).to_le_bytes());
        self.commits += 1;
        match self.failures.get(&self.commits) {
            Some(failure) => Err(failure()),
            None => {
                self.durable = self.newest.clone();
                self.epoch += 1;
                Ok(self.epoch)
            }
        }
    }
    fn abandon(&mut self) {
        self.newest = self.durable.clone();
    }
    fn epoch(&self) -> Epoch {
        self.epoch
    }
    fn info(&self) -> Info {
        Info {
            scheme: "toy",
            version: 0,
            checksums: false,
            geometry: Geometry::MEMORY,
            epoch: self.epoch,
            pages: 0,
            medium_bytes: 0,
            context_bytes: 0,
            pool: PoolInfo::default(),
            log: None,
            traffic: Traffic::default(),
            poison: self.poison.clone(),
        }
    }
    fn check(&self) -> Result<Vec<Damage>> {
        Ok(vec![])
    }
}

/// One page that counts up; what was lost is captured again.
#[derive(Default)]
struct Counter {
    value: u8,
    owed: Vec<Piece>,
    learned: Vec<(PageId, u32)>,
    poisoned: u32,
}

impl Source for Counter {
    type Error = Error;
    fn capture(&mut self, into: &mut Capture) -> Result<()> {
        assert!(into.pieces.is_empty() && into.bytes.is_empty() && into.context.is_empty());
        self.value += 1;
        into.context.extend(into.epoch.to_le_bytes());
        into.attachment = Some(Box::new(self.value));
        let mut page = [0; 4096];
        page[0] = self.value;
        into.push(Piece::whole(PageId(0), true), &page);
        into.push(
            Piece {
                page: PageId(1),
                held: LineMask::run(3, 2),
                compare: false,
            },
            &[self.value; 128],
        );
        for piece in self.owed.drain(..) {
            into.push(Piece::whole(PageId(piece.page.0 + 10), true), &[self.value; 4096]);
        }
        Ok(())
    }
    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>) {
        assert_eq!(
            capture.attachment.take().unwrap().downcast_ref(),
            Some(&self.value)
        );
        match outcome {
            Outcome::Durable { report, changed } => {
                assert_eq!(report.epoch, capture.epoch);
                let pieces = capture.pieces.iter().zip(changed);
                let compared = pieces.filter(|(piece, _)| piece.compare);
                self.learned
                    .extend(compared.map(|(piece, &n)| (piece.page, n.into())));
            }
            Outcome::Lost(_) => self.owed.extend_from_slice(&capture.pieces),
            Outcome::Poisoned(_) => self.poisoned += 1,
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(&'static str, Epoch)>>>);

impl Witness for Log {
    fn before_commit(&mut self, capture: &mut Capture) -> Result<()> {
        assert!(
            capture.attachment.is_some(),
            "what belongs to the epoch rides with it"
        );
        self.0.lock().unwrap().push(("before", capture.epoch));
        Ok(())
    }
    fn durable(&mut self, epoch: Epoch) {
        self.0.lock().unwrap().push(("durable", epoch));
    }
}

type Failure = (u64, fn() -> Error);

fn toy(failures: &[Failure]) -> Toy {
    Toy {
        durable: Pages::new(),
        newest: Pages::new(),
        epoch: 0,
        commits: 0,
        failures: failures.iter().copied().collect(),
        poison: Poison::default(),
    }
}

fn full() -> Error {
    Error::Full {
        what: "the toy".into(),
        needed: 1,
    }
}

#[test]
fn epochs_become_durable_one_after_the_other() {
    let log = Log::default();
    let mut source = Counter::default();
    let mut engine = Engine::start(toy(&[]), log.clone()).unwrap();
    for epoch in 1..=5 {
        let started = engine.checkpoint(&mut source).unwrap();
        assert_eq!(started.epoch, epoch);
        assert_eq!(
            started.last.map(|report| report.epoch),
            (epoch > 1).then_some(epoch - 1)
        );
    }
    let report = engine.wait(&mut source).unwrap().unwrap();
    assert_eq!(
        (report.epoch, report.lines, report.pieces, report.captured_bytes),
        (5, 3, 2, 4096 + 128)
    );
    assert!(engine.is_idle() && engine.wait(&mut source).unwrap().is_none());
    assert_eq!(source.learned, [(PageId(0), 1); 5]);
    let finished = engine.finish();
    assert!(finished.last.unwrap().is_none());
    assert_eq!(finished.scheme.durable[&0][0], 5);
    assert_eq!(finished.scheme.durable[&1][3 * 64..5 * 64], [5; 128]);
    let calls = log.0.lock().unwrap();
    assert_eq!(
        *calls,
        (1..=5)
            .flat_map(|n| [("before", n), ("durable", n)])
            .collect::<Vec<_>>()
    );
}

/// A source that captures nothing in its stop, and three parts after it.
#[derive(Debug)]
struct Afterwards(u8);

impl Source for Afterwards {
    type Error = Error;
    fn capture(&mut self, into: &mut Capture) -> Result<()> {
        into.context.extend(into.epoch.to_le_bytes());
        into.later = Some(Box::new(Afterwards(3)));
        Ok(())
    }
    fn settled(&mut self, capture: &mut Capture, outcome: Outcome<'_>) {
        let later: Box<dyn std::any::Any> = capture.later.take().unwrap();
        assert_eq!(later.downcast::<Afterwards>().unwrap().0, 0, "asked to the end");
        self.0 += u8::from(matches!(outcome, Outcome::Lost(_)));
    }
}

impl Later for Afterwards {
    fn more(&mut self, into: &mut Capture) -> bool {
        assert!(into.pieces.is_empty() && into.bytes.is_empty());
        if self.0 == 0 {
            return false;
        }
        let piece = Piece {
            page: PageId(self.0.into()),
            held: LineMask::run(7, 1),
            compare: false,
        };
        into.push(piece, &[self.0; 64]);
        self.0 -= 1;
        true
    }
}

#[test]
fn what_is_captured_after_the_stop_is_in_the_epoch() {
    let mut source = Afterwards(0);
    let mut engine = Engine::start(toy(&[(2, full)]), ()).unwrap();
    engine.checkpoint(&mut source).unwrap();
    let report = engine.wait(&mut source).unwrap().unwrap();
    assert_eq!((report.lines, report.pieces, report.captured_bytes), (3, 3, 192));
    engine.checkpoint(&mut source).unwrap();
    assert!(matches!(
        engine.wait(&mut source),
        Err(EngineError::Lost { epoch: 2, .. })
    ));
    assert_eq!(source.0, 1);
    let durable = engine.finish().scheme.durable;
    assert_eq!(durable.len(), 3);
    assert!(
        durable
            .iter()
            .all(|(&page, bytes)| bytes[448..512] == [page as u8; 64] && bytes[0] == 0)
    );
}

#[test]
fn a_lost_epoch_is_owed_and_the_next_one_takes_its_number() {
    let mut source = Counter::default();
    let mut engine = Engine::start(toy(&[(2, full)]), ()).unwrap();
    engine.checkpoint(&mut source).unwrap();
    engine.checkpoint(&mut source).unwrap();
    let lost = engine.checkpoint(&mut source).unwrap_err();
    assert!(matches!(lost, EngineError::Lost { epoch: 2, .. }), "{lost}");
    assert_eq!(source.owed.len(), 2);
    assert_eq!(engine.checkpoint(&mut source).unwrap().epoch, 2);
    let scheme = engine.finish().scheme;
    assert_eq!(scheme.epoch, 2);
    assert_eq!(scheme.durable.keys().copied().collect::<Vec<_>>(), [0, 1, 10, 11]);
}

#[test]
fn any_other_failure_is_for_good() {
    let broken = || Error::Damaged {
        what: "toy",
        at: 7,
        why: "on purpose".into(),
    };
    let mut source = Counter::default();
    let mut engine = Engine::start(toy(&[(1, broken)]), ()).unwrap();
    engine.checkpoint(&mut source).unwrap();
    assert!(matches!(
        engine.wait(&mut source),
        Err(EngineError::Store(Error::Damaged { .. }))
    ));
    for _ in 0..2 {
        let refused = engine.checkpoint(&mut source).unwrap_err();
        assert!(
            matches!(&refused, EngineError::Store(Error::Poisoned(why)) if why.to_string().contains("on purpose"))
        );
    }
    assert_eq!(source.poisoned, 1);
    assert!(matches!(engine.finish().last, Err(Error::Poisoned(_))));
}

#[test]
fn dropping_the_engine_commits_what_is_in_flight() {
    let log = Log::default();
    let mut source = Counter::default();
    let mut engine = Engine::start(toy(&[]), log.clone()).unwrap();
    engine.checkpoint(&mut source).unwrap();
    drop(engine);
    assert_eq!(log.0.lock().unwrap().last(), Some(&("durable", 1)));
}

#[test]
fn a_capture_that_does_not_add_up_is_refused() {
    struct Short;
    impl Source for Short {
        type Error = Error;
        fn capture(&mut self, into: &mut Capture) -> Result<()> {
            into.pieces.push(Piece {
                page: PageId(9),
                held: LineMask::run(59, 5),
                compare: false,
            });
            Ok(())
        }
        fn settled(&mut self, _: &mut Capture, _: Outcome<'_>) {}
    }
    let mut engine = Engine::start(toy(&[]), ()).unwrap();
    engine.checkpoint(&mut Short).unwrap();
    let refused = engine.wait(&mut Short).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("5 captured lines of page 9 end at byte 320 of 0"),
        "{refused}"
    );
}

#[test]
fn the_engine_and_the_dual_page_scheme() {
    let store = DualPage::create(Image::new(8), &dual_page::Options::new(Geometry::MEMORY)).unwrap();
    let mut source = Counter::default();
    let mut engine = Engine::start(store, ()).unwrap();
    for _ in 0..200 {
        engine.checkpoint(&mut source).unwrap();
    }
    let report = engine.wait(&mut source).unwrap().unwrap();
    assert_eq!(
        (report.epoch, report.lines, report.traffic.data_bytes),
        (200, 3, 3 * 64)
    );
    let store = engine.finish().scheme;
    assert_eq!(store.check().unwrap(), []);
    let (store, found) = DualPage::recover(store.into_medium()).unwrap();
    assert_eq!(
        found,
        Recovered {
            epoch: 200,
            context: 200_u64.to_le_bytes().to_vec()
        }
    );
    let mut line = [0; 64];
    store.read(PageId(1), 4, &mut line).unwrap();
    assert_eq!(line, [200; 64]);
}

#[test]
fn without_a_thread_an_epoch_is_durable_when_the_checkpoint_returns() {
    let broken = || Error::Damaged {
        what: "toy",
        at: 7,
        why: "on purpose".into(),
    };
    let (mut source, log) = (Counter::default(), Log::default());
    let mut engine = Inline::new(toy(&[(2, full), (4, broken)]), log.clone());
    let report = engine.checkpoint(&mut source).unwrap();
    assert_eq!((report.epoch, report.lines), (1, 3));
    let told = [("before", 1), ("durable", 1)];
    assert_eq!(*log.0.lock().unwrap(), told);
    let lost = engine.checkpoint(&mut source).unwrap_err();
    assert!(matches!(lost, EngineError::Lost { epoch: 2, .. }), "{lost}");
    assert_eq!(engine.checkpoint(&mut source).unwrap().epoch, 2);
    let failed = engine.checkpoint(&mut source).unwrap_err();
    assert!(
        matches!(failed, EngineError::Store(Error::Damaged { .. })),
        "{failed}"
    );
    let refused = engine.checkpoint(&mut source).unwrap_err();
    assert!(
        matches!(refused, EngineError::Store(Error::Poisoned(_))),
        "{refused}"
    );
}
