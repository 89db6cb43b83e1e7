//! Objects that go to the next level and come back: which ones, what kills leave, a model beside them, and second files
//! that are missing, another's, cut or flipped.
//!
//! `TWINPAGE_LONG` makes it many kills.

// The methods of an object are public: its handle is for others.
#![allow(unreachable_pub)]

use crate::recorded::{record, survives_cuts};
use crate::support::{again, flushes, folders, killed_after, longest, name, on_small_disk, when_free};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use twinpage::collections::{HashMap, String as Text, Vec as List};
use twinpage::inspect::inspect;
use twinpage::objects::list;
use twinpage::{Error, Heap, Options, Persist, Region, SchemeKind, Update};

const FILE: &str = "TWINPAGE_TEST_LEVELS";
const FROM: &str = "TWINPAGE_TEST_FROM";
/// Numbers of a new sheet: 40 pages.
const CELLS: u64 = 20_000;
/// Bytes of the region's own file for two or three sheets.
const FIRST: u64 = 720 << 10;

/// A large block, and many small ones.
#[derive(Persist)]
struct Sheet<'r> {
    puts: u64,
    cells: List<'r, u64>,
    names: HashMap<'r, u64, Text<'r>>,
}

#[twinpage::object]
impl<'r> Sheet<'r> {
    fn of(u: &Update<'r>, cells: u64) -> Sheet<'r> {
        Sheet {
            puts: 0,
            cells: u.collect(0..cells),
            names: u.empty::<HashMap<u64, Text>>(),
        }
    }

    pub fn write(&mut self, heap: Heap<'r>, number: u64) {
        self.puts += 1;
        let length = self.cells.len() as u64;
        self.cells[(number.wrapping_mul(7919) % length) as usize] = number;
        if number.is_multiple_of(3) {
            self.cells.push(number);
        }
        let name = "x".repeat(number as usize % 300);
        self.names.insert(number % 64, Text::from_in(&name, heap));
    }

    pub fn put(&mut self, heap: Heap<'r>, number: u64) -> u64 {
        self.write(heap, number);
        self.puts
    }

    pub fn puts(&self) -> u64 {
        self.puts
    }

    pub fn all(&self) -> (u64, Vec<u64>, Vec<usize>) {
        let names = (0..64).map(|name| self.names.get(&name).map_or(usize::MAX, |name| name.len()));
        (self.puts, self.cells.to_vec(), names.collect())
    }
}

/// The same without a region.
#[derive(Clone, PartialEq)]
struct Model(u64, Vec<u64>, Vec<usize>);

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sum = DefaultHasher::new();
        (&self.1, &self.2).hash(&mut sum);
        write!(f, "{} puts, {} cells, {:x}", self.0, self.1.len(), sum.finish())
    }
}

impl Model {
    fn new() -> Model {
        Model::of(CELLS)
    }

    fn of(cells: u64) -> Model {
        Model(0, (0..cells).collect(), vec![usize::MAX; 64])
    }

    fn write(&mut self, number: u64) {
        self.0 += 1;
        let length = self.1.len() as u64;
        self.1[(number.wrapping_mul(7919) % length) as usize] = number;
        if number.is_multiple_of(3) {
            self.1.push(number);
        }
        self.2[number as usize % 64] = number as usize % 300;
    }
}

fn levels(folder: &TempDir) -> (PathBuf, PathBuf) {
    (
        folder.path().join("sheets.twin"),
        folder.path().join("sheets.level"),
    )
}

fn options(level: &Path) -> Options {
    Region::options().next_level(level).first_level(FIRST)
}

fn open(path: &Path, level: &Path) -> Region {
    when_free(|| options(level).open(path))
}

fn sheet(region: &Region, name: &str) -> SheetHandle {
    region.object::<Sheet>(name, |u| Sheet::of(u, CELLS)).unwrap()
}

fn all(handle: &SheetHandle) -> Model {
    let (puts, cells, names) = handle.all().unwrap();
    Model(puts, cells, names)
}

/// The numbers of the objects that are in the next level.
fn away(path: &Path) -> BTreeSet<u64> {
    let found = inspect(path).unwrap();
    found
        .next_level()
        .map_or_else(BTreeSet::new, |(_, objects)| objects.into_keys().collect())
}

