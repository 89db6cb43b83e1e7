//! Descriptions: how a type lies in memory, as data.
//!
//! * Type 0 is the type described; types refer to each other by number, so a type may hold itself.
//! * [`Description::text`] is the form that is kept and compared (JSON, `docs/format.md`);
//!   [`std::fmt::Display`] is for people.
//! * A parsed description is sound: every number refers to a type that is there, every field lies in
//!   its type and beside the others, and no type holds itself other than through a block. So a walker may
//!   trust it, and looks at each byte of a value a few times at most.

use super::niche::{self, Spare};
use super::{Name, Persist};
use serde::{Deserialize, Serialize};
use std::any::TypeId;
use std::collections::HashMap;
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

/// The most types one in the other.
const DEEPEST: usize = 100;

impl Description {
    /// The description of `T`.
    #[must_use]
    pub fn of<T: Persist>() -> Description {
        Description::with_names::<T>().0
    }

    /// The description of `T`, and the names of its types with all that they were.
    fn with_names<T: Persist>() -> (Description, Vec<Name>) {
        let mut types = Types::default();
        types.of::<T>();
        let described = types.types.into_iter().flatten().collect();
        (Description { types: described }, types.names)
    }

    /// Whether it is that of `T`: the same layout, and each type the same or one that `T`'s says it was.
    ///
    /// ```
    /// use twinpage::persist::Description;
    ///
    /// assert!(Description::of::<u64>().is_of::<u64>());
    /// assert!(!Description::of::<u64>().is_of::<i64>());
    /// ```
    #[must_use]
    pub fn is_of<T: Persist>(&self) -> bool {
        let (asked, names) = Description::with_names::<T>();
        let mut types = self.types.iter().zip(&asked.types).zip(&names);
        self.types.len() == asked.types.len()
            && types.all(|((stored, asked), name)| stored.is_laid_out_as(asked) && stored.is_called(name))
    }

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

    fn validate(&self) -> Result<(), String> {
        if self.types.is_empty() {
            return Err("it has no types".into());
        }
        for ty in &self.types {
            if !ty.align.is_power_of_two() || ty.align > 1 << 29 || ty.bytes > 1 << 40 {
                return Err(format!(
                    "{} of {} bytes aligned to {}",
                    ty.name, ty.bytes, ty.align
                ));
            }
            self.validate_kind(ty)?;
        }
        let mut heights = vec![None; self.types.len()];
        (0..self.types.len()).try_for_each(|number| self.height(number as u32, 0, &mut heights).map(drop))
    }

