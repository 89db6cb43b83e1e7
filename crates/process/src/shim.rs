//! Shims of version managers: what stands in PATH under a program's name and is not the program.
//!
//! pyenv, rbenv, nodenv, asdf and their kin put a shell script there that starts other programs to find
//! out which version is meant, and then becomes it. Children cannot be checkpointed, and no user who says
//! `python3` means the script: the manager is asked (`pyenv which python3`) and what it names is run.

use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const MANAGERS: [&str; 8] = [
    "pyenv", "rbenv", "nodenv", "goenv", "plenv", "phpenv", "jenv", "asdf",
];

/// A shim is a few lines.
const MOST_BYTES: u64 = 4096;

/// A shim found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shim {
    path: PathBuf,
    manager: PathBuf,
}

impl Shim {
    /// The shim at `path`, if that is what is there: a script in a directory `shims` that ends with
    /// `exec MANAGER exec ...`.
    #[must_use]
    pub fn at(path: &Path) -> Option<Shim> {
        if path.parent()?.file_name()? != "shims" {
            return None;
        }
        let mut text = Vec::new();
        File::open(path)
            .ok()?
            .take(MOST_BYTES)
            .read_to_end(&mut text)
            .ok()?;
        let manager = manager_in(&text)?;
        let name = manager.file_name()?;
        MANAGERS.iter().any(|known| name == *known).then(|| Shim {
            path: path.to_owned(),
            manager,
        })
    }

    /// Whose it is: `pyenv`.
    #[must_use]
    pub fn manager(&self) -> String {
        let name = self.manager.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The program it would become here and now, as its manager says.
    ///
    /// # Errors
    /// What the manager says when it does not know.
    pub fn target(&self) -> Result<PathBuf> {
        let name = self.path.file_name().unwrap_or_default();
        let (shown, manager) = (name.to_string_lossy().into_owned(), self.manager());
        let unknown = |why: &str| {
            Error::Unsupported(format!(
                "{shown} is a shim of {manager}, and {manager} which {shown} says: {}; name the program itself",
                why.trim().lines().next().unwrap_or("nothing")
            ))
        };
        let mut ask = Command::new(&self.manager);
        ask.arg("which").arg(name).stdin(Stdio::null());
        // The shim knows where its manager's files are; the user's environment may not.
        let root = format!("{}_ROOT", manager.to_uppercase());
        if let (None, Some(above)) = (std::env::var_os(&root), self.path.ancestors().nth(2)) {
            ask.env(root, above);
        }
        let answer = ask.output().map_err(|error| unknown(&error.to_string()))?;
        let path = PathBuf::from(OsString::from_vec(answer.stdout.trim_ascii_end().to_vec()));
        if answer.status.success() && path.is_absolute() && path.is_file() {
            Ok(path)
        } else {
            Err(unknown(&String::from_utf8_lossy(&answer.stderr)))
        }
    }
}

/// The manager in a shim's last line, `exec "MANAGER" exec ...`.
fn manager_in(text: &[u8]) -> Option<PathBuf> {
    if !text.starts_with(b"#!") {
        return None;
    }
    let mut lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let last = lines.rfind(|line| !line.is_empty())?;
    let mut words = last.split(u8::is_ascii_whitespace);
    let (exec, manager, again) = (words.next()?, words.next()?, words.next()?);
    let manager = manager.strip_prefix(b"\"").unwrap_or(manager);
    let manager = manager.strip_suffix(b"\"").unwrap_or(manager);
    (exec == b"exec" && again == b"exec").then(|| PathBuf::from(OsStr::from_bytes(manager)))
}

/// The name that a script's first line has looked up along PATH: `#!/usr/bin/env NAME`.
#[must_use]
pub fn looked_up_interpreter(script: &Path) -> Option<OsString> {
    let mut head = [0; 256];
    let length = File::open(script).ok()?.read(&mut head).ok()?;
    let line = head[..length].split(|byte| *byte == b'\n').next()?;
    let words = line.strip_prefix(b"#!")?.split(u8::is_ascii_whitespace);
    let words: Vec<&[u8]> = words.filter(|word| !word.is_empty()).collect();
    match words[..] {
        [env, name] if env.ends_with(b"/env") && !name.starts_with(b"-") => {
            Some(OsStr::from_bytes(name).to_owned())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn script(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_shim_says_what_it_stands_for() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let real = at("versions/3.11/bin/tool");
        script(&real, "#!/bin/sh\n");
        let manager = at("libexec/pyenv");
        script(
            &manager,
            &format!(
                "#!/bin/sh\n[ \"$1 $2\" = 'which tool' ] && echo {} && exit\necho 'pyenv: no such command' >&2\nexit 1\n",
                real.display()
            ),
        );
        let text = format!(
            "#!/usr/bin/env bash\nset -e\nexec \"{}\" exec \"$program\" \"$@\"\n",
            manager.display()
        );
        script(&at("shims/tool"), &text);
        let shim = Shim::at(&at("shims/tool")).unwrap();
        assert_eq!((shim.manager().as_str(), shim.target().unwrap()), ("pyenv", real));

        script(&at("shims/other"), &text);
        let why = Shim::at(&at("shims/other"))
            .unwrap()
            .target()
            .unwrap_err()
            .to_string();
        assert!(why.contains("no such command") && why.contains("other"), "{why}");

        script(&at("bin/tool"), &text);
        script(&at("shims/plain"), "#!/bin/sh\nexec ls exec\n");
        script(&at("shims/empty"), "");
        for name in ["bin/tool", "shims/plain", "shims/empty", "shims/none"] {
            assert_eq!(Shim::at(&at(name)), None, "{name}");
        }
    }

    #[test]
    fn the_first_line_of_a_script() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("script");
        for (text, name) in [
            ("#!/usr/bin/env python3\nx", Some("python3")),
            ("#! /bin/env  ruby \n", Some("ruby")),
            ("#!/usr/bin/env -S python3 -u\n", None),
            ("#!/usr/bin/python3\n", None),
            ("", None),
        ] {
            script(&path, text);
            assert_eq!(looked_up_interpreter(&path), name.map(OsString::from), "{text}");
        }
    }
}
