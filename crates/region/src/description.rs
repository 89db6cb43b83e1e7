//! Descriptions: how a type lies in memory, as data.
//!
//! * Type 0 is the type described; types refer to each other by number, so a type may hold itself.
//! * [`Description::text`] is the form that is kept and compared (JSON, `docs/format.md`);
//!   [`std::fmt::Display`] is for people.
//! * A parsed description is sound: every number refers to a type that is there, every field lies in
//!   its type and beside the others, and no type holds itself other than through a block. So a walker may
//!   trust it, and looks at each byte of a value a few times at most.

mod validate;

use serde::{Deserialize, Serialize};
use std::fmt;

/// How a type and all it holds lie in memory.
///
/// ```
/// use twinpage::persist::Description;
///
/// let description = Description::of::<[u32; 3]>();
/// assert_eq!(description.types[0].bytes, 12);
/// let kept = description.text(); // as it is kept in a region
/// assert_eq!(Description::parse(&kept), Ok(description));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Description {
    /// Type 0 is the one described.
    pub types: Vec<Type>,
}

/// One type.
///
/// ```
/// use twinpage::persist::{Description, Kind};
///
/// let number = Description::of::<u64>().types.remove(0);
/// assert_eq!((&number.name[..], number.bytes, number.align), ("u64", 8, 8));
/// assert_eq!(number.kind, Kind::Plain);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Type {
    /// Its name, with that of each parameter.
    pub name: String,
    /// The same with crates and modules, where that is more. Regions of earlier builds have none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub path: String,
    /// Its version among the layouts of that name.
    pub version: u32,
    /// Its size.
    pub bytes: u64,
    /// Its alignment in bytes.
    pub align: u64,
    /// What is in it.
    pub kind: Kind,
}

/// What is in a type. `of`, `key` and `value` are numbers of types.
///
/// ```
/// use twinpage::collections::Vec;
/// use twinpage::persist::{Description, Kind};
///
/// let description = Description::of::<Vec<u64>>();
/// let Kind::Vec { of } = description.types[0].kind else { panic!() };
/// assert_eq!(description.get(of).name, "u64");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Bytes that point nowhere.
    Plain,
    /// Fields one beside the other.
    Struct(Vec<Field>),
    /// One of several, by a tag in the first bytes.
    Enum {
        /// Bytes of the tag: 0 (one variant), 1, 2, 4 or 8.
        tag_bytes: u64,
        /// The variants.
        variants: Vec<Variant>,
    },
    /// Nothing, or one value.
    Option {
        /// The value's type.
        of: u32,
        /// Where the value lies.
        at: u64,
        /// Where the bytes lie that say there is none.
        none_at: u64,
        /// What those bytes then hold.
        none: Vec<u8>,
    },
    /// A fixed number of one type.
    Array {
        /// Their type.
        of: u32,
        /// How many.
        count: u64,
    },
    /// The address of the heap of the region.
    Heap,
    /// One value in a block (`collections/boxed.rs`).
    Box {
        /// Its type.
        of: u32,
    },
    /// Values in a block of their own, as many as there were when it was made (`collections/boxed_slice.rs`).
    Slice {
        /// Their type.
        of: u32,
    },
    /// Values in a row (`collections/vec.rs`).
    Vec {
        /// Their type.
        of: u32,
    },
    /// Values in a ring (`collections/deque.rs`).
    Deque {
        /// Their type.
        of: u32,
    },
    /// A hash table (`collections/table.rs`).
    Hash {
        /// The type of its entries.
        of: u32,
        /// What the hash of some known values is: a table is of no use to a build that hashes otherwise.
        hash: u64,
    },
    /// A B-tree (`collections/btree`).
    Tree {
        /// The type of its keys.
        key: u32,
        /// The type of its values.
        value: u32,
    },
}

/// A field: a type at a place.
///
/// ```
/// use twinpage::Persist;
/// use twinpage::persist::{Description, Kind};
///
/// #[derive(Persist)]
/// #[repr(C)]
/// struct Order {
///     item: u32,
///     amount: u32,
/// }
/// let Kind::Struct(fields) = Description::of::<Order>().types.remove(0).kind else { panic!() };
/// assert_eq!((&fields[1].name[..], fields[1].at), ("amount", 4));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Field {
    /// Its name, or its number.
    pub name: String,
    /// Where it lies, in bytes from the start of what holds it.
    pub at: u64,
    /// The number of its type.
    pub of: u32,
}

/// A variant of an enum.
///
/// ```
/// use twinpage::Persist;
/// use twinpage::persist::{Description, Kind};
///
/// #[derive(Persist)]
/// #[repr(u8)]
/// enum State {
///     Open = 1,
///     Paid { amount: u32 },
/// }
/// # let _ = (State::Open, State::Paid { amount: 1 });
/// let Kind::Enum { variants, .. } = Description::of::<State>().types.remove(0).kind else { panic!() };
/// assert_eq!((&variants[1].name[..], variants[1].tag), ("Paid", 2));
/// assert_eq!(variants[1].fields[0].name, "amount");
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Variant {
    /// Its name.
    pub name: String,
    /// What the tag holds, as an unsigned number.
    pub tag: u64,
    /// Its fields, placed from the start of the enum.
    pub fields: Vec<Field>,
}

/// Why a text is no description.
///
/// ```
/// use twinpage::persist::Description;
///
/// let error = Description::parse("{}").unwrap_err();
/// assert!(error.to_string().starts_with("not a description of a type"));
/// ```
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("not a description of a type: {0}")]
pub struct BadDescription(String);

