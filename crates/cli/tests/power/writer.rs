//! A store of the dual-page scheme, and an oracle that needs no memory of what was written: what an
//! epoch writes follows from its number alone, so the state at an epoch is found by going through them.

use super::guest::say;
use std::collections::BTreeMap;
use std::path::Path;
use twinpage_core::crash::Random;
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::{Epoch, Error, LineMask, PageId, PageLines, Result, Scheme, Simulated};
use twinpage_os::{Access, AnyMedium, Durability};

/// Pages there may be.
const PAGES: u64 = 24;
/// Commits tried after one failed.
const STUBBORN: u32 = 3;

/// Which epoch wrote each line last; 0 for lines that read as zero.
type Model = BTreeMap<u64, [Epoch; 64]>;

/// What an epoch does.
struct Plan {
    writes: Vec<(u64, LineMask)>,
    discard: Option<u64>,
    reclaim: u64,
    context_bytes: usize,
}

impl Plan {
    fn of(epoch: Epoch) -> Plan {
        let mut random = Random::new(epoch);
        let writes = (0..1 + random.below(5)).map(|_| {
            let page = random.below(PAGES);
            let lines = match random.below(4) {
                0 => LineMask::ALL,
                1 => LineMask(random.number() & random.number()),
                _ => LineMask(1 << random.below(64) | 1 << random.below(64)),
            };
            (page, lines)
        });
        Plan {
            writes: writes.collect(),
            discard: random.once_in(10).then(|| random.below(PAGES)),
            reclaim: random.below(3),
            context_bytes: 8 + random.below(300) as usize,
        }
    }

    fn apply(&self, epoch: Epoch, model: &mut Model) {
        for &(page, lines) in &self.writes {
            let writers = model.entry(page).or_insert([0; 64]);
            (0..64)
                .filter(|&line| lines.has(line))
                .for_each(|line| writers[line] = epoch);
        }
        if let Some(page) = self.discard {
            model.remove(&page);
        }
    }
}

/// What `epoch` writes into a line.
fn fill(line: &mut [u8], page: u64, number: usize, epoch: Epoch) {
    if epoch == 0 {
        return line.fill(0);
    }
    let mut word = Random::new(epoch << 20 ^ page << 8 ^ number as u64);
    for bytes in line.chunks_exact_mut(8) {
        bytes.copy_from_slice(&word.number().to_ne_bytes());
    }
}

fn context(epoch: Epoch, bytes: usize) -> Vec<u8> {
    epoch.to_ne_bytes().into_iter().cycle().take(bytes).collect()
}

/// Recovers the store and verifies it, or makes it where there is none; then writes until the power goes.
pub(crate) fn run(path: &Path, on_dax: bool, go_on: bool) {
    let done = open(path, on_dax).and_then(|store| if go_on { write(store) } else { Ok(()) });
    if let Err(error) = done {
        say(&format!("broken: {error}"));
    }
}

fn open(path: &Path, on_dax: bool) -> Result<DualPage<AnyMedium>> {
    let made = path.with_extension("made");
    if !made.exists() {
        // Cut while it was made: nothing was promised yet.
        let _ = std::fs::remove_file(path);
        let medium = AnyMedium::create(path, Durability::Disk)?;
        assert_eq!(
            matches!(medium, AnyMedium::Dax(_)),
            on_dax,
            "the medium found by looking"
        );
        let options = Options::new(medium.geometry())
            .pool(PoolLimit::Pages(6))
            .journal_bytes(4096);
        drop(DualPage::create(medium, &options)?);
        let folder = std::fs::File::create(&made).and_then(|_| std::fs::File::open("/mnt"));
        folder
            .and_then(|folder| folder.sync_all())
            .expect("a durable note");
    }
    let medium = AnyMedium::open(path, Durability::Disk, Access::ReadWrite)?;
    assert_eq!(
        matches!(medium, AnyMedium::Dax(_)),
        on_dax,
        "the medium found by looking"
    );
    let (store, found) = DualPage::recover(medium)?;
    let mut model = Model::new();
    (1..=found.epoch).for_each(|epoch| Plan::of(epoch).apply(epoch, &mut model));
    if let Some(what) = differs(&store, &found.context, &model)? {
        return Err(Error::Invalid(format!("epoch {}: {what}", found.epoch)));
    }
    if let Some(damage) = store.check()?.first() {
        return Err(Error::Invalid(format!("epoch {}: {damage:?}", found.epoch)));
    }
    say(&format!("whole {}", found.epoch));
    Ok(store)
}

/// The first thing that is not as the model has it.
fn differs(store: &DualPage<AnyMedium>, found: &[u8], model: &Model) -> Result<Option<String>> {
    let epoch = store.epoch();
    if epoch > 0 && found != context(epoch, Plan::of(epoch).context_bytes) {
        return Ok(Some("another context".into()));
    }
    let line_bytes = store.geometry().line_bytes();
    let (mut line, mut page_bytes) = (vec![0; line_bytes], vec![0; store.geometry().page_bytes()]);
    for page in 0..PAGES {
        store.read(PageId(page), 0, &mut page_bytes)?;
        let writers = model.get(&page).unwrap_or(&[0; 64]);
        for (number, held) in page_bytes.chunks(line_bytes).enumerate() {
            fill(&mut line, page, number, writers[number]);
            if held != line {
                return Ok(Some(format!(
                    "line {number} of page {page} is not of epoch {}",
                    writers[number]
                )));
            }
        }
    }
    Ok(None)
}

/// Epoch after epoch, until the power goes or the medium fails.
fn write(mut store: DualPage<AnyMedium>) -> Result<()> {
    loop {
        let epoch = store.epoch() + 1;
        let plan = Plan::of(epoch);
        match commit(&mut store, &plan, epoch) {
            Ok(()) => say(&format!("durable {epoch}")),
            Err(error) => return refused(&mut store, &plan, epoch, &error),
        }
    }
}

fn commit(store: &mut DualPage<AnyMedium>, plan: &Plan, epoch: Epoch) -> Result<()> {
    let line_bytes = store.geometry().line_bytes();
    let mut bytes = vec![0; store.geometry().page_bytes()];
    for &(page, lines) in &plan.writes {
        for (number, line) in bytes.chunks_mut(line_bytes).enumerate() {
            fill(line, page, number, epoch);
        }
        let whole = PageLines::from(PageId(page), 0, &bytes, line_bytes);
        let _ = store.write(whole.only(lines))?;
    }
    if let Some(page) = plan.discard {
        store.discard(PageId(page)..PageId(page + 1))?;
    }
    let committed = store.commit(&context(epoch, plan.context_bytes))?;
    assert_eq!(committed, epoch);
    store.reclaim(plan.reclaim)?;
    Ok(())
}

/// A commit failed: no other may succeed, however often it is tried.
fn refused(store: &mut DualPage<AnyMedium>, plan: &Plan, epoch: Epoch, error: &Error) -> Result<()> {
    for _ in 0..STUBBORN {
        store.abandon();
        match commit(store, plan, epoch) {
            Err(Error::Poisoned(_)) => {}
            other => return Err(Error::Invalid(format!("epoch {epoch} after {error}: {other:?}"))),
        }
    }
    say(&format!("refused {epoch} {error}"));
    // Until the power goes.
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