/// All is as it was written, in both files.
fn assert_whole(path: &Path) {
    let (damage, report) = when_free(|| inspect(path)).check().unwrap();
    assert!(damage.is_empty(), "{damage:?}");
    // There is none before anything was made.
    let report = report.unwrap_or_default();
    assert!(report.is_sound(), "{report:?}");
}

#[test]
fn those_that_were_not_called_for_longest_go_and_come_back_when_they_are_called() {
    for folder in folders() {
        let (path, level) = levels(&folder);
        let region = open(&path, &level);
        let handles: Vec<_> = (1..=5).map(|id| sheet(&region, &format!("sheet {id}"))).collect();
        let stay = 5 - away(&path).len() as u64;
        assert!((2..=3).contains(&stay), "{stay} of five stay");
        let mut order: Vec<u64> = (1..=5).collect();
        let mut random = fastrand::Rng::with_seed(7);
        for step in 0..200 {
            let id = random.u64(1..=5);
            let handle = &handles[id as usize - 1];
            match step % 3 {
                0 => assert!(handle.puts().unwrap() <= 200),
                1 => assert!(handle.put(step).unwrap() > 0),
                _ => {
                    let before = away(&path);
                    handle.write(step);
                    assert_eq!(away(&path), before, "a call that is logged moves nothing");
                    handle.sync().unwrap();
                }
            }
            order.retain(|&other| other != id);
            order.push(id);
            let found = away(&path);
            let coldest: BTreeSet<u64> = order.iter().copied().take(found.len()).collect();
            assert_eq!(found, coldest, "step {step}");
            assert!((2..=3).contains(&found.len()), "step {step}: {found:?}");
        }
        region.close().unwrap();
        assert_whole(&path);
        let told = when_free(|| list(&path));
        let away = told.iter().filter(|object| object.next_level_bytes > 0);
        for object in away {
            assert!(object.next_level_bytes >= CELLS * 8 - 8192, "{object:?}");
            assert!(object.next_level_bytes <= object.bytes, "{object:?}");
        }
    }
}

/// Objects that no handle of this process called are the coldest.
#[test]
fn what_is_not_open_goes_first_and_is_found_in_the_next_life() {
    let folder = tempfile::tempdir().unwrap();
    let (path, level) = levels(&folder);
    let region = when_free(|| Region::options().next_level(&level).open(&path));
    for id in 1..=4 {
        assert_eq!(sheet(&region, &format!("sheet {id}")).put(id).unwrap(), 1);
    }
    region.close().unwrap();
    assert_eq!(away(&path), BTreeSet::new(), "nothing is short");

    let region = when_free(|| Region::options().first_level(400 << 10).open(&path)); // the link says where
    let last = sheet(&region, "sheet 1");
    assert_eq!(last.puts().unwrap(), 1);
    region.checkpoint().unwrap();
    assert!(away(&path).contains(&2) && !away(&path).contains(&1));
    assert_eq!(sheet(&region, "sheet 2").puts().unwrap(), 1);
    assert!(!away(&path).contains(&2));
    region.close().unwrap();
    assert_whole(&path);
}

