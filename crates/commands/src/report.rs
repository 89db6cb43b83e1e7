//! What every benchmark says alike: the machine, numbers and times on the command line, tables, medians.

use comfy_table::Table;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};
use twinpage_lab::provenance::Provenance;

/// A benchmark's JSON: what was measured, after the command, the commit of the program, the day, and the machine.
///
/// # Panics
/// What was measured is no object.
#[must_use]
pub fn document(measured: Value) -> Value {
    let mut all = json!(provenance());
    all["date"] = json!(humantime::format_rfc3339_seconds(SystemTime::now()).to_string());
    all["machine"] = machine();
    let fields = all.as_object_mut().expect("an object");
    let Value::Object(measured) = measured else {
        panic!("a report has fields");
    };
    fields.extend(measured);
    all
}

/// The command, quoted as a shell reads it, and the commit that this program was built from.
pub(crate) fn provenance() -> Provenance {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let program = Path::new(&program).file_name().unwrap_or(OsStr::new("twinpage"));
    let words = std::iter::once(program.to_owned()).chain(words);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    Provenance {
        // The kernel passes no word with a zero byte, which alone cannot be quoted.
        command: shlex::try_join(words.iter().map(String::as_str)).unwrap_or_default(),
        commit: option_env!("TWINPAGE_BUILT_FROM").map(str::to_owned),
    }
}

/// The machine a benchmark ran on, as in its JSON.
fn machine() -> Value {
    let line = |path: &str| {
        std::fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("");
    json!({
        "kernel": line("/proc/sys/kernel/osrelease"),
        "processor": model.trim_start_matches([' ', '\t', ':']),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
    })
}

/// An empty table that reads well in a terminal and in Markdown.
#[must_use]
pub fn table<const COLUMNS: usize>(header: [&str; COLUMNS]) -> Table {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::ASCII_MARKDOWN);
    table.set_header(header);
    table
}

/// The number in the middle, of at least one.
#[must_use]
pub fn median(numbers: &mut [f64]) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers[numbers.len() / 2]
}

/// A time with its unit, from a tenth of a millisecond to an hour.
///
/// # Errors
/// Says what is expected.
pub fn interval(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit_ns = match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "min" => 60e9,
        _ => return Err("expected a number and a unit: 500us, 16ms, 1s".into()),
    };
    let number: f64 = number
        .parse()
        .map_err(|_| "expected a number and a unit: 500us, 16ms, 1s".to_owned())?;
    let ns = number * unit_ns;
    if !(1e5..=3600e9).contains(&ns) {
        return Err("expected a time from 100us to 60min".into());
    }
    Ok(Duration::from_nanos(ns as u64))
}

/// Reads a number that lies in a range.
pub fn within(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_where_it_comes_from() {
        let document = document(json!({ "rows": [1] }));
        for field in ["command", "commit", "date", "machine"] {
            assert!(document.get(field).is_some(), "{field}: {document}");
        }
        assert!(document["date"].as_str().unwrap().starts_with("20"), "{document}");
        assert_eq!(document["rows"], json!([1]));
    }

    #[test]
    fn times_have_units() {
        assert_eq!(interval("16ms"), Ok(Duration::from_millis(16)));
        assert_eq!(interval("0.5s"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "0ms", "16", "ms", "-1ms", "2h", "1us", "99999s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
