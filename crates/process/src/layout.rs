//! What is mapped where: /proc/PID/maps, proc_pid_maps(5).
//!
//! * The text is read at each stop and parsed only when it changed.
//! * What cannot be put back is refused here, by name.

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use twinpage_os::{copier, inject, proc_file};

/// Which shared object ([`crate::objects`]) a mapping shows.
pub type ObjectId = u32;

/// What a mapping is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// Private memory of the program's own.
    Anonymous,
    /// The first stack, which grows by itself.
    Stack,
    /// Private pages of a file, copied when written.
    PrivateFile,
    /// Shared pages of a file, read only.
    SharedFile,
    /// The kernel's code in every process.
    Vdso,
    /// The kernel's data for it.
    Vvar,
    /// The second page of that data, since Linux 6.13.
    VvarClock,
    /// Pages of a file that has no name any more. All of them belong to the checkpoint; a resume makes
    /// private memory of them.
    GoneFile,
    /// Shared pages of a file whose content the checkpoint holds: see [`crate::objects`].
    Object,
}

impl Kind {
    /// Whether its pages belong to the checkpoint.
    #[must_use]
    pub fn is_captured(self) -> bool {
        matches!(
            self,
            Kind::Anonymous | Kind::Stack | Kind::PrivateFile | Kind::GoneFile
        )
    }

    /// Whether pages that were never written are those of a file.
    #[must_use]
    pub fn is_private_file(self) -> bool {
        matches!(self, Kind::PrivateFile | Kind::GoneFile)
    }

    /// Whether writes to it are tracked.
    #[must_use]
    pub fn is_tracked(self) -> bool {
        self.is_captured() || self == Kind::Object
    }

    /// Whether it is the kernel's own, to be moved into place.
    #[must_use]
    pub fn is_kernel(self) -> bool {
        matches!(self, Kind::Vdso | Kind::Vvar | Kind::VvarClock)
    }
}

/// One mapping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// Past the last address.
    pub end: u64,
    /// `PROT_*` bits.
    pub protection: u32,
    /// What it is made of.
    pub kind: Kind,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Inode of the file.
    pub inode: u64,
    /// Device of the file, as the kernel shows it here.
    pub device: u64,
    /// Which object the file is, if any.
    pub object: Option<ObjectId>,
    /// It shows an object that was opened for reading, and can never be made writable. Context version 7.
    #[serde(skip)]
    pub only_read: bool,
    /// Path of the file; empty when there is none.
    #[serde(with = "crate::path_bytes")]
    pub path: PathBuf,
}

impl Mapping {
    /// Whether it is writable now.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.protection & libc::PROT_WRITE as u32 != 0
    }

    /// Whether its file has no name any more. A name may end as the kernel marks that.
    #[must_use]
    pub fn is_of_gone_file(&self) -> bool {
        is_marked_gone(&self.path)
            && !std::fs::symlink_metadata(&self.path).is_ok_and(|named| named.ino() == self.inode)
    }

    /// Whether the kernel's answer to a tracker says that nothing can ever be written through it: a shared
    /// mapping of a file that is sealed against writing (userfaultfd, `EPERM`).
    #[must_use]
    pub fn refuses_tracking(&self, error: &io::Error) -> bool {
        self.kind == Kind::Object
            && self.protection & libc::PROT_WRITE as u32 == 0
            && error.raw_os_error() == Some(libc::EPERM)
    }

    /// Its addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// The mappings of one process.
#[derive(Debug)]
pub struct Layout {
    maps: File,
    links: PathBuf,
    text: Vec<u8>,
    scratch: Vec<u8>,
    mappings: Vec<Mapping>,
}

impl Layout {
    /// The layout of process `pid`, not yet read.
    ///
    /// # Errors
    /// `ENOENT` when it is gone.
    pub fn open(pid: i32) -> io::Result<Layout> {
        Ok(Layout {
            maps: File::open(format!("/proc/{pid}/maps"))?,
            links: links_of(pid),
            text: Vec::new(),
            scratch: vec![0; 64 << 10],
            mappings: Vec::new(),
        })
    }

    /// The mappings, by address, as of the last [`Layout::refresh`].
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The process has ended: nothing is mapped.
    pub(crate) fn end(&mut self) {
        self.mappings.clear();
    }