/// Random calls, freeings, closings and copies, beside a model.
#[test]
fn objects_in_two_levels_are_as_in_one() {
    let every = [None, Some(Duration::from_millis(1))];
    let kinds = [
        (SchemeKind::Packed, 64),
        (SchemeKind::DualPage, 64),
        (SchemeKind::DualPage, 4096),
    ];
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for (kind, line) in kinds {
        for every in every {
            let folder = tempfile::tempdir().unwrap();
            let (path, level) = levels(&folder);
            let open = || {
                let first = if line == 4096 { 4 << 20 } else { FIRST };
                let options = Region::options().next_level(&level).first_level(first);
                let options = options.scheme(kind).line_bytes(line);
                when_free(|| {
                    every
                        .map_or(options.clone(), |every| options.clone().every(every))
                        .open(&path)
                })
            };
            let mut region = open();
            let (mut model, mut handles) = (BTreeMap::new(), BTreeMap::new());
            for step in 0..twinpage_campaign::either(200, 400) {
                let name = random.u64(0..6);
                let text = format!("sheet {name}");
                match random.u32(0..100) {
                    0..3 => {
                        handles.clear();
                        region.close().unwrap();
                        region = open();
                    }
                    3..8 if model.remove(&name).is_some() => {
                        handles.remove(&name);
                        region.free_object(&text).unwrap();
                    }
                    8..10 => assert_copied(&region, &folder.path().join("copy.twin")),
                    choice => {
                        let handle: &SheetHandle =
                            handles.entry(name).or_insert_with(|| sheet(&region, &text));
                        let sheet = model.entry(name).or_insert_with(Model::new);
                        for number in step * 10..step * 10 + u64::from(choice % 7) {
                            handle.write(number);
                            sheet.write(number);
                        }
                        if choice % 4 == 0 {
                            assert_eq!(all(handle), *sheet, "seed {seed}, step {step}");
                        }
                    }
                }
            }
            drop(handles);
            let report = region.check().unwrap();
            assert!(report.is_sound(), "seed {seed}: {report:?}");
            region.close().unwrap();
            assert_whole(&path);
            let region = open();
            for (name, sheet_model) in &model {
                let handle = sheet(&region, &format!("sheet {name}"));
                assert_eq!(all(&handle), *sheet_model, "seed {seed}, {kind:?}");
            }
            region.close().unwrap();
        }
    }
}

/// A copy is one file, with all there is.
fn assert_copied(region: &Region, copy: &Path) {
    region.backup(copy).unwrap();
    assert_whole(copy);
    assert_eq!(away(copy), BTreeSet::new());
    fs::remove_file(copy).unwrap();
}

/// A root of the program is the object, too: what is written of it in the next level comes back with its checkpoint.
#[test]
fn pages_that_are_written_in_the_next_level_come_back_with_what_was_written() {
    for line in [64, 4096] {
        let folder = tempfile::tempdir().unwrap();
        let (path, level) = levels(&folder);
        let open = || {
            let options = Region::options().next_level(&level).first_level(1);
            let options = options.scheme(SchemeKind::DualPage).line_bytes(line);
            when_free(|| options.clone().open(&path))
        };
        let region = open();
        drop(
            region
                .object::<Numbers>("numbers", |u| Numbers {
                    all: u.collect(0..200_000),
                })
                .unwrap(),
        );
        drop(sheet(&region, "last"));
        region.close().unwrap();
        let before = inspect(&path).unwrap().next_level().unwrap().1[&1];

        let region = open();
        let mut numbers = region
            .root_with::<Numbers>("numbers", |_| unreachable!())
            .unwrap();
        region.update(|u| {
            let all = &mut numbers.get_mut(u).all;
            (0..200_000)
                .step_by(60_000)
                .for_each(|place| all[place] = 1 << 40);
        });
        region.checkpoint().unwrap();
        let left = inspect(&path).unwrap().next_level().unwrap().1[&1];
        assert!(left > 0 && left + 4 * 4096 <= before, "lines of {line}: {left}");
        region.update(|u| numbers.get_mut(u).all.truncate(100_000));
        region.update(|u| numbers.get_mut(u).all.shrink_to_fit());
        drop(numbers);
        region.close().unwrap();
        assert_whole(&path);

        let region = open();
        let handle = region.object::<Numbers>("numbers", |_| unreachable!()).unwrap();
        let expected = |place: u64| {
            if place.is_multiple_of(60_000) {
                1 << 40
            } else {
                place
            }
        };
        assert_eq!(
            handle.all().unwrap(),
            (0..100_000).map(expected).collect::<Vec<_>>()
        );
        region.close().unwrap();
    }
}

#[derive(Persist)]
struct Numbers<'r> {
    all: List<'r, u64>,
}

#[twinpage::object]
impl Numbers<'_> {
    pub fn all(&self) -> Vec<u64> {
        self.all.to_vec()
    }
}

