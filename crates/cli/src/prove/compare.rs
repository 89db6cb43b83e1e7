//! The first place where two runs differ, byte for byte.

use serde::Serialize;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a line that are shown.
const SHOWN_BYTES: u64 = 160;

/// Where two runs differ.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Difference {
    /// `stdout`, `stderr`, `exit`, `file NAME`, or what twinpage failed at.
    pub(crate) what: String,
    /// The line, from 1, where it is about text.
    pub(crate) line: Option<u64>,
    /// What the undisturbed run has.
    pub(crate) undisturbed: String,
    /// What the run under twinpage has.
    pub(crate) killed: String,
}

impl Difference {
    pub(crate) fn new(
        what: impl Into<String>,
        undisturbed: impl Into<String>,
        killed: impl Into<String>,
    ) -> Difference {
        Difference {
            what: what.into(),
            line: None,
            undisturbed: undisturbed.into(),
            killed: killed.into(),
        }
    }
}

impl Difference {
    /// For people; `other` says which run is beside the undisturbed one.
    pub(crate) fn beside(&self, other: &str) -> String {
        let line = self.line.map_or(String::new(), |line| format!(", line {line}"));
        let width = other.len().max("undisturbed".len());
        format!(
            "{}{line}\n  {:width$}  {}\n  {other:width$}  {}",
            self.what, "undisturbed", self.undisturbed, self.killed
        )
    }
}

/// The first difference of two files, if there is one.
pub(crate) fn files(what: &str, undisturbed: &Path, killed: &Path) -> io::Result<Option<Difference>> {
    let mut readers = [
        BufReader::with_capacity(1 << 16, File::open(undisturbed)?),
        BufReader::with_capacity(1 << 16, File::open(killed)?),
    ];
    let (mut at, mut line, mut line_at) = (0, 1, 0);
    loop {
        let [one, other] = &mut readers;
        let (left, right) = (one.fill_buf()?, other.fill_buf()?);
        let len = left.len().min(right.len());
        let same = left.iter().zip(right).position(|(a, b)| a != b).unwrap_or(len);
        for (index, byte) in left[..same].iter().enumerate() {
            if *byte == b'\n' {
                line += 1;
                line_at = at + index as u64 + 1;
            }
        }
        if same < len || left.len() != right.len() && len == 0 {
            return Ok(Some(Difference {
                what: what.to_owned(),
                line: Some(line),
                undisturbed: shown(undisturbed, line_at)?,
                killed: shown(killed, line_at)?,
            }));
        }
        if len == 0 {
            return Ok(None);
        }
        at += len as u64;
        one.consume(len);
        other.consume(len);
    }
}

/// The line that begins at a byte of a file, for people.
fn shown(path: &Path, at: u64) -> io::Result<String> {
    let mut file = File::open(path)?;
    file.seek(SeekFrom::Start(at))?;
    let mut bytes = Vec::new();
    file.take(SHOWN_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.is_empty() {
        return Ok("(it ends here)".into());
    }
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |end| end + 1);
    let cut = end as u64 > SHOWN_BYTES;
    let mut text = String::from_utf8_lossy(&bytes[..end.min(SHOWN_BYTES as usize)])
        .chars()
        .map(|letter| match letter {
            letter if letter.is_control() => letter.escape_default().to_string(),
            letter => letter.to_string(),
        })
        .collect::<String>();
    if cut {
        text.push_str("...");
    }
    Ok(text)
}

/// A name in a directory.
#[derive(PartialEq, Eq)]
enum Entry {
    File { mode: u32, path: PathBuf },
    Directory { mode: u32 },
    Link { to: PathBuf },
    Special { mode: u32 },
}

impl Entry {
    fn describe(&self) -> String {
        match self {
            Entry::File { mode, .. } => format!("a file with mode {mode:o}"),
            Entry::Directory { mode } => format!("a directory with mode {mode:o}"),
            Entry::Link { to } => format!("a link to {}", to.display()),
            Entry::Special { mode } => format!("a special file with mode {mode:o}"),
        }
    }
}