    fn validate_kind(&self, ty: &Type) -> Result<(), String> {
        let lies = |of: u32, at: u64| {
            let held = self.types.get(of as usize);
            let held = held.ok_or_else(|| format!("{} refers to type {of}, which is not there", ty.name))?;
            match at.checked_add(held.bytes) {
                Some(end) if end <= ty.bytes => Ok(()),
                _ => Err(format!("{} at byte {at} does not lie in {} ", held.name, ty.name)),
            }
        };
        let refers = |of: u32| match self.types.get(of as usize) {
            Some(_) => Ok(()),
            None => Err(format!("{} refers to type {of}, which is not there", ty.name)),
        };
        let wide = |bytes: u64| match ty.bytes >= bytes {
            true => Ok(()),
            false => Err(format!("{} has {} bytes and needs {bytes}", ty.name, ty.bytes)),
        };
        let beside = |fields: &[Field]| {
            fields.iter().try_for_each(|f| lies(f.of, f.at))?;
            let mut parts: Vec<_> = fields.iter().map(|f| (f.at, self.get(f.of).bytes)).collect();
            parts.retain(|&(_, bytes)| bytes > 0);
            parts.sort_unstable();
            match parts.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0) {
                true => Ok(()),
                false => Err(format!("fields of {} lie over each other", ty.name)),
            }
        };
        match &ty.kind {
            Kind::Plain => Ok(()),
            Kind::Struct(fields) => beside(fields),
            Kind::Enum { tag_bytes, variants } => {
                if ![0, 1, 2, 4, 8].contains(tag_bytes) || *tag_bytes > ty.bytes || variants.is_empty() {
                    return Err(format!("{} has a tag of {tag_bytes} bytes", ty.name));
                }
                variants.iter().try_for_each(|variant| beside(&variant.fields))
            }
            Kind::Option {
                of,
                at,
                none_at,
                none,
            } => {
                let end = none_at.checked_add(none.len() as u64);
                if none.is_empty() || end.is_none_or(|end| end > ty.bytes) {
                    return Err(format!("nothing says when {} is none", ty.name));
                }
                lies(*of, *at)
            }
            Kind::Array { of, count } => {
                refers(*of)?;
                match self.get(*of).bytes.checked_mul(*count) {
                    Some(bytes) if bytes <= ty.bytes => Ok(()),
                    _ => Err(format!("{} does not hold {count} elements", ty.name)),
                }
            }
            Kind::Heap => wide(8),
            Kind::Box { of } => refers(*of).and(wide(8)),
            Kind::Slice { of } => refers(*of).and(wide(16)),
            Kind::Vec { of } => refers(*of).and(wide(32)),
            Kind::Deque { of } => refers(*of).and(wide(40)),
            Kind::Hash { of, .. } => refers(*of).and(wide(48)),
            Kind::Tree { key, value } => refers(*key).and(refers(*value)).and(wide(32)),
        }
    }

    /// How many types deep type `number` is, without following blocks; an error if it has no end.
    fn height(&self, number: u32, depth: usize, known: &mut [Option<usize>]) -> Result<usize, String> {
        if let Some(height) = known[number as usize] {
            return Ok(height);
        }
        let ty = self.get(number);
        if depth > DEEPEST {
            return Err(format!(
                "{} holds itself, or more than {DEEPEST} types one in the other",
                ty.name
            ));
        }
        let mut below = 0;
        for part in ty.parts() {
            below = below.max(self.height(part, depth + 1, known)?);
        }
        known[number as usize] = Some(below + 1);
        match below < DEEPEST {
            true => Ok(below + 1),
            false => Err(format!(
                "{} holds more than {DEEPEST} types one in the other",
                ty.name
            )),
        }
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

    fn is_called(&self, name: &Name) -> bool {
        match self.path.is_empty() {
            true => name.is_name(&self.name),
            false => name.is_path(&self.path),
        }
    }

    fn is_laid_out_as(&self, other: &Type) -> bool {
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
                    && niche::tell_the_same((*none_at, none), (*other_none_at, other_none))
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

/// The types described so far.
///
/// ```
/// use twinpage::persist::Types;
///
/// let mut types = Types::default();
/// let number = types.of::<u64>();
/// assert_eq!(types.of::<u64>(), number); // described once
/// assert_eq!(types.field::<u64>("amount", 8).of, number);
/// ```
#[derive(Default)]
pub struct Types {
    numbers: HashMap<TypeId, u32>,
    types: Vec<Option<Type>>,
    names: Vec<Name>,
}

impl Types {
    /// The number of `T`, described if it was not yet.
    pub fn of<T: Persist>(&mut self) -> u32 {
        if let Some(&number) = self.numbers.get(&TypeId::of::<T>()) {
            return number;
        }
        let number = self.types.len() as u32;
        self.numbers.insert(TypeId::of::<T>(), number);
        self.types.push(None); // kept for it while what it holds is described
        let (name, path) = (T::name().to_string(), T::name().path());
        self.names.push(T::name());
        self.types[number as usize] = Some(Type {
            path: if path == name { String::new() } else { path },
            name,
            version: T::VERSION,
            bytes: size_of::<T>() as u64,
            align: align_of::<T>() as u64,
            kind: T::layout(self),
        });
        number
    }

    /// Where a type that was described may have values to spare.
    pub(super) fn spares(&self, number: u32) -> Vec<Spare> {
        niche::spares(&self.types, number)
    }

    /// A field of type `T` at byte `at`.
    pub fn field<T: Persist>(&mut self, name: &str, at: usize) -> Field {
        Field {
            name: name.into(),
            at: at as u64,
            of: self.of::<T>(),
        }
    }
}

impl Variant {
    /// A variant with fields; `tag` is an integer.
    #[must_use]
    pub fn new<T: Copy>(name: &str, tag: &T, fields: Vec<Field>) -> Variant {
        Variant {
            name: name.into(),
            tag: bytes_of(tag),
            fields,
        }
    }

    /// A variant of an enum without fields, which is all tag.
    #[must_use]
    pub fn unit<T>(name: &str, value: &T) -> Variant {
        Variant {
            name: name.into(),
            tag: bytes_of(value),
            fields: Vec::new(),
        }
    }
}

/// The bytes of an integer, or of a value of an enum without fields, as a number.
fn bytes_of<T>(value: &T) -> u64 {
    assert!(size_of::<T>() <= 8, "a tag has at most 8 bytes");
    let mut bytes = [0; 8];
    // SAFETY: the value has that many bytes, and none is padding: it is all tag.
    unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::from_ref(value).cast::<u8>(),
            bytes.as_mut_ptr(),
            size_of::<T>(),
        );
    }
    u64::from_le_bytes(bytes)
}

/// Where fields lie that follow each other as in C.
///
/// ```
/// use twinpage::persist::{Place, Types};
///
/// // The fields of a variant, as in C: after a tag of one byte, a `u8` and a `u32`.
/// let (mut types, mut place) = (Types::default(), Place::after::<u8>());
/// assert_eq!(place.next::<u8>(&mut types, "first").at, 1);
/// assert_eq!(place.next::<u32>(&mut types, "second").at, 4);
/// ```
pub struct Place {
    end: usize,
}

impl Place {
    /// After a `T` at byte 0.
    #[must_use]
    pub fn after<T>() -> Place {
        Place { end: size_of::<T>() }
    }

    /// The next field, a `T`.
    pub fn next<T: Persist>(&mut self, types: &mut Types, name: &str) -> Field {
        let at = self.end.next_multiple_of(align_of::<T>());
        self.end = at + size_of::<T>();
        types.field::<T>(name, at)
    }
}
