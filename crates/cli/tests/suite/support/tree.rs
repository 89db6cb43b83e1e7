//! The files a program leaves behind, to be compared byte for byte.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// One name in a directory tree.
#[derive(PartialEq, Eq)]
pub(crate) enum Entry {
    File { mode: u32, bytes: Vec<u8> },
    Directory { mode: u32 },
    Link { to: String },
}

/// Every name under a directory, and what it is.
pub(crate) type Tree = BTreeMap<String, Entry>;

/// Reads all of a directory.
pub(crate) fn snapshot(dir: &Path) -> Tree {
    let mut tree = Tree::new();
    collect(dir, dir, &mut tree);
    tree
}

fn collect(root: &Path, dir: &Path, tree: &mut Tree) {
    for entry in fs::read_dir(dir).unwrap_or_else(|e| panic!("read {}: {e}", dir.display())) {
        let path = entry.expect("a directory entry").path();
        let meta = fs::symlink_metadata(&path).unwrap_or_else(|e| panic!("stat {}: {e}", path.display()));
        let mode = meta.permissions().mode() & 0o7777;
        let name = path
            .strip_prefix(root)
            .expect("below its root")
            .display()
            .to_string();
        let entry = if meta.is_symlink() {
            Entry::Link {
                to: fs::read_link(&path).expect("a link").display().to_string(),
            }
        } else if meta.is_dir() {
            collect(root, &path, tree);
            Entry::Directory { mode }
        } else {
            Entry::File {
                mode,
                bytes: fs::read(&path).unwrap_or_else(|e| panic!("read {}: {e}", path.display())),
            }
        };
        tree.insert(name, entry);
    }
}

/// The first difference between two trees, in words.
pub(crate) fn difference(want: &Tree, got: &Tree) -> Option<String> {
    for (name, entry) in want {
        match (entry, got.get(name)) {
            (_, None) => return Some(format!("{name} is missing")),
            (a, Some(b)) if a == b => {}
            (
                Entry::File { mode, bytes },
                Some(Entry::File {
                    mode: other,
                    bytes: found,
                }),
            ) => {
                if mode != other {
                    return Some(format!("{name} has mode {other:o}, not {mode:o}"));
                }
                return Some(format!("{name}: {}", bytes_difference(bytes, found)));
            }
            (_, Some(_)) => return Some(format!("{name} is of another kind or mode")),
        }
    }
    got.keys()
        .find(|name| !want.contains_key(*name))
        .map(|name| format!("{name} should not exist"))
}

/// Where two byte strings part, with what is around it in each.
pub(crate) fn bytes_difference(want: &[u8], got: &[u8]) -> String {
    let at = want
        .iter()
        .zip(got)
        .position(|(a, b)| a != b)
        .unwrap_or(want.len().min(got.len()));
    let around = |bytes: &[u8]| {
        let part = &bytes[at.saturating_sub(100)..bytes.len().min(at + 100)];
        String::from_utf8_lossy(part).into_owned()
    };
    format!(
        "{} bytes instead of {}, different from byte {at}: wanted {:?}, got {:?}",
        got.len(),
        want.len(),
        around(want),
        around(got)
    )
}