#[test]
fn room_that_nothing_names_is_used_again() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (path, level) = levels(&folder);
    let region = open(&path, &level);
    for round in 0..60 {
        let names = ["one", "two", "three", "four"];
        let handles = names.map(|name| sheet(&region, name));
        handles
            .iter()
            .for_each(|handle| assert_eq!(handle.put(round).unwrap(), 1));
        drop(handles);
        names.iter().for_each(|name| region.free_object(name).unwrap());
        assert_eq!(away(&path), BTreeSet::new(), "what is freed is in no level");
    }
    assert!(region.check().unwrap().is_sound());
    region.close().unwrap();
    let bytes = fs::metadata(&level).unwrap().len();
    assert!(bytes <= 4 << 20, "{bytes} bytes for half a MiB");
}

/// The contents after `steps` acknowledged steps.
fn state_after(steps: u64) -> BTreeMap<String, Model> {
    let mut all = BTreeMap::new();
    for step in 0..steps {
        let name = format!("sheet {}", step * 7 % 5);
        match step / 5 % 9 {
            8 => drop(all.remove(&name)),
            _ => all.entry(name).or_insert_with(Model::new).write(step),
        }
    }
    all
}

/// Does these steps, and says which are done.
fn go_on(path: &Path, steps: Range<u64>) {
    let level = path.with_extension("level");
    let region = options(&level)
        .every(Duration::from_micros(900))
        .open(path)
        .unwrap();
    let mut handles = BTreeMap::new();
    println!("begun");
    for step in steps {
        let name = format!("sheet {}", step * 7 % 5);
        if step / 5 % 9 == 8 {
            handles.remove(&name);
            if region.roots().unwrap().iter().any(|root| root.name == name) {
                region.free_object(&name).unwrap();
            }
        } else {
            let handle: &SheetHandle = handles
                .entry(name.clone())
                .or_insert_with(|| sheet(&region, &name));
            if step % 2 == 0 {
                handle.put(step).unwrap();
            } else {
                handle.write(step);
                handle.sync().unwrap();
            }
        }
        println!("{step}");
    }
}

#[test]
fn killed_at_any_instant_each_object_is_whole_in_one_level() {
    const NAME: &str = "killed_at_any_instant_each_object_is_whole_in_one_level";
    if let (Ok(path), Ok(from)) = (std::env::var(FILE), std::env::var(FROM)) {
        let from: u64 = from.parse().unwrap();
        return go_on(Path::new(&path), from..from + 1500);
    }
    let kills = twinpage_campaign::either(10, 400);
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        let (path, level) = levels(&folder);
        let mut steps = 0;
        for kill in 0..kills {
            let mut command = again(module_path!(), NAME);
            let command = command.env(FILE, &path).env(FROM, steps.to_string());
            let time = random.u64(..longest(120_000, steps, kill));
            let last = killed_after(command, Duration::from_micros(time));
            steps = last.map_or(steps, |step| step + 1);
            assert_whole(&path);
            let region = open(&path, &level);
            let found = found(&region);
            assert!(region.check().unwrap().is_sound(), "seed {seed}, kill {kill}");
            steps += u64::from(found != state_after(steps));
            assert_eq!(
                found,
                state_after(steps),
                "seed {seed}, kill {kill}, step {steps}"
            );
            region.close().unwrap();
        }
        assert!(steps > 0, "seed {seed}");
    }
}

/// All that was acknowledged is there, and the step that was underway, or nothing of it.
fn assert_state_after(folder: &TempDir, last: Option<u64>) {
    let ((path, level), steps) = (levels(folder), last.map_or(0, |step| step + 1));
    assert_whole(&path);
    let region = open(&path, &level);
    let found = found(&region);
    assert!(region.check().unwrap().is_sound());
    let steps = steps + u64::from(found != state_after(steps));
    assert_eq!(found, state_after(steps), "{steps} steps");
    region.close().unwrap();
    assert_whole(&path);
}

/// The table of objects, their log, its truncation, checkpoints, and what moves between the two levels.
#[test]
fn a_power_cut_at_any_instant_leaves_each_object_whole_in_one_level() {
    const NAME: &str = "a_power_cut_at_any_instant_leaves_each_object_whole_in_one_level";
    if let Ok(path) = std::env::var(FILE) {
        return go_on(Path::new(&path), 0..twinpage_campaign::either(50, 300));
    }
    let folder = tempfile::tempdir().unwrap();
    let (path, _) = levels(&folder);
    let test = name(module_path!(), NAME);
    let Some(run) = record(&test, folder.path(), (FILE, path.as_os_str())) else {
        return;
    };
    let files = ["sheets.twin", "sheets.level", "sheets.twin.log"];
    survives_cuts(
        &run,
        &files,
        twinpage_campaign::either(40, 2000),
        assert_state_after,
    );
}

