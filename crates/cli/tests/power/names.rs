//! Files whose names and bytes change with every step, and in memory what they must be: after a power cut both are
//! as at one checkpoint, or a step says so.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use twinpage_core::crash::Random;

/// Names that there may be: few, so that they meet.
const NAMES: u64 = 24;
/// For as many steps, and then again after as many, no byte of a file is overwritten: a program that was resumed
/// meanwhile writes without a stop.
const ADDING: u64 = 400;

/// The folder, and what is in it.
pub(crate) struct Folder {
    path: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    /// Two that stay open and are only added to: one that was new or emptied, and one that is appended to.
    journal: Option<File>,
    log: Option<File>,
}

impl Folder {
    /// The folder at `path`, made if it is not there: it was in no checkpoint then.
    pub(crate) fn new(path: PathBuf) -> Folder {
        fs::create_dir_all(&path).expect("a folder");
        Folder {
            path,
            files: BTreeMap::new(),
            journal: None,
            log: None,
        }
    }

    /// A few changes that `step` says.
    pub(crate) fn step(&mut self, step: u64) {
        let mut random = Random::new(step);
        let added = self.add(step);
        added.unwrap_or_else(|error| panic!("step {step}: {error}"));
        let kinds = if (step / ADDING).is_multiple_of(2) { 4 } else { 6 };
        for _ in 0..random.below(10) {
            let [one, other] = [(); 2].map(|()| format!("f{}", random.below(NAMES)));
            let changed = match random.below(kinds) {
                0 | 1 => self.save(one, &mut random),
                2 => self.remove(&one),
                3 => self.rename(&one, other),
                4 => self.rename_and_write(&one, other, &mut random),
                _ => self.link_and_write(&one, other, &mut random),
            };
            changed.unwrap_or_else(|error| panic!("step {step}: {error}"));
        }
    }

    fn add(&mut self, step: u64) -> io::Result<()> {
        let [journal, log] = ["journal", "log"].map(|name| self.path.join(name));
        if self.journal.is_none() || step.is_multiple_of(97) {
            self.journal = Some(File::create(journal)?);
            self.files.insert("journal".into(), Vec::new());
        }
        if self.log.is_none() || step.is_multiple_of(61) {
            self.log = Some(File::options().create(true).append(true).open(log)?);
            self.files.entry("log".into()).or_default();
        }
        let line = format!("{step:>15}\n");
        for (name, file) in [("journal", &mut self.journal), ("log", &mut self.log)] {
            file.as_mut().expect("it is open").write_all(line.as_bytes())?;
            let bytes = self.files.get_mut(name).expect("it was made");
            bytes.extend_from_slice(line.as_bytes());
        }
        Ok(())
    }

    /// As editors do: a new file takes the place of the old one.
    fn save(&mut self, name: String, random: &mut Random) -> io::Result<()> {
        let bytes = vec![random.number() as u8; random.below(6000) as usize + 8];
        let new = self.path.join("new");
        File::create(&new)?.write_all(&bytes)?;
        fs::rename(new, self.path.join(&name))?;
        self.files.insert(name, bytes);
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        match self.files.remove(name) {
            Some(_) => fs::remove_file(self.path.join(name)),
            None => Ok(()),
        }
    }

    fn rename(&mut self, from: &str, to: String) -> io::Result<()> {
        if from != to
            && let Some(bytes) = self.files.remove(from)
        {
            fs::rename(self.path.join(from), self.path.join(&to))?;
            self.files.insert(to, bytes);
        }
        Ok(())
    }

    /// An old file is written by a name that it just got.
    fn rename_and_write(&mut self, from: &str, to: String, random: &mut Random) -> io::Result<()> {
        self.rename(from, to.clone())?;
        self.write(&to, random)
    }

    /// The same by a link, of which only the new name stays.
    fn link_and_write(&mut self, from: &str, to: String, random: &mut Random) -> io::Result<()> {
        if self.files.contains_key(from) && !self.files.contains_key(&to) {
            fs::hard_link(self.path.join(from), self.path.join(&to))?;
            fs::remove_file(self.path.join(from))?;
            let bytes = self.files.remove(from).expect("it was there");
            self.files.insert(to.clone(), bytes);
        }
        self.write(&to, random)
    }

    fn write(&mut self, name: &str, random: &mut Random) -> io::Result<()> {
        let Some(bytes) = self.files.get_mut(name) else {
            return Ok(());
        };
        let at = random.below(bytes.len() as u64 - 7);
        let new = random.number().to_le_bytes();
        bytes[at as usize..][..8].copy_from_slice(&new);
        let file = File::options().write(true).open(self.path.join(name))?;
        file.write_all_at(&new, at)
    }

    /// What the folder has and should not, or the other way round.
    pub(crate) fn look(&self) -> Option<String> {
        let mut there = 0;
        for entry in fs::read_dir(&self.path).expect("the folder") {
            let name = entry.expect("a name").file_name().into_string().expect("text");
            let Some(bytes) = self.files.get(&name) else {
                return Some(format!("{name} is there"));
            };
            if fs::read(self.path.join(&name)).expect("a file") != *bytes {
                return Some(format!("{name} has other bytes"));
            }
            there += 1;
        }
        (there != self.files.len()).then(|| format!("{there} of {} files are there", self.files.len()))
    }
}
