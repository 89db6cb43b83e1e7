//! The next level of a region is found, or made.
//!
//! * Beside `scores.twin` lies a symbolic link, `scores.twin.next`, to the file. It is made before the first commit that
//!   needs the level, so that each opening of the region finds it.
//! * A file with nothing but a header was left by a crash before that commit: it is made anew.

use super::format::{Header, Map, decode, map_bytes};
use super::{NextLevel, STEP_BYTES, State};
use crate::error::{Error, Result};
use crate::superblock::{LevelMap, Superblock};
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use twinpage_core::Medium;
use twinpage_os::folder::{folder_of, sync_folder_of};
use twinpage_os::{Access, AnyMedium, Draft, Durability, Lock, name};
use zerocopy::IntoBytes;

/// The link that says where the next level of the region in the file `region` is.
pub(crate) fn link_of(region: &Path) -> PathBuf {
    let region = name::resolved(region);
    let mut name = region.file_name().unwrap_or_default().to_owned();
    name.push(".next");
    region.with_file_name(name)
}

/// What is wanted of a region's next level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    /// Its file; none: the one that the link beside the region names, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// Bytes of pages that the region's own file should have at most.
    pub(crate) limit: Option<u64>,
}

impl Wanted {
    pub(crate) fn is_nothing(&self) -> bool {
        self.file.is_none() && self.limit.is_none()
    }

    /// Refuses the region's own file, and the name of the link beside it.
    pub(crate) fn is_beside(&self, region: &Path) -> Result<()> {
        let Some(file) = &self.file else {
            return Ok(());
        };
        let resolved = name::resolved(file);
        let is_own = has_one_place(region, &resolved) || is_one_file(region, &resolved);
        match is_own || has_one_place(&link_of(region), file) {
            false => Ok(()),
            true => Err(refuse(
                file,
                "that is the region's own file, or the link beside it: choose another name",
            )),
        }
    }
}

/// A region that has, or gets, a next level.
pub(crate) struct Owner<'a> {
    pub(crate) file: &'a Path,
    pub(crate) durability: Durability,
    pub(crate) page_bytes: usize,
}

impl Owner<'_> {
    /// The level that the region's last commit names, to be changed.
    pub(crate) fn find(&self, superblock: &Superblock, wanted: &Wanted) -> Result<Option<NextLevel>> {
        let named = superblock.level;
        let link = link_of(self.file);
        let told = wanted.file.as_deref().map(absolute).transpose()?;
        let file = told.clone().unwrap_or_else(|| target_of(&link));
        if named.id == 0 || (named.bytes == 0 && !file.exists()) {
            return Ok(None);
        }
        let mut found = NextLevel::open(&file, superblock, self.page_bytes, Access::ReadWrite)?;
        found.limit = wanted.limit;
        if let Some(told) = told {
            name_in_link(&link, &told)?;
        }
        Ok(Some(found))
    }

    /// A new level, for a region at this address whose commits name none.
    pub(crate) fn begin(&self, base: usize, wanted: &Wanted) -> Result<Option<NextLevel>> {
        let Some(file) = &wanted.file else {
            let why = "how much the region's file should hold was said, and not where the rest goes: say it with \
                       `Options::next_level`";
            return match wanted.limit {
                None => Ok(None),
                Some(_) => Err(Error::Invalid(why.into())),
            };
        };
        let file = absolute(file)?;
        let durability = self.durability_at(&file)?;
        remove_leftover(&file)?;
        let make = |at: &Path| Ok::<_, Error>(AnyMedium::create(at, durability)?);
        let (mut draft, mut medium) = Draft::make(&file, make)?;
        medium.rename(&file);
        let id = RandomState::new().hash_one(base) | 1; // 0 is none
        medium.grow(self.page_bytes as u64)?;
        medium.write(0, Header::new(id, base as u64, self.page_bytes).as_bytes())?;
        medium.fence()?;
        if !draft.name(&file)? {
            return Err(refuse(
                &file,
                "another process made it just now: open the region again",
            ));
        }
        name_in_link(&link_of(self.file), &file)?;
        let named = LevelMap {
            id,
            ..LevelMap::default()
        };
        let state = State::new(medium, named, Map::new(), self.page_bytes);
        Ok(Some(NextLevel {
            file,
            id,
            page_bytes: self.page_bytes,
            limit: wanted.limit,
            is_used: AtomicBool::new(false),
            state: Mutex::new(state),
            _lock: draft.take_lock(),
        }))
    }

    /// What the level outlives: no less than the region.
    fn durability_at(&self, file: &Path) -> Result<Durability> {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let found = name::durability_of(folder);
        let found = found.map_err(|e| Error::system(format!("looking at {}", folder.display()), e))?;
        match self.durability.outlives_machine() && !found.outlives_machine() {
            false => Ok(found),
            true => Err(refuse(
                file,
                "it would lie in memory, and not outlive the machine as the region does: choose a place on a disk",
            )),
        }
    }
}

impl NextLevel {
    /// The level of a region, to be looked at; `None` where nothing is in it.
    pub(crate) fn look(
        region: &Path,
        superblock: &Superblock,
        page_bytes: usize,
    ) -> Result<Option<NextLevel>> {
        match superblock.level.bytes {
            0 => Ok(None),
            _ => {
                let file = target_of(&link_of(region));
                NextLevel::open(&file, superblock, page_bytes, Access::ReadOnly).map(Some)
            }
        }
    }