/// What there is, but for a sheet that was made just before the kill, and not called.
fn found(region: &Region) -> BTreeMap<String, Model> {
    let roots = region.roots().unwrap();
    let names = roots.iter().map(|root| &*root.name);
    let sheets = names.filter(|name| name.starts_with("sheet") && !name.contains(':'));
    let all = sheets.map(|name| (name.to_owned(), all(&sheet(region, name))));
    all.filter(|(_, found)| found.0 > 0).collect()
}

/// A region with four objects, of which some are in the level.
fn closed(folder: &TempDir) -> (PathBuf, PathBuf) {
    let (path, level) = levels(folder);
    let region = open(&path, &level);
    for id in 1..=4 {
        assert_eq!(sheet(&region, &format!("sheet {id}")).put(id).unwrap(), 1);
    }
    region.close().unwrap();
    assert!(!away(&path).is_empty());
    (path, level)
}

/// All four are there.
fn assert_there(path: &Path, level: &Path) {
    let region = open(path, level);
    for id in 1..=4 {
        let mut model = Model::new();
        model.write(id);
        assert_eq!(all(&sheet(&region, &format!("sheet {id}"))), model);
    }
    region.close().unwrap();
}

#[test]
fn a_second_file_that_cannot_be_used_is_named_and_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, level) = closed(&folder);
    let (region_before, whole) = (fs::read(&path).unwrap(), fs::read(&level).unwrap());
    let refused = |file: &Path| {
        let error = when_free(|| match options(file).open(&path) {
            Ok(_) => panic!("{} is taken", file.display()),
            Err(Error::NextLevel { file, why }) => Ok((file, why)),
            Err(other) => Err(other),
        });
        assert_eq!(error.0, file);
        assert_eq!(
            fs::read(&path).unwrap(),
            region_before,
            "the region stays as it is"
        );
        error.1
    };
    // Missing: also for those who look.
    let elsewhere = folder.path().join("moved.level");
    fs::rename(&level, &elsewhere).unwrap();
    assert!(refused(&level).contains("put it back"));
    let looked = list(&path).unwrap_err().to_string();
    assert!(
        looked.contains("sheets.level") && looked.contains("put it back"),
        "{looked}"
    );
    // Moved: the option says where.
    assert_there(&path, &elsewhere);
    fs::rename(&elsewhere, &level).unwrap();
    assert_there(&path, &level);
    let (region_before, whole) = (fs::read(&path).unwrap(), fs::read(&level).unwrap_or(whole));

    // Another region's.
    let other = tempfile::tempdir().unwrap();
    let (_, foreign) = closed(&other);
    let refused = |why: &str| {
        let error = when_free(|| match options(&level).open(&path) {
            Ok(region) => {
                drop(region);
                panic!("it is taken, though {why}")
            }
            Err(Error::NextLevel { file, why }) => Ok((file, why)),
            Err(other) => Err(other),
        });
        assert_eq!(error.0, level);
        assert!(error.1.contains(why), "{}", error.1);
        assert_eq!(
            fs::read(&path).unwrap(),
            region_before,
            "the region stays as it is"
        );
    };
    fs::copy(&foreign, &level).unwrap();
    refused("of another region");
    fs::write(&level, "Dear Ada, ".repeat(100_000)).unwrap();
    refused("something else");
    for cut in [0, 30, 4096, 8192] {
        fs::write(&level, &whole[..cut]).unwrap();
        refused("cut");
    }
    // Flipped: the header, and the map.
    let map = inspect_level(&path, &level, &whole);
    for at in [9, 17, map, map + 30] {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        fs::write(&level, &flipped).unwrap();
        refused(if at == 9 { "version" } else { "damaged" });
        let checked = inspect(&path).err().map(|error| error.to_string());
        assert!(checked.unwrap().contains("sheets.level"));
    }
    fs::write(&level, &whole).unwrap();
    assert_there(&path, &level);
}

