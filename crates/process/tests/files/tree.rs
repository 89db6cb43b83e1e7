//! What a directory tree holds, to be compared byte for byte.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// One name.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Node {
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    /// The first name of the same inode.
    first: PathBuf,
    content: Vec<u8>,
    attributes: BTreeMap<String, Vec<u8>>,
}

/// What the program itself may set: `user.*` and access control lists.
fn attributes(path: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut list = vec![0; 1 << 16];
    let len = rustix::fs::llistxattr(path, &mut list[..]).unwrap_or(0);
    let names = list[..len].split(|byte| *byte == 0).map(String::from_utf8_lossy);
    names
        .filter(|name| name.starts_with("user.") || name.starts_with("system.posix_acl_"))
        .map(|name| {
            let mut value = vec![0; 1 << 16];
            let len = rustix::fs::lgetxattr(path, &*name, &mut value[..]).unwrap();
            (name.into_owned(), value[..len].to_vec())
        })
        .collect()
}

/// A directory tree. Not compared: inode numbers, inode change times, times of reading.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Tree(pub BTreeMap<PathBuf, Node>);

impl Tree {
    /// Everything below `root`, and `root` itself.
    pub(crate) fn of(root: &Path) -> Tree {
        let (mut tree, mut seen) = (Tree::default(), BTreeMap::new());
        tree.add(root, Path::new("."), &mut seen);
        tree
    }

    fn add(&mut self, path: &Path, name: &Path, seen: &mut BTreeMap<u64, PathBuf>) {
        let meta = std::fs::symlink_metadata(path).unwrap();
        let content = if meta.is_file() {
            std::fs::read(path).unwrap()
        } else if meta.is_symlink() {
            std::fs::read_link(path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            Vec::new()
        };
        let node = Node {
            mode: meta.permissions().mode(),
            owner: (meta.uid(), meta.gid()),
            mtime: (meta.mtime(), meta.mtime_nsec()),
            first: seen.entry(meta.ino()).or_insert_with(|| name.to_owned()).clone(),
            content,
            attributes: attributes(path),
        };
        self.0.insert(name.to_owned(), node);
        if meta.is_dir() {
            let mut names: Vec<_> = std::fs::read_dir(path)
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            names.sort();
            for child in names {
                self.add(&path.join(&child), &name.join(&child), seen);
            }
        }
    }

    /// What differs, in words; empty when nothing does.
    pub(crate) fn differences(&self, other: &Tree) -> String {
        let mut text = String::new();
        for (name, node) in &self.0 {
            let shown = name.display();
            let Some(is) = other.0.get(name) else {
                writeln!(text, "{shown}: missing").unwrap();
                continue;
            };
            if node.mode != is.mode || node.owner != is.owner {
                writeln!(
                    text,
                    "{shown}: mode {:o} {:?}, was {:o} {:?}",
                    is.mode, is.owner, node.mode, node.owner
                )
                .unwrap();
            }
            if node.mtime != is.mtime {
                writeln!(text, "{shown}: written {:?}, was {:?}", is.mtime, node.mtime).unwrap();
            }
            if node.first != is.first {
                writeln!(text, "{shown}: linked to {:?}, was {:?}", is.first, node.first).unwrap();
            }
            if node.attributes != is.attributes {
                writeln!(
                    text,
                    "{shown}: attributes {:?}, was {:?}",
                    is.attributes, node.attributes
                )
                .unwrap();
            }
            if node.content != is.content {
                let at = node.content.iter().zip(&is.content).position(|(a, b)| a != b);
                let lens = (is.content.len(), node.content.len());
                writeln!(
                    text,
                    "{shown}: content, {} bytes, was {}, first at {at:?}",
                    lens.0, lens.1
                )
                .unwrap();
            }
        }
        for name in other.0.keys().filter(|name| !self.0.contains_key(*name)) {
            writeln!(text, "{}: not to be there", name.display()).unwrap();
        }
        text
    }

    /// The tree as text, to be compared in another process.
    pub(crate) fn to_text(&self) -> String {
        let mut text = String::new();
        for (name, node) in &self.0 {
            let mut sum = crc32c::crc32c(&node.content);
            for (name, value) in &node.attributes {
                sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, name.as_bytes()), value);
            }
            writeln!(
                text,
                "{} {:o} {:?} {:?} {} {} {sum:08x}",
                name.display(),
                node.mode,
                node.owner,
                node.mtime,
                node.first.display(),
                node.content.len()
            )
            .unwrap();
        }
        text
    }
}
