//! The name of a type: where it is defined, what it is called, and where and what it was before.
//!
//! * A type of a program is told from another of the same name by its crate and module: its path.
//! * A description keeps the path and the name, each with those of all parameters. One that was kept before paths
//!   were has only the name.

use std::fmt;

/// The name of a type, with those of its parameters. Shown without the modules, and kept with them.
///
/// ```
/// use twinpage::Persist;
/// use twinpage::collections::Vec;
///
/// mod shop {
///     #[derive(twinpage::Persist)]
///     #[persist(was = "Purchase")]
///     pub struct Order(u64);
/// }
/// let name = Vec::<shop::Order>::name();
/// assert_eq!(name.to_string(), "Vec<Order>");
/// assert_eq!(name.path(), concat!("Vec<", module_path!(), "::shop::Order>"));
/// assert!(name.is_path(concat!("Vec<", module_path!(), "::shop::Purchase>")));
/// ```
#[derive(Clone, Debug)]
pub struct Name(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    /// A type of a program: the paths it has and had, the newest first.
    Defined(Vec<String>),
}

impl Name {
    /// A type of the language, of `std` or of this library, which is at home everywhere.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Name {
        Name(vec![Part::Text(text.into())])
    }

    /// A type that is defined in a module; `was` are its earlier paths, or earlier names in this module.
    #[must_use]
    pub fn defined(module: &str, name: &str, was: &[&str]) -> Name {
        let path = |name: &str| match name.contains("::") {
            true => name.into(),
            false => format!("{module}::{name}"),
        };
        let paths = [name].iter().chain(was).map(|name| path(name)).collect();
        Name(vec![Part::Defined(paths)])
    }

    /// With parameters: `Name<A, B>`.
    #[must_use]
    pub fn with(self, parameters: impl IntoIterator<Item = Name>) -> Name {
        self.then("<").list(parameters).then(">")
    }

    /// With some text at the end.
    #[must_use]
    pub fn then(mut self, text: &str) -> Name {
        self.0.push(Part::Text(text.into()));
        self
    }

    /// With other names at the end, and commas between them.
    #[must_use]
    pub fn list(mut self, names: impl IntoIterator<Item = Name>) -> Name {
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.0.push(Part::Text(", ".into()));
            }
            self.0.extend(name.0);
        }
        self
    }

    /// The whole name, with crates and modules.
    #[must_use]
    pub fn path(&self) -> String {
        let part = |part: &Part| match part {
            Part::Text(text) => text.clone(),
            Part::Defined(paths) => paths[0].clone(),
        };
        self.0.iter().map(part).collect()
    }

    /// Whether that is the path of this type, or was.
    #[must_use]
    pub fn is_path(&self, text: &str) -> bool {
        self.is(text, |path| path)
    }

    /// Whether that is the name of this type without modules, or was.
    #[must_use]
    pub fn is_name(&self, text: &str) -> bool {
        self.is(text, last)
    }

    fn is<'a>(&'a self, mut text: &'a str, form: impl Fn(&'a str) -> &'a str) -> bool {
        let goes_on = |rest: &str| rest.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':');
        for part in &self.0 {
            let rest = match part {
                Part::Text(part) => text.strip_prefix(part.as_str()),
                Part::Defined(paths) => {
                    let mut rests = paths.iter().filter_map(|path| text.strip_prefix(form(path)));
                    rests.find(|rest| !goes_on(rest))
                }
            };
            match rest {
                Some(rest) => text = rest,
                None => return false,
            }
        }
        text.is_empty()
    }
}

/// A name without its modules.
fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap_or(path)
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Defined(paths) => f.write_str(last(&paths[0])),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_own_and_its_earlier_ones_and_no_other() {
        let item = Name::defined("shop::stock", "Item", &["Thing", "old::Good"]);
        let map = Name::new("HashMap").with([Name::new("u64"), Name::new("(").list([item]).then(")")]);
        assert_eq!(map.path(), "HashMap<u64, (shop::stock::Item)>");
        assert_eq!(map.to_string(), "HashMap<u64, (Item)>");
        for path in ["shop::stock::Item", "shop::stock::Thing", "old::Good"] {
            assert!(map.is_path(&format!("HashMap<u64, ({path})>")), "{path}");
            assert!(map.is_name(&format!("HashMap<u64, ({})>", last(path))), "{path}");
        }
        for path in [
            "Item",
            "shop::Item",
            "shop::stock::Items",
            "old::Good::Item",
            "old::Goo",
            "",
        ] {
            assert!(!map.is_path(&format!("HashMap<u64, ({path})>")), "{path}");
        }
        assert!(!map.is_path("HashMap<u64, (old::Good)"));
        assert!(!map.is_path("HashMap<u64, (old::Good)> "));
        assert!(!map.is_name("HashMap<u64, (Items)>"));
    }

    #[test]
    fn a_name_that_begins_as_another_is_found() {
        let name = Name::defined("m", "A", &["AB"]);
        assert!(name.is_path("m::AB") && name.is_path("m::A") && !name.is_path("m::ABC"));
    }
}