/// Where the map is in the level.
fn inspect_level(path: &Path, level: &Path, whole: &[u8]) -> usize {
    fs::write(level, whole).unwrap();
    inspect(path).unwrap().superblock.unwrap().level.at as usize
}

#[test]
fn a_flipped_page_is_an_error_of_the_calls_that_need_it_and_the_rest_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let (path, level) = closed(&folder);
    let whole = fs::read(&level).unwrap();
    let map = inspect_level(&path, &level, &whole);
    // The first entry of the map: its object, and where its page is.
    let number = |at: usize, bytes: usize| {
        let field = whole[map + 24 + at..][..bytes].iter().rev();
        field.fold(0, |number, &byte| number << 8 | u64::from(byte))
    };
    let (object, slot) = (number(8, 8), number(16, 4));
    let mut flipped = whole.clone();
    flipped[slot as usize * 4096 + 77] ^= 1;
    fs::write(&level, &flipped).unwrap();

    let (damage, _) = inspect(&path).unwrap().check().unwrap();
    assert!(
        damage[0].what == "next level" && damage[0].why.contains("sheets.level"),
        "{damage:?}"
    );
    let listed = list(&path).unwrap_err().to_string();
    assert!(listed.contains("sheets.level"), "{listed}");
    let checked = when_free(|| match options(&level).checked().open(&path) {
        Ok(_) => panic!("it is taken"),
        Err(error @ Error::Store(_)) => Ok(error.to_string()),
        Err(other) => Err(other),
    });
    assert!(checked.contains("sheets.level"), "{checked}");

    let region = open(&path, &level);
    let named = |id: u64| format!("sheet {id}");
    let opened = region.object::<Sheet>(&named(object), |u| Sheet::of(u, CELLS));
    let opened = opened.err().unwrap().to_string();
    assert!(opened.contains("sheets.level"), "{opened}");
    let freed = region.free_object(&named(object)).unwrap_err().to_string();
    assert!(freed.contains("sheets.level"), "{freed}");
    let checked = region.check().unwrap_err().to_string();
    assert!(checked.contains("sheets.level"), "{checked}");
    for id in (1..=4).filter(|&id| id != object) {
        assert_eq!(sheet(&region, &named(id)).puts().unwrap(), 1);
    }
    region.close().unwrap();
    assert!(away(&path).contains(&object));
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (path, level) = levels(&folder);
    let why = |options: Options, path: &Path| options.open(path).unwrap_err().to_string();
    assert!(why(Region::options().first_level(1), &path).contains("Options::next_level"));
    assert!(why(options(&level).sections(), &path).contains("next level"));
    fs::write(&level, "mine").unwrap();
    assert!(why(options(&level), &path).contains("move it away"));
    assert_eq!(fs::read(&level).unwrap(), b"mine");
    fs::remove_file(&level).unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let lost = in_memory.path().join("sheets.level");
    assert!(why(options(&lost), &path).contains("not outlive the machine"));
    // A file that a crash left empty is made anew.
    drop(open(&path, &level));
    fs::remove_file(&path).unwrap();
    let region = open(&path, &level);
    let second = options(&level).open(folder.path().join("second.twin"));
    assert!(matches!(second, Err(Error::Locked(_))), "{second:?}");
    region.close().unwrap();
    let (path, _) = closed(&folder);
    let sections = when_free(|| match Region::options().sections().open(&path) {
        Err(Error::Invalid(why)) => Ok(why),
        other => other.map(|_| String::new()),
    });
    assert!(sections.contains("free them"), "{sections}");
}

