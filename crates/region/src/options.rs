//! How a region is made and opened.

use crate::error::{Error, Result};
use crate::marks::LINE;
use crate::next_level::Wanted;
use std::path::{Path, PathBuf};
use std::time::Duration;
use twinpage_core::{Geometry, Medium, ProductScheme, Recovered, Scheme, SchemeKind, Setup, Stores};
use twinpage_os::folder::folder_of;
use twinpage_os::name::durability_of;
use twinpage_os::{AnyMedium, Draft, Durability};

/// When pages that have two homes on the medium get one again. Each page that was written has two for a while: that of
/// the last checkpoint, and that of the next.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::{Consolidation, Region};
///
/// // The device is to be quiet between sections, whatever space that takes.
/// let options = Region::options().consolidation(Consolidation::WhenNeeded);
/// let region = options.sections().open("quiet.twin")?;
/// # drop(region);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Consolidation {
    /// In the background, while nothing was written for half a second, as well as when room is needed. In a region
    /// that is opened for sections or with [`Options::every`]: others have no thread for it.
    #[default]
    AtRest,
    /// When a commit needs room, and when the region is closed.
    WhenNeeded,
}

/// The library's own stores.
pub(crate) struct Products;

impl Stores for Products {
    type Scheme<M: Medium + Send + 'static> = ProductScheme<M>;

    fn create<M: Medium + Send + 'static>(
        &self,
        kind: SchemeKind,
        medium: M,
        setup: &Setup,
    ) -> twinpage_core::Result<ProductScheme<M>> {
        ProductScheme::create(kind, medium, setup)
    }

    fn recover<M: Medium + Send + 'static>(
        &self,
        medium: M,
    ) -> twinpage_core::Result<(ProductScheme<M>, Recovered)> {
        ProductScheme::recover(medium)
    }
}

/// Where calls of objects are kept, and how many bytes of them.
#[derive(Clone, Debug)]
pub(crate) struct KeptCalls {
    pub(crate) folder: PathBuf,
    pub(crate) most: u64,
}

/// How a region is made and opened. Begun by [`Region::options`], ended by [`Options::open`].
///
/// What describes the region itself (scheme, geometry, address) counts when it is made; opening an
/// existing one with something else is an error.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use std::time::Duration;
/// use twinpage::{Durability, Region, SchemeKind};
///
/// let region = Region::options()
///     .every(Duration::from_millis(16))
///     .bound(1 << 30)
///     .durability(Durability::Memory)
///     .scheme(SchemeKind::DualPage)
///     .open("orders.twin")?;
/// assert_eq!(region.info().scheme, "dual-page");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing is opened before `open`"]
pub struct Options {
    pub(crate) every: Option<Duration>,
    pub(crate) bound: Option<usize>,
    pub(crate) base: Option<usize>,
    pub(crate) budget: Option<usize>,
    pub(crate) checked: bool,
    pub(crate) sections: bool,
    pub(crate) consolidation: Consolidation,
    pub(crate) patience: Option<Duration>,
    pub(crate) server_threads: Option<usize>,
    pub(crate) kept: Option<KeptCalls>,
    pub(crate) level: Wanted,
    durability: Option<Durability>,
    scheme: Option<SchemeKind>,
    line_bytes: Option<u32>,
    checksums: Option<bool>,
}

impl Options {
    /// A checkpoint every so often, whenever something was written. Without it a checkpoint is made
    /// when [`Region::checkpoint`] or [`Region::durable`] asks for one.
    pub fn every(self, period: Duration) -> Options {
        Options {
            every: Some(period),
            ..self
        }
    }

    /// The region is changed by failure-atomic sections ([`Region::atomic`]), each durable when it returns, instead of by
    /// updates and checkpoints. The file is the same: the next opening may choose otherwise.
    pub fn sections(self) -> Options {
        Options {
            sections: true,
            ..self
        }
    }

    /// When pages that have two homes on the medium get one again; at rest if never said.
    pub fn consolidation(self, when: Consolidation) -> Options {
        Options {
            consolidation: when,
            ..self
        }
    }

    /// The most bytes the region may have, from now on; 512 GiB if never said. What it is asked to
    /// hold beyond that is refused with [`Error::Bound`].
    pub fn bound(self, bytes: usize) -> Options {
        Options {
            bound: Some(bytes),
            ..self
        }
    }

    /// Bytes of memory the region should take at most: beyond that, pages that were not used for long
    /// go, and come again when touched. Pages written since the last checkpoint cannot go, so it is a
    /// goal; a checkpoint is made when too many of them are in the way.
    pub fn memory_budget(self, bytes: usize) -> Options {
        Options {
            budget: Some(bytes),
            ..self
        }
    }

    /// How long a checkpoint waits for an update that does not end before it is given up with
    /// [`Error::Busy`]; ten seconds if never said. Other updates go on meanwhile.
    pub fn patience(self, patience: Duration) -> Options {
        Options {
            patience: Some(patience),
            ..self
        }
    }