impl Description {
    /// The types that differ from another description's in where they are defined or what they are called, and in
    /// nothing else; none if other things differ, too.
    #[must_use]
    pub(crate) fn moved<'a>(&'a self, other: &'a Description) -> Vec<(&'a str, &'a str)> {
        let same = self.types.len() == other.types.len();
        let pairs = || self.types.iter().zip(&other.types);
        match same && pairs().all(|(a, b)| a.is_laid_out_as(b)) {
            true => pairs()
                .filter(|(a, b)| {
                    if a.path.is_empty() {
                        a.name != b.name
                    } else {
                        a.path != b.path
                    }
                })
                .map(|(a, b)| (a.path(), b.path()))
                .collect(),
            false => Vec::new(),
        }
    }

    /// The form that is kept and compared.
    #[must_use]
    pub fn text(&self) -> String {
        serde_json::to_string(self).expect("names and numbers are always JSON")
    }

    /// A short number for the text: its CRC-32C.
    #[must_use]
    pub fn fingerprint(&self) -> u32 {
        crc32c::crc32c(self.text().as_bytes())
    }

    /// Reads a kept description.
    ///
    /// # Errors
    /// [`BadDescription`] when it is not one.
    pub fn parse(text: &str) -> Result<Description, BadDescription> {
        let description: Description =
            serde_json::from_str(text).map_err(|e| BadDescription(e.to_string()))?;
        description.validate().map_err(BadDescription)?;
        Ok(description)
    }

    /// The type of that number; 0 is the one described.
    ///
    /// # Panics
    /// When there is none: numbers found in a description are always good.
    #[must_use]
    pub fn get(&self, number: u32) -> &Type {
        &self.types[number as usize]
    }
}

impl Type {
    /// Its name with crates and modules, as far as they are known.
    #[must_use]
    pub fn path(&self) -> &str {
        if self.path.is_empty() {
            &self.name
        } else {
            &self.path
        }
    }

    pub(crate) fn is_laid_out_as(&self, other: &Type) -> bool {
        let same_kind = match (&self.kind, &other.kind) {
            (
                Kind::Option {
                    of,
                    at,
                    none_at,
                    none,
                },
                Kind::Option {
                    of: other_of,
                    at: other_at,
                    none_at: other_none_at,
                    none: other_none,
                },
            ) => {
                (of, at) == (other_of, other_at)
                    && tell_the_same((*none_at, none), (*other_none_at, other_none))
            }
            (kind, other) => kind == other,
        };
        let size = |ty: &Type| (ty.version, ty.bytes, ty.align);
        size(self) == size(other) && same_kind
    }

    /// The numbers of the types that lie in it, not in blocks it owns.
    pub(crate) fn parts(&self) -> impl Iterator<Item = u32> {
        let (fields, variants, one) = match &self.kind {
            Kind::Struct(fields) => (&fields[..], &[][..], None),
            Kind::Enum { variants, .. } => (&[][..], &variants[..], None),
            Kind::Option { of, .. } | Kind::Array { of, .. } => (&[][..], &[][..], Some(*of)),
            _ => (&[][..], &[][..], None),
        };
        let variants: &[Variant] = variants;
        let fields = fields.iter().chain(variants.iter().flat_map(|v| &v.fields));
        fields.map(|field| field.of).chain(one)
    }
}

/// Whether two places and bytes that say an option is `None` tell the same: an earlier build may have found fewer of the bytes, or more.
fn tell_the_same(a: (u64, &[u8]), b: (u64, &[u8])) -> bool {
    let (first, second) = if a.0 <= b.0 { (a, b) } else { (b, a) };
    let apart = (second.0 - first.0) as usize;
    let common = first.1.get(apart..).unwrap_or_default();
    let length = common.len().min(second.1.len());
    length > 0 && common[..length] == second.1[..length]
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |of: &u32| &self.get(*of).name;
        for (number, ty) in self.types.iter().enumerate() {
            if number > 0 && ty.kind == Kind::Plain {
                continue; // said where it is used
            }
            write!(f, "{}", ty.name)?;
            if ty.version != 1 {
                write!(f, " (version {})", ty.version)?;
            }
            writeln!(f, ": {} bytes", ty.bytes)?;
            let field = |f: &mut fmt::Formatter<'_>, field: &Field| {
                writeln!(
                    f,
                    "    at {:>3}: {}, {} ({} bytes)",
                    field.at,
                    field.name,
                    name(&field.of),
                    self.get(field.of).bytes
                )
            };
            match &ty.kind {
                Kind::Struct(fields) => fields.iter().try_for_each(|one| field(f, one))?,
                Kind::Enum { variants, .. } => {
                    for variant in variants {
                        writeln!(f, "    {} = {}", variant.name, variant.tag)?;
                        variant.fields.iter().try_for_each(|one| field(f, one))?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_tell_the_same_overlap_and_agree() {
        assert!(tell_the_same((4, &[2]), (4, &[2, 0, 0, 0])));
        assert!(tell_the_same((4, &[0, 0, 0x11]), (6, &[0x11, 0])));
        assert!(!tell_the_same((4, &[2]), (4, &[3])));
        assert!(!tell_the_same((4, &[2]), (5, &[2])));
        assert!(!tell_the_same((4, &[2]), (0, &[2])));
    }
}