    /// Reads the mappings again; `resolve` says which objects they show. True when they changed.
    ///
    /// # Errors
    /// Names a mapping that cannot be captured.
    pub fn refresh(&mut self, resolve: impl FnOnce(&mut [Mapping]) -> Result<()>) -> Result<bool> {
        let mut filled = 0;
        loop {
            if filled == self.scratch.len() {
                self.scratch.resize(filled * 2, 0);
            }
            match self.maps.read_at(&mut self.scratch[filled..], filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(source) => return Err(Error::target("cannot read the program's mappings", source)),
            }
        }
        if self.scratch[..filled] == self.text[..] {
            return Ok(false);
        }
        let mut mappings = parse(&self.scratch[..filled], |range| linked(&self.links, range))?;
        resolve(&mut mappings)?;
        for mapping in mappings.iter_mut().filter(|one| one.kind == Kind::Object) {
            mapping.only_read = !mapping.may_write() && shows_reader(&self.links, &mapping.range());
        }
        self.mappings = mappings;
        self.text.clear();
        self.text.extend_from_slice(&self.scratch[..filled]);
        Ok(true)
    }
}

/// Whether a path ends as the kernel marks that of a file without a name. A name may end so, too.
#[must_use]
pub fn is_marked_gone(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b" (deleted)")
}

/// Where the exact names of what a process maps are: proc_pid_map_files(5).
fn links_of(pid: i32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/map_files"))
}

fn linked(links: &Path, range: &Range<u64>) -> Option<PathBuf> {
    std::fs::read_link(links.join(format!("{:x}-{:x}", range.start, range.end))).ok()
}

/// Whether what is mapped there was opened for reading only: the mode of its link says how.
fn shows_reader(links: &Path, range: &Range<u64>) -> bool {
    const WRITES: u32 = 0o200;
    let link = links.join(format!("{:x}-{:x}", range.start, range.end));
    std::fs::symlink_metadata(link).is_ok_and(|link| link.mode() & WRITES == 0)
}

/// The mappings in `text`, without the page that twinpage itself keeps in the program. A line end in a
/// path is written `\012`, as may be those four characters: `exact` says what the path of a mapping is.
///
/// # Errors
/// Names a mapping that cannot be captured.
pub fn parse(text: &[u8], exact: impl Fn(&Range<u64>) -> Option<PathBuf>) -> Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let unreadable = || {
            let line = String::from_utf8_lossy(line);
            Error::Internal(format!("a line of /proc/PID/maps is not understood: {line}"))
        };
        if let Some(mapping) = parse_line(line, &exact).ok_or_else(unreadable)?? {
            mappings.push(mapping);
        }
    }
    Ok(mappings)
}

/// The mappings of a process that can be captured, as they are now; none of one that is gone.
#[must_use]
pub fn mappings(pid: i32) -> Vec<Mapping> {
    let text = proc_file::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let links = links_of(pid);
    let lines = text.split(|byte| *byte == b'\n');
    let known = lines.filter_map(|line| parse(line, |range| linked(&links, range)).ok());
    known.flatten().collect()
}

/// The one of them at an address, if there is one.
#[must_use]
pub fn mapping_at(pid: i32, address: u64) -> Option<Mapping> {
    mappings(pid)
        .into_iter()
        .find(|mapping| mapping.range().contains(&address))
}

/// Everything in `text` that can be unmapped or moved, whatever it is: its addresses, and which of the
/// kernel's own mappings it is, if any.
#[must_use]
pub fn everything(text: &str) -> Vec<(Range<u64>, Option<Kind>)> {
    let lines = text.lines().filter_map(|line| {
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let kind = match line.rsplit(' ').next()? {
            "[vsyscall]" | "[uprobes]" => return None,
            "[vdso]" => Some(Kind::Vdso),
            "[vvar]" => Some(Kind::Vvar),
            "[vvar_vclock]" => Some(Kind::VvarClock),
            _ => None,
        };
        (!is_ours(&range)).then_some((range, kind))
    });
    lines.collect()
}

/// Whether it is what twinpage itself mapped in the program.
fn is_ours(range: &Range<u64>) -> bool {
    let inside = |start, end| range.start >= start && range.end <= end;
    inside(inject::HOME, inject::END) || inside(copier::WINDOW, copier::END)
}