    /// How many threads run calls of objects that are on different lanes ([`object`](macro@crate::object)): as many as the
    /// machine has processors, eight at most, if never said. One runs all calls in the order of the log.
    pub fn server_threads(self, threads: usize) -> Options {
        Options {
            server_threads: Some(threads),
            ..self
        }
    }

    /// Keeps what is called of the region's objects, so that it can go back to each of these calls
    /// ([`objects::go_back`](crate::objects::go_back)): in a folder, which may be on a larger and slower device, and takes
    /// about so many bytes. The calls that checkpoints hold are compressed there. They begin from a base, a copy of the
    /// region: one is made when an object is made or freed, and when half of the bytes were written since the last one. The
    /// oldest go where there are more bytes; the last base and what was called since stay.
    ///
    /// The thread whose call asks for a base makes it, and waits as long as [`Region::backup`](crate::Region::backup) takes.
    /// Every opening has to say the folder again: between two bases nothing is kept of an opening that does not.
    pub fn keep_calls(self, folder: impl AsRef<Path>, bytes: u64) -> Options {
        // The program may change its directory.
        let folder = std::path::absolute(&folder).unwrap_or_else(|_| folder.as_ref().to_owned());
        let most = bytes;
        let kept = Some(KeptCalls { folder, most });
        Options { kept, ..self }
    }

