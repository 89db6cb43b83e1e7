//! What is mapped where: /proc/PID/maps, proc_pid_maps(5).
//!
//! * The text is read at each stop and parsed only when it changed.
//! * What cannot be put back is refused here, by name.

use crate::error::{Error, Result};
use crate::objects::{Id, Objects};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use twinpage_os::{copier, inject};

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
    /// Shared pages of a file whose content the checkpoint holds: see [`crate::objects`].
    Object,
    /// The kernel's code in every process.
    Vdso,
    /// The kernel's data for it.
    Vvar,
    /// The second page of that data, since Linux 6.13.
    VvarClock,
}

impl Kind {
    /// Whether its pages belong to the checkpoint.
    #[must_use]
    pub fn is_captured(self) -> bool {
        matches!(self, Kind::Anonymous | Kind::Stack | Kind::PrivateFile)
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
    pub object: Option<Id>,
    /// Path of the file; empty when there is none.
    pub path: String,
}

impl Mapping {
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

    /// Reads the mappings again. True when they changed.
    ///
    /// # Errors
    /// Names a mapping that cannot be captured.
    pub fn refresh(&mut self, objects: &Objects) -> Result<bool> {
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
        self.text.clear();
        self.text.extend_from_slice(&self.scratch[..filled]);
        self.mappings = parse(&String::from_utf8_lossy(&self.text))?;
        objects.resolve(&mut self.mappings)?;
        Ok(true)
    }
}

/// The mappings in `text`, without the page that twinpage itself keeps in the program.
///
/// # Errors
/// Names a mapping that cannot be captured.
pub fn parse(text: &str) -> Result<Vec<Mapping>> {
    let mut mappings = Vec::new();
    for line in text.lines() {
        let unreadable = || Error::Internal(format!("a line of /proc/PID/maps is not understood: {line}"));
        if let Some(mapping) = parse_line(line).ok_or_else(unreadable)?? {
            mappings.push(mapping);
        }
    }
    Ok(mappings)
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
fn parse_line(line: &str) -> Option<Result<Option<Mapping>>> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let flags = fields.next()?.as_bytes();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    let device = rustix::fs::makedev(number(major)?, number(minor)?);
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start();
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
    let kind = match kind(path, inode, shared, protection) {
        Ok(Some(kind)) => kind,
        Ok(None) => return Some(Ok(None)),
        Err(why) => {
            return Some(Err(Error::Unsupported(format!(
                "the program mapped {path}: {why}"
            ))));
        }
    };
    let path = if matches!(kind, Kind::PrivateFile | Kind::SharedFile | Kind::Object) {
        path.to_owned()
    } else {
        String::new()
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
        path,
    })))
}

fn kind(path: &str, inode: u64, shared: bool, protection: u32) -> Result<Option<Kind>, &'static str> {
    Ok(Some(match path {
        "[vdso]" => Kind::Vdso,
        "[vvar]" => Kind::Vvar,
        "[vvar_vclock]" => Kind::VvarClock,
        "[vsyscall]" | "[uprobes]" => return Ok(None), // the same in every process
        "[stack]" => Kind::Stack,
        _ if path.starts_with("[anon_shmem") || path.starts_with("/dev/zero") && shared => {
            return Err("this kind of shared memory is not captured; map it MAP_SHARED or MAP_PRIVATE");
        }
        _ if path.starts_with('[') || path.is_empty() => Kind::Anonymous,
        _ if path.starts_with("/dev/") && !path.starts_with("/dev/shm/") && path != "/dev/zero" => {
            return Err("device memory cannot be captured");
        }
        "/dev/zero" => Kind::Anonymous,
        _ if shared && (protection & libc::PROT_WRITE as u32 != 0 || path.ends_with(" (deleted)")) => {
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

    #[test]
    fn own_mappings_are_understood() {
        let mappings = parse(&std::fs::read_to_string("/proc/self/maps").unwrap()).unwrap();
        assert!(mappings.iter().any(|mapping| mapping.kind == Kind::Stack));
        assert!(mappings.iter().any(|mapping| mapping.kind == Kind::Vdso));
        assert!(
            mappings
                .iter()
                .any(|mapping| mapping.kind == Kind::PrivateFile && !mapping.path.is_empty())
        );
        assert!(mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
    }

    #[test]
    fn what_cannot_be_captured_is_named() {
        let refused = |line: &str| parse(line).unwrap_err().to_string();
        assert!(refused("7f00-8f00 rw-p 00000000 00:05 12 /dev/nvidia0").contains("device"));
        let gone = "7f00-8f00 r--p 00000000 08:01 12 /tmp/a b (deleted)";
        let gone = Objects::default().resolve(&mut parse(gone).unwrap()).unwrap_err();
        assert!(gone.to_string().contains("deleted"));
        let shared = "7f00-8f00 rw-s 00000000 00:05 12 /tmp/x";
        let shared = Objects::default()
            .resolve(&mut parse(shared).unwrap())
            .unwrap_err();
        assert!(shared.to_string().contains("writable"));
        assert!(parse("7f00-8f00 r--s 00000000 08:01 12 /tmp/a b").unwrap()[0].path == "/tmp/a b");
        assert!(parse("nonsense").is_err());
    }
}