/// The region's file system is really full; the level lies elsewhere. Objects are large: the store gives its medium room
/// back by extents of 2 MiB.
#[test]
fn on_a_full_disk_cold_objects_go_instead_of_an_error() {
    const NAME: &str = "on_a_full_disk_cold_objects_go_instead_of_an_error";
    const DISK: usize = 48 << 20;
    const LARGE: u64 = 500_000;
    if std::env::var_os(FILE).is_none() {
        let folder = tempfile::tempdir().unwrap();
        on_small_disk(again(module_path!(), NAME).env(FILE, "1"), folder.path(), DISK);
        return;
    }
    for kind in [SchemeKind::DualPage, SchemeKind::Packed] {
        let (path, level) = (Path::new("disk/sheets.twin"), Path::new("sheets.level"));
        let region = Region::options().next_level(level).scheme(kind);
        let region = region.open(path).unwrap();
        let large = |id: u64| region.object::<Sheet>(&format!("sheet {id}"), |u| Sheet::of(u, LARGE));
        let handles: Vec<_> = (0..16).map(|id| large(id).unwrap()).collect();
        assert!(
            away(path).len() > 4,
            "16 sheets of 4 MB are too many for the disk"
        );
        let mut models = vec![Model::of(LARGE); handles.len()];
        let mut random = fastrand::Rng::with_seed(3);
        for step in 0..60 {
            let id = random.usize(..handles.len());
            handles[id].put(3 * step + 1).unwrap();
            models[id].write(3 * step + 1);
        }
        for (handle, model) in handles.iter().zip(&models) {
            assert_eq!(all(handle), *model);
        }
        region.close().unwrap();
        assert_whole(path);
        for file in ["disk/sheets.twin", "disk/sheets.twin.next", "sheets.level"] {
            fs::remove_file(file).unwrap();
        }
    }
}

/// What a power cut needs: the second file is durable before the commit that names what is in it.
#[test]
fn a_move_is_durable_in_the_second_file_before_the_region_names_it() {
    const NAME: &str = "a_move_is_durable_in_the_second_file_before_the_region_names_it";
    if let Ok(folder) = std::env::var(FILE) {
        let (path, level) = (
            Path::new(&folder).join("sheets.twin"),
            Path::new(&folder).join("sheets.level"),
        );
        let region = Region::options()
            .next_level(&level)
            .first_level(1)
            .open(&path)
            .unwrap();
        let [first, second] = ["first", "second"].map(|name| sheet(&region, name));
        assert_eq!(second.put(1).unwrap(), 1);
        let open = fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap());
        let open = open.filter_map(|entry| {
            let file = fs::read_link(entry.path()).ok()?;
            Some(format!("{} {}\n", entry.file_name().display(), file.display()))
        });
        fs::write(Path::new(&folder).join("open"), open.collect::<String>()).unwrap();
        println!("from here");
        assert_eq!(first.put(2).unwrap(), 1);
        println!("to here");
        drop((first, second));
        return region.close().unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let test = name(module_path!(), NAME);
    let Some(flushes) = flushes(&test, &[(FILE, folder.path().as_os_str())]) else {
        return;
    };
    let open = fs::read_to_string(folder.path().join("open")).unwrap();
    let file_of = |call: &String| {
        let number = call.split_once("sync(").unwrap().1;
        let number: String = number.chars().take_while(char::is_ascii_digit).collect();
        let file = open
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{number} ")));
        file.unwrap().rsplit('/').next().unwrap().to_owned()
    };
    let mut order: Vec<_> = flushes.iter().map(file_of).collect();
    order.dedup();
    let (level, region) = ("sheets.level", "sheets.twin");
    // `first` comes back, which leaves nothing in the second file; `second` goes, and then the call is made.
    assert_eq!(order, [region, level, region, "sheets.twin.log"], "{flushes:?}");
}

#[test]
fn the_regions_own_file_is_no_next_level() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sheets.twin");
    let link = folder.path().join("sheets.twin.next");
    let other_name = folder.path().join("other.twin");
    std::os::unix::fs::symlink("sheets.twin", &other_name).unwrap();
    fs::create_dir(folder.path().join("in")).unwrap();
    let round_about = folder.path().join("in/../sheets.twin");
    let all_refused = || {
        for level in [&path, &link, &other_name, &round_about] {
            let opened = Region::options().next_level(level).open(&path);
            let why = opened.unwrap_err().to_string();
            assert!(why.contains("the region's own file"), "{why}");
        }
    };
    all_refused();
    assert!(!path.exists() && !link.is_symlink(), "nothing is begun");
    Region::open(&path).unwrap().close().unwrap();
    all_refused();
    assert!(!link.is_symlink());
    Region::open(&path).unwrap().close().unwrap();
}