    fn open(file: &Path, superblock: &Superblock, page_bytes: usize, access: Access) -> Result<NextLevel> {
        let named = superblock.level;
        if !file.exists() {
            return Err(refuse(
                file,
                "it is not there, and objects of the region are in it: put it back, or say where it is with \
                 `Options::next_level`",
            ));
        }
        let lock = match access {
            Access::ReadWrite => Some(Lock::take(file)?),
            Access::ReadOnly => None,
        };
        let durability = name::durability_of(file);
        let durability =
            durability.map_err(|e| Error::system(format!("looking at {}", file.display()), e))?;
        let medium = AnyMedium::open(file, durability, access)?;
        let header = read_header(&medium).map_err(|why| refuse(file, why))?;
        if !header.is_of(named.id, superblock.base, page_bytes) {
            return Err(refuse(
                file,
                "it is the next level of another region: put this region's own back, or say where it is with \
                 `Options::next_level`",
            ));
        }
        let map = read_map(&medium, &named, page_bytes).map_err(|why| refuse(file, why))?;
        let state = State::new(medium, named, map, page_bytes);
        Ok(NextLevel {
            file: file.to_owned(),
            id: named.id,
            page_bytes,
            limit: None,
            is_used: AtomicBool::new(!state.map.is_empty()),
            state: Mutex::new(state),
            _lock: lock,
        })
    }
}

fn refuse(file: &Path, why: impl Into<String>) -> Error {
    Error::NextLevel {
        file: file.to_owned(),
        why: why.into(),
    }
}

/// Whether two names are of one file that is there.
fn is_one_file(one: &Path, other: &Path) -> bool {
    let file = |path| std::fs::metadata(path).map(|found| (found.dev(), found.ino()));
    matches!((file(one), file(other)), (Ok(one), Ok(other)) if one == other)
}

/// Whether two names are one, of what may not be there yet.
fn has_one_place(one: &Path, other: &Path) -> bool {
    let place = |path: &Path| {
        let folder = std::fs::canonicalize(folder_of(path)).ok()?;
        Some(folder.join(path.file_name()?))
    };
    place(one).is_some_and(|one| Some(one) == place(other))
}

fn absolute(file: impl AsRef<Path>) -> Result<PathBuf> {
    let file = file.as_ref();
    std::path::absolute(file).map_err(|e| Error::system(format!("finding {}", file.display()), e))
}

/// Where a link leads; what is no link is meant itself.
fn target_of(link: &Path) -> PathBuf {
    std::fs::read_link(link).map_or_else(|_| link.to_owned(), |target| link.with_file_name(target))
}

fn read_header(medium: &AnyMedium) -> Result<Header, String> {
    let mut bytes = [0; size_of::<Header>()];
    let is_cut = medium.len() < bytes.len() as u64;
    match is_cut {
        true => Err("it is cut: put a whole copy of it back".into()),
        false => medium.read(0, &mut bytes).map_err(|error| error.to_string()),
    }?;
    Header::read(&bytes)
}

/// The map that counts. All that it names is there.
fn read_map(medium: &AnyMedium, named: &LevelMap, page_bytes: usize) -> Result<Map, String> {
    if named.bytes == 0 {
        return Ok(Map::new());
    }
    let cut = || "it is cut, or older than the region: put a whole copy of it back".to_owned();
    let end = named.at.checked_add(named.bytes);
    if end.is_none_or(|end| end > medium.len()) || named.bytes < map_bytes(0) as u64 {
        return Err(cut());
    }
    let mut bytes = vec![0; named.bytes as usize];
    let read = medium.read(named.at, &mut bytes);
    read.map_err(|error| error.to_string())?;
    let map = decode(named, &bytes)?;
    let is_there = |slot: u32| (u64::from(slot) + 1) * page_bytes as u64 <= medium.len();
    let slots: BTreeSet<u32> = map.values().map(|held| held.slot).collect();
    match slots.len() == map.len() && slots.iter().all(|&slot| slot > 0 && is_there(slot)) {
        true => Ok(map),
        false => Err(cut()),
    }
}

/// Removes a file that a crash left before anything was in it; any other is left, and refused.
fn remove_leftover(file: &Path) -> Result<()> {
    if !file.exists() {
        return Ok(());
    }
    let _lock = Lock::take(file)?;
    let medium = AnyMedium::open(file, Durability::Disk, Access::ReadOnly)?;
    if read_header(&medium).is_err() || !holds_nothing(&medium)? {
        let why =
            "something else has that name already, maybe the next level of another region: move it away";
        return Err(refuse(file, why));
    }
    std::fs::remove_file(file).map_err(|e| Error::system(format!("removing {}", file.display()), e))
}

/// Whether there is nothing but zeros behind the header.
fn holds_nothing(medium: &AnyMedium) -> Result<bool> {
    if medium.len() > STEP_BYTES {
        return Ok(false);
    }
    let mut bytes = vec![0; medium.len() as usize];
    medium.read(0, &mut bytes)?;
    Ok(bytes[size_of::<Header>()..].iter().all(|&byte| byte == 0))
}

/// Makes the link, or lets it lead elsewhere; durable when it returns.
fn name_in_link(link: &Path, target: &Path) -> Result<()> {
    if std::fs::read_link(link).is_ok_and(|found| found == target) {
        return Ok(());
    }
    if link.exists() && !link.is_symlink() {
        return Err(refuse(
            link,
            "it is not the link that the region needs there: move it away",
        ));
    }
    let mut draft = link.as_os_str().to_owned();
    draft.push(".new");
    let make = || {
        let _ = std::fs::remove_file(&draft); // what a crash left
        std::os::unix::fs::symlink(target, &draft)?;
        std::fs::rename(&draft, link)?;
        sync_folder_of(link)
    };
    make().map_err(|e| Error::system(format!("making the link {}", link.display()), e))
}