    /// A second file, on a larger and slower device, for objects that have no room in the region's own: when its medium
    /// is full, or has more than [`Options::first_level`] allows, the least recently called objects move there, and an
    /// object that is called moves back. The file is made if it does not exist. A link beside the region,
    /// `scores.twin.next`, names it, so that later openings need not. The region needs the file from then on.
    ///
    /// Only pages move that one object fills: those of large objects, not of small ones.
    ///
    /// ```
    /// # let folder = tempfile::tempdir()?;
    /// # std::env::set_current_dir(folder.path())?;
    /// use twinpage::Region;
    /// use twinpage::objects::{list, structures::Array};
    ///
    /// let region = Region::options()
    ///     .next_level("scores.level") // on another device
    ///     .first_level(1 << 20)
    ///     .open("scores.twin")?;
    /// let make = |name: &str| region.object::<Array>(name, |u| Array::new_in(u, 100_000)); // 800 kB
    /// let (old, new) = (make("old")?, make("new")?);
    /// old.set(7, 1);
    /// new.set(7, 2);
    /// assert_eq!(new.get(7)?, Some(2)); // `old` was called before it: it has to go
    /// assert_eq!(old.get(7)?, Some(1)); // and comes back, so that now `new` has to
    /// region.close()?;
    /// let objects = list("scores.twin")?;
    /// assert_eq!(objects[0].next_level_bytes, 0);
    /// assert!(objects[1].next_level_bytes > 700_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next_level(self, file: impl AsRef<Path>) -> Options {
        let file = Some(file.as_ref().to_owned());
        let level = Wanted { file, ..self.level };
        Options { level, ..self }
    }

    /// Bytes of pages that the region's own file should hold, where there is a [next level](Options::next_level). It
    /// is a goal: the object that was called last stays, and so does all that is in no object.
    pub fn first_level(self, bytes: u64) -> Options {
        let limit = Some(bytes);
        let level = Wanted { limit, ..self.level };
        Options { level, ..self }
    }

    /// Reads all of an existing region and checks it before it is opened: the store, the heap, and
    /// every root down to its last block. Damage is then [`Error::Damaged`], and whatever is opened can be
    /// used like memory that was never on a medium. It takes the time to read the region, and memory for
    /// all of it.
    ///
    /// Without it a region is opened at once, whatever its size. Where lines have checksums
    /// ([`Options::checksums`]), each page is verified when it is loaded; a damaged one is named on standard error,
    /// and a thread that touches it gets SIGBUS. Where they have none, the bytes of the region are believed: of a root
    /// its own bytes are checked, not the blocks that it owns.
    pub fn checked(self) -> Options {
        Options {
            checked: true,
            ..self
        }
    }

    /// What a checkpoint must outlive: the machine, or only the program. Without it a file system in
    /// memory (tmpfs) means the program, any other the machine.
    pub fn durability(self, durability: Durability) -> Options {
        Options {
            durability: Some(durability),
            ..self
        }
    }

    /// How lines become durable all at once: one of [`SchemeKind::PRODUCTS`], or with [`Options::open_with`] any. If
    /// not said, the dual page on memory, and on a disk packed lines over it.
    pub fn scheme(self, scheme: SchemeKind) -> Options {
        Options {
            scheme: Some(scheme),
            ..self
        }
    }

    /// Bytes of a line of the store, 64 or 4096: what suits the medium if not said. Lines of 4096 bytes are the dual page's.
    pub fn line_bytes(self, bytes: u32) -> Options {
        Options {
            line_bytes: Some(bytes),
            ..self
        }
    }

    /// Whether every line on the medium has a checksum, verified when its page is loaded and by a check: on a disk it
    /// has, in a memory file it has not, if not said. It takes 4 bytes for each line (4096 bytes on a disk, 64 in
    /// memory) in memory and on the medium, and the time to make it when the line is written: in a memory file a
    /// checkpoint of scattered lines takes about twice as long.
    pub fn checksums(self, checksums: bool) -> Options {
        Options {
            checksums: Some(checksums),
            ..self
        }
    }

    /// Where a new region is mapped, now and in all its lives: a multiple of
    /// [`WINDOW_BYTES`](crate::window::WINDOW_BYTES) in [`ZONE`](crate::window::ZONE). One that is
    /// free in this process if not said. Regions that will be open at the same time need different
    /// ones.
    pub fn base(self, address: usize) -> Options {
        Options {
            base: Some(address),
            ..self
        }
    }

    /// Refuses what a region cannot be at the same time.
    pub(crate) fn mode(&self) -> Result<()> {
        let other = match (self.every, self.budget, self.level.is_nothing()) {
            (Some(_), ..) => "a checkpoint every so often (`every`): a section is a commit of its own",
            (_, Some(_), _) => "a memory budget: all pages of a region of sections stay in memory",
            (.., false) => "a next level: it is for objects, which a region of sections has none of",
            _ => return Ok(()),
        };
        match self.sections {
            true => Err(Error::Invalid(format!(
                "a region is opened for sections, or with {other}; ask for one of the two"
            ))),
            false => Ok(()),
        }
    }

    /// An empty store beside the file `path`, to be given that name when it is whole.
    pub(crate) fn draft<S: Stores>(&self, path: &Path, stores: &S) -> Result<(S::Scheme<AnyMedium>, Draft)> {
        let durability = self.durability_in_folder_of(path)?;
        let (draft, mut medium) = Draft::make(path, |at| {
            AnyMedium::create(at, durability).map_err(|e| match e {
                twinpage_core::Error::Io { source, .. } => {
                    Error::system(format!("making {}", path.display()), source)
                }
                other => other.into(),
            })
        })?;
        // The draft is an inner matter: an error names the file it will become.
        medium.rename(path);
        let geometry = medium.geometry();
        Ok((self.make(medium, geometry, stores)?, draft))
    }

    /// A new store on a medium; `geometry` is how the medium is best cut.
    pub(crate) fn make<M: Medium + Send + 'static, S: Stores>(
        &self,
        medium: M,
        geometry: Geometry,
        stores: &S,
    ) -> Result<S::Scheme<M>> {
        // On a disk lines are large, and most changes small: lines of 64 bytes are packed into them.
        let on_disk = geometry.line_bytes() > LINE;
        let kind = self.scheme.unwrap_or(match self.line_bytes {
            None | Some(64) if on_disk => SchemeKind::Packed,
            _ => SchemeKind::DualPage,
        });
        let geometry = match (self.line_bytes, kind) {
            (Some(bytes), SchemeKind::Packed) if bytes as usize != LINE => {
                return Err(Error::Invalid(format!(
                    "packed lines are of {LINE} bytes and not of {bytes}: leave `line_bytes` unsaid, or choose the scheme \
                     dual-page"
                )));
            }
            (_, SchemeKind::Packed) => Geometry::MEMORY,
            (Some(bytes), _) => Geometry::new(bytes, geometry.extent_bytes() as u32)?,
            (None, _) => geometry,
        };
        fit(geometry)?;
        let setup = Setup {
            checksums: self.checksums,
            ..Setup::new(geometry)
        };
        Ok(stores.create(kind, medium, &setup)?)
    }

    /// The store on a medium, if it is one that was asked for.
    pub(crate) fn find<M: Medium + Send + 'static, S: Stores>(
        &self,
        medium: M,
        stores: &S,
    ) -> Result<(S::Scheme<M>, Recovered)> {
        let (scheme, found) = stores.recover(medium)?;
        let kind = scheme.info().scheme;
        if let Some(wanted) = self.scheme.filter(|&wanted| wanted.name() != kind) {
            return Err(Error::Invalid(format!(
                "the region was made with the scheme {kind} and cannot be opened with {wanted}"
            )));
        }
        if let Some(wanted) = self.checksums.filter(|&wanted| wanted != scheme.info().checksums) {
            let [made, asked] = if wanted {
                ["without", "with"]
            } else {
                ["with", "without"]
            };
            return Err(Error::Invalid(format!(
                "the region was made {made} checksums and cannot be opened {asked}: open it without saying so, or copy it"
            )));
        }
        fit(scheme.geometry())?;
        Ok((scheme, found))
    }

    pub(crate) fn durability_in_folder_of(&self, path: &Path) -> Result<Durability> {
        self.durability_at(folder_of(path))
    }

    pub(crate) fn durability_at(&self, path: &Path) -> Result<Durability> {
        match self.durability {
            Some(durability) => Ok(durability),
            None => {
                durability_of(path).map_err(|e| Error::system(format!("looking at {}", path.display()), e))
            }
        }
    }
}

/// Lines are marked by 64 bytes and captured by those or by pages of the system.
fn fit(geometry: Geometry) -> Result<()> {
    match geometry.line_bytes() {
        64 | 4096 => Ok(()),
        other => Err(Error::Invalid(format!(
            "lines of {other} bytes: a region has lines of 64 or 4096"
        ))),
    }
}
