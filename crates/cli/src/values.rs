//! Values of options, as they are typed.

use rustix::process::Signal;
use std::time::{Duration, SystemTime};
use twinpage::objects::Until;
use twinpage_commands::report::interval;
use twinpage_os::cpuid::Level;
use twinpage_process::older::{At, Keep};

/// How many older checkpoints to keep, and how often: `3`, `3@1min`.
///
/// # Errors
/// Says what was expected.
pub(crate) fn keep(text: &str) -> Result<Keep, String> {
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
pub(crate) fn at(text: &str) -> Result<At, String> {
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

/// How far back: a time of UTC, how long ago it is, or the position of a call.
///
/// # Errors
/// Says what is expected.
pub(crate) fn until(text: &str) -> Result<Until, String> {
    if let Ok(position) = text.parse() {
        return Ok(Until::Call(position));
    }
    let ago = |age| SystemTime::now().checked_sub(age);
    let instant = humantime::parse_rfc3339_weak(text).ok();
    let instant = instant.or_else(|| ago(humantime::parse_duration(text).ok()?));
    instant.map(Until::Time).ok_or_else(|| {
        "expected a time of UTC, an age, or a position: 2026-11-23T18:00:00Z, 10min, 4294967392".into()
    })
}

/// When checkpoints come, as said on the command line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Every {
    /// As the limits allow.
    Auto,
    /// This long after the one before.
    Fixed(Duration),
}

/// A time as [`interval`] reads it, or `auto`.
///
/// # Errors
/// Says what is expected.
pub(crate) fn every(text: &str) -> Result<Every, String> {
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
pub(crate) fn share(text: &str) -> Result<f64, String> {
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
pub(crate) fn level(text: &str) -> Result<Level, String> {
    Level::named(text).ok_or_else(|| format!("expected one of {}", Level::ALL.map(Level::name).join(", ")))
}

/// A signal by which a program may be told something, by name.
///
/// # Errors
/// Says what is expected.
pub(crate) fn signal(text: &str) -> Result<i32, String> {
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
pub(crate) struct Key(pub Option<u8>);

/// A key held with Control, as `^X`; or `none`.
///
/// # Errors
/// Says what is expected.
pub(crate) fn control_key(text: &str) -> Result<Key, String> {
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
pub(crate) fn rate(text: &str) -> Result<f64, String> {
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
        assert_eq!(until("2026-11-23T18:00:00Z"), Ok(Until::Time(at)));
        assert_eq!(until("4294967392"), Ok(Until::Call(4_294_967_392)));
        assert_eq!(until("2026-11-23 18:00:00"), Ok(Until::Time(at)));
        let Until::Time(then) = until("90min").unwrap() else {
            panic!("an age is a time");
        };
        let ago = then.elapsed().unwrap();
        assert!(ago >= Duration::from_secs(90 * 60));
        for wrong in ["", "18:00", "yesterday", "-10", "-3s", "2026-13-01T00:00:00Z"] {
            assert!(until(wrong).is_err(), "{wrong}");
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
}
