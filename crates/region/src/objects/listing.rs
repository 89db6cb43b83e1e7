//! What is in a region's operation log, as far as it describes itself.

use super::file::log_path;
use crate::error::{Error, Result};
use crate::inspect::inspect;
use crate::superblock::LogPosition;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::fmt;
use std::path::Path;
use std::time::Duration;
use twinpage_core::operation_log::{Entry, Found, NAMED, read};
use twinpage_os::{Access, AnyMedium, Durability};

/// How often the log of a region in use is read before it is given up, and the pause between.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(2);

/// The calls that a region's operation log still has: those since its last checkpoint.
///
/// ```
/// # let folder = tempfile::tempdir()?;
/// # std::env::set_current_dir(folder.path())?;
/// use twinpage::objects::operations;
/// use twinpage::{Persist, Region};
///
/// #[derive(Persist)]
/// struct Counter {
///     value: u64,
/// }
///
/// #[twinpage::object]
/// impl Counter {
///     pub fn add(&mut self, by: u64) {
///         self.value += by;
///     }
/// }
///
/// let region = Region::open("counter.twin")?;
/// let counter = region.object::<Counter>("counter", |_| Counter { value: 0 })?;
/// counter.add(7);
/// counter.sync()?;
/// let found = operations("counter.twin")?;
/// assert_eq!(found.operations[0].to_string(), "counter.add(by: 7)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Operations {
    /// The log; none where the region was closed, or has no objects.
    pub log: Option<std::path::PathBuf>,
    /// The position of the first of them.
    pub start: u64,
    /// One past the last of them.
    pub end: u64,
    /// In order.
    pub operations: Vec<Operation>,
}

/// A call in an operation log: an element of [`Operations`].
///
/// ```
/// use twinpage::objects::Operation;
///
/// fn by_thread(operations: &[Operation], thread: u32) -> impl Iterator<Item = &Operation> {
///     operations.iter().filter(move |operation| operation.thread == thread)
/// }
/// assert_eq!(by_thread(&[], 1).count(), 0);
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// Its position in the log.
    pub position: u64,
    /// When it was made durable, milliseconds of Unix time; none in a log of a build that kept no times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_ms: Option<u64>,
    /// The number of the thread that called, in the order in which threads of that process first did; of one with a name,
    /// 2^31 and more.
    pub thread: u32,
    /// Its name, if it has one ([`thread::spawn`](super::thread::spawn)).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_name: Option<String>,
    /// The object.
    pub object: String,
    /// The method.
    pub method: String,
    /// Its arguments by name. From the first one on whose type the log does not describe, the bytes, as
    /// hexadecimal text.
    #[serde(serialize_with = "as_map")]
    pub arguments: Vec<(String, Value)>,
    /// The method with its types.
    pub signature: String,
    /// The element of the lane's field, if the call has a lane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lane: Option<u64>,
    /// That field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lane = self
            .field
            .iter()
            .zip(self.lane)
            .map(|(field, lane)| format!("{field}[{lane}]"));
        let arguments = self
            .arguments
            .iter()
            .map(|(name, value)| format!("{name}: {value}"));
        let all = lane.chain(arguments).collect::<Vec<_>>().join(", ");
        write!(f, "{}.{}({all})", self.object, self.method)
    }
}

/// Reads the operation log of the region in the file `path`, which may be in use.
///
/// # Errors
/// As [`look`]; [`Error::Log`] when the log is missing, [`Error::Store`] when it is damaged.
pub fn operations(path: impl AsRef<Path>) -> Result<Operations> {
    until_it_stands_still(path.as_ref(), |place| list(path.as_ref(), place))
}

/// Reads files of a region, which may be in use and write to them meanwhile, from the place in its log on that its last
/// checkpoint names.
pub(super) fn until_it_stands_still<R>(
    path: &Path,
    mut read: impl FnMut(LogPosition) -> Result<R>,
) -> Result<R> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let found = inspect(path)?;
        let place = found.superblock.map(|superblock| superblock.log);
        match read(place.unwrap_or_default()) {
            // The process that has it open wrote to both files meanwhile.
            Err(_) if found.in_use.is_some() && attempts > 0 => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
}

/// What is in the log of a region from a place on; nothing where there is none.
pub(super) fn found(path: &Path, place: LogPosition) -> Result<Option<Found>> {
    if place.id == 0 {
        return Ok(None);
    }
    let file = log_path(path);
    if !file.exists() {
        let why = "it is not there, and calls since the last checkpoint are in it".to_owned();
        return Err(Error::Log { file, why });
    }
    let medium = AnyMedium::open(&file, Durability::Memory, Access::ReadOnly)?;
    Ok(Some(read(&medium, place.id, place.start)?))
}

fn list(path: &Path, place: LogPosition) -> Result<Operations> {
    let found = found(path, place)?;
    let operations = |found: &Found| {
        let entries = found.entries.iter();
        entries
            .map(|entry| operation(&found.definitions, entry))
            .collect()
    };
    Ok(Operations {
        log: found.as_ref().map(|_| log_path(path)),
        start: place.start,
        end: found.as_ref().map_or(place.start, |found| found.end),
        operations: found.as_ref().map(operations).unwrap_or_default(),
    })
}