/// `start-end rwxp offset major:minor inode path`; the path may hold spaces.
fn parse_line(
    line: &[u8],
    exact: impl Fn(&Range<u64>) -> Option<PathBuf>,
) -> Option<Result<Option<Mapping>>> {
    let mut fields = line.splitn(6, |byte| *byte == b' ');
    let mut text = || std::str::from_utf8(fields.next()?).ok();
    let (start, end) = text()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let flags = text()?.as_bytes();
    let offset = u64::from_str_radix(text()?, 16).ok()?;
    let (major, minor) = text()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = text()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_ascii_start();
    let path = match has_escape(path) {
        true => exact(&(start..end)).unwrap_or_else(|| path_of(path)),
        false => path_of(path),
    };
    if is_ours(&(start..end)) {
        return Some(Ok(None));
    }
    let bit = |index: usize, letter: u8, bit: i32| {
        if flags.get(index) == Some(&letter) {
            bit as u32
        } else {
            0
        }
    };
    let protection =
        bit(0, b'r', libc::PROT_READ) | bit(1, b'w', libc::PROT_WRITE) | bit(2, b'x', libc::PROT_EXEC);
    let shared = flags.get(3) == Some(&b's');
    let kind = match kind(&path, inode, shared, protection) {
        Ok(Some(kind)) => kind,
        Ok(None) => return Some(Ok(None)),
        Err(why) => {
            return Some(Err(Error::Unsupported(format!(
                "the program mapped {}: {why}",
                path.display()
            ))));
        }
    };
    let path = if matches!(kind, Kind::PrivateFile | Kind::SharedFile | Kind::Object) {
        path
    } else {
        PathBuf::new()
    };
    Some(Ok(Some(Mapping {
        start,
        end,
        protection,
        kind,
        offset,
        inode,
        device,
        object: None,
        only_read: false,
        path,
    })))
}

fn path_of(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

/// Whether there may be a line end in the path.
fn has_escape(path: &[u8]) -> bool {
    path.windows(4).any(|four| four == b"\\012")
}

fn kind(path: &Path, inode: u64, shared: bool, protection: u32) -> Result<Option<Kind>, &'static str> {
    let name = path.as_os_str().as_bytes();
    let begins = |with: &str| name.starts_with(with.as_bytes());
    Ok(Some(match name {
        b"[vdso]" => Kind::Vdso,
        b"[vvar]" => Kind::Vvar,
        b"[vvar_vclock]" => Kind::VvarClock,
        b"[vsyscall]" | b"[uprobes]" => return Ok(None), // the same in every process
        b"[stack]" => Kind::Stack,
        _ if begins("[anon_shmem") || begins("/dev/zero") && shared => {
            return Err("this kind of shared memory is not captured; map it MAP_SHARED or MAP_PRIVATE");
        }
        _ if begins("[") || name.is_empty() => Kind::Anonymous,
        _ if begins("/dev/") && !begins("/dev/shm/") && name != b"/dev/zero" => {
            return Err("device memory cannot be captured");
        }
        b"/dev/zero" => Kind::Anonymous,
        _ if inode != 0 && !begins("/") => return Err("of files and memory alone mappings are captured"),
        _ if shared && (protection & libc::PROT_WRITE as u32 != 0 || name.ends_with(b" (deleted)")) => {
            Kind::Object
        }
        _ if inode == 0 => Kind::Anonymous,
        _ if shared => Kind::SharedFile,
        _ => Kind::PrivateFile,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::Objects;

    #[test]
    fn own_mappings_are_understood() {
        let mappings = parse(&std::fs::read("/proc/self/maps").unwrap(), |_| None).unwrap();
        assert!(mappings.iter().any(|mapping| mapping.kind == Kind::Stack));
        assert!(mappings.iter().any(|mapping| mapping.kind == Kind::Vdso));
        assert!(
            mappings
                .iter()
                .any(|mapping| mapping.kind == Kind::PrivateFile && !mapping.path.as_os_str().is_empty())
        );
        assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn what_cannot_be_captured_is_named() {
        let understood = |line: &str| parse(line.as_bytes(), |_| Some("/tmp/a\nb".into()));
        let refused = |line: &str| understood(line).unwrap_err().to_string();
        assert!(refused("7f00-8f00 rw-p 00000000 00:05 12 /dev/nvidia0").contains("device"));
        assert!(refused("7f00-8f00 r--p 00000000 00:09 12 socket:[12]").contains("mapped socket:[12]"));
        assert!(refused("nonsense").contains("nonsense"));
        let resolved = |line: &str| {
            let mut mappings = understood(line).unwrap();
            Objects::default()
                .resolve(&mut mappings)
                .map(|()| mappings.remove(0))
        };
        let shared = resolved("7f00-8f00 rw-s 00000000 00:05 12 /tmp/x").unwrap_err();
        assert!(shared.to_string().contains("writable"));
        let mapping = |path: &str| resolved(&format!("7f00-8f00 r--p 00000000 08:01 12 {path}")).unwrap();
        assert_eq!(mapping("/tmp/a b").path, Path::new("/tmp/a b"));
        assert_eq!(mapping("/tmp/a\\012b").path, Path::new("/tmp/a\nb"));
        assert_eq!(mapping("/tmp/a b (deleted)").kind, Kind::GoneFile);
    }
}
