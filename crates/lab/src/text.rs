//! Text of configuration files: what is wrong in one is told with its file and line.

use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read};

/// What is wrong with a configuration, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {what}")]
pub struct ConfigError {
    /// The file, or the name of a built-in one.
    pub file: String,
    /// What and in which line.
    pub what: String,
}

impl ConfigError {
    /// The `subject` of a file, its machine or study, cannot be `by` times smaller: that must leave `least`.
    pub(crate) fn too_small(file: &str, subject: &str, by: u64, least: &str) -> ConfigError {
        ConfigError {
            file: file.to_owned(),
            what: format!("the {subject} cannot be {by} times smaller: a power of two that leaves {least}"),
        }
    }
}

/// What `name` stands for, and its text: one of the `built_in`, else a file by its path. `kind`, in the
/// plural, is for errors.
///
/// # Errors
/// There is neither.
pub fn find<'a>(
    name: &'a str,
    kind: &str,
    built_in: &[(&'a str, &'a str)],
) -> Result<(&'a str, Cow<'a, str>), ConfigError> {
    if let Some(&(known, text)) = built_in.iter().find(|(known, _)| *known == name) {
        return Ok((known, text.into()));
    }
    let text = read(name).map_err(|why| {
        let known: Vec<&str> = built_in.iter().map(|(known, _)| *known).collect();
        ConfigError {
            file: name.into(),
            what: format!("{why}; the built-in {kind} are {}", known.join(", ")),
        }
    })?;
    Ok((name, text.into()))
}

/// The text of a file that is no longer than a configuration can be: a device may never end.
fn read(file: &str) -> io::Result<String> {
    const MOST: u64 = 1 << 20;
    let mut text = String::new();
    let bytes = File::open(file)?.take(MOST + 1).read_to_string(&mut text)?;
    match bytes as u64 <= MOST {
        true => Ok(text),
        false => Err(io::Error::other("longer than 1 MiB, so it is no configuration")),
    }
}

/// Text that is being read, to say where a value that cannot be stands.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    /// The file.
    pub file: &'a str,
    /// What it holds.
    pub text: &'a str,
}

impl SourceText<'_> {
    /// The text as `T`.
    ///
    /// # Errors
    /// Names the line and column.
    pub fn read<T: DeserializeOwned>(self) -> Result<T, ConfigError> {
        toml::from_str(self.text).map_err(|error| ConfigError {
            file: self.file.into(),
            what: error.to_string().trim_end().into(),
        })
    }

    /// An error about `key` of `[table]`, with its line.
    #[must_use]
    pub fn wrong(self, table: &str, key: &str, why: impl std::fmt::Display) -> ConfigError {
        // Text put together from several has no lines to name.
        let line = match self.text {
            "" => String::new(),
            _ => format!("line {}: ", self.line(table, key)),
        };
        ConfigError {
            file: self.file.into(),
            what: format!("{line}`{key}` of [{table}]: {why}"),
        }
    }

    /// Checks a file by rules: a table and a key of it, whether the value fits, and which ones do.
    ///
    /// # Errors
    /// The first rule that is broken.
    pub fn check<'t>(
        self,
        rules: impl IntoIterator<Item = (&'t str, &'t str, bool, &'t str)>,
    ) -> Result<(), ConfigError> {
        match rules.into_iter().find(|(_, _, fits, _)| !fits) {
            Some((table, key, _, why)) => Err(self.wrong(table, key, why)),
            None => Ok(()),
        }
    }

    /// The line of the key, or of its table if the key is not there.
    fn line(self, table: &str, key: &str) -> usize {
        let header = format!("[{table}]");
        let (mut here, mut found) = (table.is_empty(), 1);
        for (number, line) in self
            .text
            .lines()
            .enumerate()
            .map(|(number, line)| (number + 1, line.trim()))
        {
            if line.starts_with('[') {
                here = line.starts_with(&header);
                if here {
                    found = number;
                }
            } else if here && line.split('=').next().is_some_and(|name| name.trim() == key) {
                return number;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_never_ends_is_no_configuration() {
        let told = find("/dev/zero", "machines", &[]).unwrap_err().to_string();
        assert!(told.starts_with("/dev/zero: longer than 1 MiB"), "{told}");
    }
}