/// The first difference of two directories: names, kinds, modes, links, contents.
pub(crate) fn directories(undisturbed: &Path, killed: &Path) -> io::Result<Option<Difference>> {
    let (left, right) = (list(undisturbed)?, list(killed)?);
    let mut names: Vec<&PathBuf> = left.keys().chain(right.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let what = format!("file {}", name.display());
        let (one, other) = (left.get(name), right.get(name));
        if let (
            Some(Entry::File { mode, path }),
            Some(Entry::File {
                mode: second,
                path: killed,
            }),
        ) = (one, other)
            && mode == second
        {
            match files(&what, path, killed)? {
                None => continue,
                found => return Ok(found),
            }
        }
        let describe = |entry: Option<&Entry>| entry.map_or("not there".into(), Entry::describe);
        if one != other {
            return Ok(Some(Difference::new(what, describe(one), describe(other))));
        }
    }
    Ok(None)
}

/// How many files there are in a directory, and their bytes.
pub(crate) fn size(directory: &Path) -> io::Result<(u64, u64)> {
    let (mut files, mut bytes) = (0, 0);
    for entry in list(directory)?.into_values() {
        if let Entry::File { path, .. } = entry {
            files += 1;
            bytes += path.metadata()?.len();
        }
    }
    Ok((files, bytes))
}

/// Everything below a directory, by its name from there.
fn list(root: &Path) -> io::Result<BTreeMap<PathBuf, Entry>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(name) = waiting.pop() {
        for entry in root.join(&name).read_dir()? {
            let entry = entry?;
            let (name, meta) = (name.join(entry.file_name()), entry.metadata()?);
            let mode = meta.permissions().mode() & 0o7777;
            let kind = if meta.is_dir() {
                waiting.push(name.clone());
                Entry::Directory { mode }
            } else if meta.is_file() {
                Entry::File {
                    mode,
                    path: entry.path(),
                }
            } else if meta.is_symlink() {
                Entry::Link {
                    to: entry.path().read_link()?,
                }
            } else {
                Entry::Special { mode }
            };
            found.insert(name, kind);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn compared(left: &[u8], right: &[u8]) -> Option<(u64, String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, left).unwrap();
        fs::write(&b, right).unwrap();
        files("x", &a, &b)
            .unwrap()
            .map(|found| (found.line.unwrap(), found.undisturbed, found.killed))
    }

    #[test]
    fn the_first_line_that_differs() {
        let is = |line, left: &str, right: &str| Some((line, left.to_owned(), right.to_owned()));
        assert_eq!(compared(b"", b""), None);
        assert_eq!(compared(b"same\n", b"same\n"), None);
        assert_eq!(compared(b"a\nb\nc\n", b"a\nx\nc\n"), is(2, "b\\n", "x\\n"));
        assert_eq!(compared(b"a\nb", b"a\nb\n"), is(2, "b", "b\\n"));
        assert_eq!(compared(b"a\n", b"a\nmore"), is(2, "(it ends here)", "more"));
        assert_eq!(compared(b"", b"\0"), is(1, "(it ends here)", "\\u{0}"));
        let mut long: Vec<u8> = (0..200_000u32)
            .flat_map(|n| format!("{n}\n").into_bytes())
            .collect();
        let other = long.clone();
        assert_eq!(compared(&long, &other), None);
        let at = long.windows(7).position(|bytes| bytes == b"123456\n").unwrap();
        long[at] = b'9';
        assert_eq!(compared(&long, &other), is(123_457, "923456\\n", "123456\\n"));
        let (left, right) = (vec![b'a'; 70_000], [vec![b'a'; 65_536], vec![b'b'; 10]].concat());
        let (line, left, _) = compared(&left, &right).unwrap();
        assert_eq!((line, left.len()), (1, SHOWN_BYTES as usize + 3));
    }

    #[test]
    fn what_is_in_two_directories() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("sub/empty")).unwrap();
            fs::write(root.join("sub/file"), "text\n").unwrap();
            std::os::unix::fs::symlink("nowhere", root.join("link")).unwrap();
        }
        let found = || directories(&a, &b).unwrap();
        assert_eq!(found(), None);
        assert_eq!(size(&a).unwrap(), (1, 5));
        fs::write(b.join("sub/file"), "test\n").unwrap();
        let difference = found().unwrap();
        assert_eq!(
            (difference.what.as_str(), difference.line),
            ("file sub/file", Some(1))
        );
        fs::set_permissions(b.join("sub/file"), fs::Permissions::from_mode(0o600)).unwrap();
        assert!(found().unwrap().killed.contains("600"));
        fs::write(b.join("more"), "").unwrap();
        assert_eq!(found().unwrap().undisturbed, "not there");
        fs::remove_file(b.join("link")).unwrap();
        assert_eq!(found().unwrap().killed, "not there");
    }
}
