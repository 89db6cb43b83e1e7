//! What every benchmark says alike: the machine, times on the command line, tables, medians.

use comfy_table::Table;
use rustix::process::Signal;
use std::time::{Duration, SystemTime};
use twinpage_os::cpuid::Level;
use twinpage_process::older::{At, Keep};

/// The machine a benchmark ran on, as in its JSON.
#[must_use]
pub fn machine() -> serde_json::Value {
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
    serde_json::json!({
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

/// How many older checkpoints to keep, and how often: `3`, `3@1min`.
///
/// # Errors
/// Says what was expected.
pub fn keep(text: &str) -> Result<Keep, String> {
    let (most, every) = text.split_once('@').unwrap_or((text, "10min"));
    let most = most.parse().ok().filter(|most| (1..=1000).contains(most));
    Ok(Keep {
        most: most.ok_or("expected a number from 1 to 1000, or with a time: 3, 3@1min")?,
        every: interval(every)?,
    })
}

/// Which older checkpoint: a number, or how old it is at least: `2`, `10min`, `2h`.
///
/// # Errors
/// Says what was expected.
pub fn at(text: &str) -> Result<At, String> {
    if let Ok(number) = text.parse() {
        return Ok(At::Number(number));
    }
    let hours = text.strip_suffix('h').and_then(|hours| hours.parse::<u32>().ok());
    match hours {
        Some(hours) => Ok(At::Ago(Duration::from_secs(3600) * hours)),
        None => interval(text)
            .map(At::Ago)
            .map_err(|_| "expected a number as twinpage info shows it, or an age: 2, 30s, 10min, 2h".into()),
    }
}

/// An instant: a time of UTC, or how long ago it is.
///
/// # Errors
/// Says what is expected.
pub fn instant(text: &str) -> Result<SystemTime, String> {
    let ago = |age| SystemTime::now().checked_sub(age);
    let instant = humantime::parse_rfc3339_weak(text).ok();
    let instant = instant.or_else(|| ago(humantime::parse_duration(text).ok()?));
    instant.ok_or_else(|| "expected a time of UTC, or an age: 2026-11-23T18:00:00Z, 10min, 2h".into())
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

/// When checkpoints come, as said on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// As the limits allow.
    Auto,
    /// This long after the one before.
    Fixed(Duration),
}

/// A time as [`interval`] reads it, or `auto`.
///
/// # Errors
/// Says what is expected.
pub fn every(text: &str) -> Result<Every, String> {
    if text == "auto" {
        return Ok(Every::Auto);
    }
    interval(text)
        .map(Every::Fixed)
        .map_err(|why| format!("{why}; or auto"))
}

/// A share in percent, as a number from 0 to 1.
///
/// # Errors
/// Says what is expected.
pub fn share(text: &str) -> Result<f64, String> {
    let percent = text
        .strip_suffix('%')
        .and_then(|number| number.parse::<f64>().ok());
    match percent {
        Some(percent) if (0.01..=100.0).contains(&percent) => Ok(percent / 100.0),
        _ => Err("expected a share from 0.01% to 100%, such as 3%".into()),
    }
}

/// A level of processors, by its name in the x86-64 psABI.
///
/// # Errors
/// Says what is expected.
pub fn level(text: &str) -> Result<Level, String> {
    Level::named(text).ok_or_else(|| format!("expected one of {}", Level::ALL.map(Level::name).join(", ")))
}

/// Reads a number that lies in a range.
pub fn within(least: f64, most: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| format!("expected a number from {least} to {most}"))
    }
}

/// A signal by which a program may be told something, by name.
///
/// # Errors
/// Says what is expected.
pub fn signal(text: &str) -> Result<i32, String> {
    const SIGNALS: [(&str, i32); 6] = [
        ("USR1", Signal::USR1.as_raw()),
        ("USR2", Signal::USR2.as_raw()),
        ("HUP", Signal::HUP.as_raw()),
        ("CONT", Signal::CONT.as_raw()),
        ("URG", Signal::URG.as_raw()),
        ("WINCH", Signal::WINCH.as_raw()),
    ];
    let name = text.strip_prefix("SIG").unwrap_or(text);
    let found = SIGNALS.iter().find(|(known, _)| *known == name);
    let expected = || "expected one of USR1, USR2, HUP, CONT, URG, WINCH".to_owned();
    found.map(|(_, number)| *number).ok_or_else(expected)
}

/// A key of a terminal, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key(pub Option<u8>);

/// A key held with Control, as `^X`; or `none`.
///
/// # Errors
/// Says what is expected.
pub fn control_key(text: &str) -> Result<Key, String> {
    match text.as_bytes() {
        b"none" => Ok(Key(None)),
        [b'^', letter]
            if matches!(
                letter.to_ascii_uppercase(),
                b'A'..=b'Z' | b'\\' | b']' | b'^' | b'_'
            ) =>
        {
            Ok(Key(Some(letter.to_ascii_uppercase() & 0x1f)))
        }
        _ => Err("expected a key held with Control, such as ^X or ^], or none".into()),
    }
}

/// Bytes in a second.
///
/// # Errors
/// Says what is expected.
pub fn rate(text: &str) -> Result<f64, String> {
    let units = [("kB/s", 1e3), ("MB/s", 1e6), ("GB/s", 1e9)];
    let rate = units.iter().find_map(|(unit, bytes)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * bytes)
    });
    match rate {
        Some(rate) if (1e3..=1e12).contains(&rate) => Ok(rate),
        _ => Err("expected a number and a unit, from 1kB/s to 1000GB/s, such as 4MB/s".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_a_time_or_an_age() {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_456_800);
        assert_eq!(instant("2026-11-23T18:00:00Z"), Ok(at));
        assert_eq!(instant("2026-11-23 18:00:00"), Ok(at));
        let ago = instant("90min").unwrap().elapsed().unwrap();
        assert!(ago >= Duration::from_secs(90 * 60));
        for wrong in ["", "18:00", "yesterday", "10", "-3s", "2026-13-01T00:00:00Z"] {
            assert!(instant(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_key_is_held_with_control() {
        assert_eq!(control_key("^\\"), Ok(Key(Some(0x1c))));
        assert_eq!(control_key("^a"), Ok(Key(Some(1))));
        assert_eq!(control_key("^]"), Ok(Key(Some(0x1d))));
        assert_eq!(control_key("none"), Ok(Key(None)));
        for wrong in ["", "a", "^", "^1", "^ab", "none "] {
            assert!(control_key(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn limits_have_units() {
        assert_eq!(every("auto"), Ok(Every::Auto));
        assert_eq!(every("16ms"), Ok(Every::Fixed(Duration::from_millis(16))));
        assert!(every("often").is_err());
        assert_eq!(share("3%"), Ok(0.03));
        assert_eq!(rate("4MB/s"), Ok(4e6));
        assert_eq!(rate("500kB/s"), Ok(5e5));
        for wrong in ["", "3", "%", "-1%", "0%", "101%", "NaN%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "4", "4MB", "MB/s", "-4MB/s", "0MB/s", "infMB/s", "NaNkB/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
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