pub(super) fn operation(definitions: &[String], entry: &Entry) -> Operation {
    let mut lines = definitions[usize::from(entry.object)].lines();
    let object = lines.next().unwrap_or_default().to_owned();
    let signature = lines.nth(usize::from(entry.function)).unwrap_or_default();
    let (method, rest) = signature.split_once('(').unwrap_or((signature, ""));
    let inside = rest.split(" -> ").next().unwrap_or_default();
    let mut parameters = split(inside.strip_suffix(')').unwrap_or(inside));
    let field = parameters.first().and_then(|first| first.strip_suffix("[lane]"));
    let field = field.map(str::to_owned);
    if field.is_some() {
        parameters.remove(0);
    }
    Operation {
        position: entry.position,
        unix_ms: Some(entry.closed_ms).filter(|time| *time > 0),
        thread: entry.thread,
        thread_name: thread_name(definitions, entry.thread),
        object,
        method: method.to_owned(),
        arguments: arguments(&parameters, &entry.arguments),
        signature: signature.to_owned(),
        lane: entry.lane,
        field,
    }
}

/// The name of a thread of that number, if it has one.
fn thread_name(definitions: &[String], thread: u32) -> Option<String> {
    let number = (thread & NAMED != 0).then_some(thread & !NAMED)?;
    definitions.get(number as usize).cloned()
}

fn as_map<S: Serializer>(arguments: &[(String, Value)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(arguments.iter().map(|(name, value)| (name, value)))
}

/// The arguments by name.
fn arguments(parameters: &[&str], mut bytes: &[u8]) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for parameter in parameters {
        let (name, ty) = parameter.split_once(": ").unwrap_or((parameter, ""));
        let before = bytes;
        match value(ty, &mut bytes) {
            Some(value) => all.push((name.to_owned(), value)),
            None => {
                let hex: String = before.iter().map(|byte| format!("{byte:02x}")).collect();
                all.push((name.to_owned(), json!(format!("0x{hex}"))));
                break;
            }
        };
    }
    all
}

/// The parts between the commas that are in no bracket.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(text[from..at].trim());
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[from..].trim());
    parts.retain(|part| !part.is_empty());
    parts
}

fn take<T: DeserializeOwned>(bytes: &mut &[u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    *bytes = rest;
    Some(value)
}

fn number<T: DeserializeOwned + Into<Value>>(bytes: &mut &[u8]) -> Option<Value> {
    take::<T>(bytes).map(Into::into)
}

/// The value of a type that is known by its name; none of another type, and where the bytes are not of it.
fn value(ty: &str, bytes: &mut &[u8]) -> Option<Value> {
    if let Some(inside) = ty.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        return split(inside).into_iter().map(|ty| value(ty, bytes)).collect();
    }
    if let Some(inside) = ty.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let (ty, len) = inside.rsplit_once(';')?;
        return values(len.trim().parse().ok()?, ty, bytes);
    }
    let (path, of) = match ty.split_once('<') {
        Some((path, rest)) => (path, split(rest.strip_suffix('>')?)),
        None => (ty, Vec::new()),
    };
    match (path.rsplit("::").next()?, &of[..]) {
        ("bool", []) => number::<bool>(bytes),
        ("u8", []) => number::<u8>(bytes),
        ("u16", []) => number::<u16>(bytes),
        ("u32", []) => number::<u32>(bytes),
        ("u64" | "usize", []) => number::<u64>(bytes),
        ("i8", []) => number::<i8>(bytes),
        ("i16", []) => number::<i16>(bytes),
        ("i32", []) => number::<i32>(bytes),
        ("i64" | "isize", []) => number::<i64>(bytes),
        ("u128", []) => Some(json!(take::<u128>(bytes)?.to_string())),
        ("i128", []) => Some(json!(take::<i128>(bytes)?.to_string())),
        ("f32", []) => number::<f32>(bytes),
        ("f64", []) => number::<f64>(bytes),
        ("char", []) => Some(json!(take::<char>(bytes)?)),
        ("String", []) | ("Box", ["str"]) => number::<String>(bytes),
        ("Option", [ty]) => match take::<bool>(bytes)? {
            true => value(ty, bytes),
            false => Some(Value::Null),
        },
        ("Vec" | "VecDeque" | "BTreeSet" | "HashSet", [ty]) => values(take(bytes)?, ty, bytes),
        ("BTreeMap" | "HashMap", [key, ty]) => values(take(bytes)?, &format!("({key}, {ty})"), bytes),
        ("Box", [ty]) => value(ty, bytes),
        _ => None,
    }
}

fn values(len: u64, ty: &str, bytes: &mut &[u8]) -> Option<Value> {
    // An element takes a byte at least: one that takes none is not worth showing.
    (len <= bytes.len() as u64).then_some(())?;
    (0..len).map(|_| value(ty, bytes)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_shown_by_their_types() {
        let parameters = split(
            "row: usize, by: i64, name: std::string::String, at: Option<(u8, [bool;2])>, more: Vec<u16>",
        );
        let logged = (
            7_usize,
            -1_i64,
            "Ada",
            Some((3_u8, [true, false])),
            vec![300_u16, 2],
        );
        let bytes = postcard::to_stdvec(&logged).unwrap();
        let shown: Value = arguments(&parameters, &bytes).into_iter().collect();
        let expected =
            json!({ "row": 7, "by": -1, "name": "Ada", "at": [3, [true, false]], "more": [300, 2] });
        assert_eq!(shown, expected);
    }

    #[test]
    fn what_the_log_does_not_describe_is_shown_as_bytes() {
        let parameters = split("by: u8, row: Row, after: u8");
        let shown = arguments(&parameters, &[1, 2, 255, 3]);
        assert_eq!(
            shown.into_iter().collect::<Value>(),
            json!({ "by": 1, "row": "0x02ff03" })
        );
        assert_eq!(
            arguments(&split("a: Vec<u8>"), &[9, 1])
                .into_iter()
                .collect::<Value>(),
            json!({ "a": "0x0901" })
        );
        assert_eq!(
            arguments(&split("a: Vec<()>"), &[255; 9])
                .into_iter()
                .collect::<Value>(),
            json!({ "a": "0xffffffffffffffffff" })
        );
    }
}
