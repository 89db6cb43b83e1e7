//! Numbers with their units, as configuration files write them: `"1.25 ns"`, `"11 cycles"`, `"8 KiB"`.
//!
//! A number without a unit, with a unit of another kind, or that cannot be (negative, not finite,
//! too large) is an error; serde tells the line.

use crate::text::{ConfigError, SourceText};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

/// Femtoseconds in a nanosecond: the machine's times are femtoseconds.
pub const FS_PER_NS: u64 = 1_000_000;

/// Femtoseconds of the longest cycle of a clock, and the most cycles a file can give. Their product is the longest time.
pub const LONGEST_CYCLE_FS: u64 = 1_000_000_000;
const MOST_CYCLES: f64 = 9e9;

/// The longest single latency of a machine, in femtoseconds.
const LONGEST_LATENCY_FS: u64 = 1_000_000_000_000_000;
/// The end of simulated time: what is added to one before it does not pass the end of the numbers.
const END_FS: u64 = 1 << 63;

/// Whether simulated time has not come to its end.
///
/// # Errors
/// It has, and what to do.
pub(crate) fn in_time(now: u64) -> Result<(), String> {
    match now < END_FS {
        true => Ok(()),
        false => Err(
            "simulated time ends after two and a half hours: make the run shorter, or times of the machine file".into(),
        ),
    }
}

/// A kind of quantity that can be read from a number and a unit.
pub trait Unit: Sized + Copy {
    /// What to call it in an error, with an example.
    const EXPECTED: &'static str;
    /// `None` if the unit is of another kind or the number cannot be.
    fn of(number: f64, unit: &str) -> Option<Self>;
}

/// A quantity as a file gives it: `"5 ns"`, or `{ is = "5 ns", from = "a data sheet" }` when its
/// source is not the one of its table.
#[derive(Clone, PartialEq, Debug)]
pub struct Quantity<T> {
    /// The value.
    pub is: T,
    /// Its own source.
    pub from: Option<String>,
}

impl<T: Unit> Quantity<T> {
    fn parse(text: &str) -> Option<T> {
        let end = text.rfind(|letter: char| letter.is_ascii_digit() || letter == '.')? + 1;
        let (number, unit) = text.split_at(end);
        let number: f64 = number.trim().parse().ok()?;
        (number.is_finite() && number >= 0.0).then(|| T::of(number, unit.trim()))?
    }
}

impl<'de, T: Unit> Deserialize<'de> for Quantity<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Reader<T>(PhantomData<T>);
        impl<'de, T: Unit> Visitor<'de> for Reader<T> {
            type Value = Quantity<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(T::EXPECTED)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                let is = Quantity::parse(text)
                    .ok_or_else(|| E::custom(format!("`{text}`: expected {}", T::EXPECTED)))?;
                Ok(Quantity { is, from: None })
            }
            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let (mut is, mut from) = (None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "is" => is = Some(map.next_value::<Quantity<T>>()?.is),
                        "from" => from = Some(map.next_value()?),
                        other => return Err(M::Error::unknown_field(other, &["is", "from"])),
                    }
                }
                let is = is.ok_or_else(|| M::Error::missing_field("is"))?;
                Ok(Quantity { is, from })
            }
        }
        from.deserialize_any(Reader(PhantomData))
    }
}

/// A length of time, in femtoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Time(pub u64);

fn time(number: f64, unit: &str) -> Option<Time> {
    let scale = match unit {
        "ps" => 1e3,
        "ns" => 1e6,
        "us" | "µs" => 1e9,
        "ms" => 1e12,
        "s" => 1e15,
        _ => return None,
    };
    let fs = (number * scale).round();
    (fs < 9e18).then_some(Time(fs as u64))
}

impl Unit for Time {
    const EXPECTED: &'static str = "a time with its unit, such as \"1.25 ns\"";
    fn of(number: f64, unit: &str) -> Option<Time> {
        time(number, unit)
    }
}

impl std::str::FromStr for Time {
    type Err = String;
    fn from_str(text: &str) -> Result<Time, String> {
        // A command line may leave out the blank between number and unit.
        let unit = text
            .find(|letter: char| letter.is_alphabetic())
            .unwrap_or(text.len());
        let spaced = format!("{} {}", text[..unit].trim(), &text[unit..]);
        Quantity::parse(&spaced).ok_or_else(|| format!("expected {}", Time::EXPECTED))
    }
}

/// A length of time in cycles of a clock, or to be rounded up to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Span {
    /// So many cycles.
    Cycles(u64),
    /// At least so long.
    Time(Time),
}

impl Span {
    /// Cycles of a clock whose cycle lasts `cycle_fs`.
    #[must_use]
    pub fn cycles(self, cycle_fs: u64) -> u64 {
        match self {
            Span::Cycles(cycles) => cycles,
            Span::Time(Time(fs)) => fs.div_ceil(cycle_fs),
        }
    }

    /// Femtoseconds, by a clock whose cycle lasts `cycle_fs`.
    #[must_use]
    pub fn fs(self, cycle_fs: u64) -> u64 {
        match self {
            Span::Cycles(cycles) => cycles * cycle_fs,
            Span::Time(Time(fs)) => fs,
        }
    }
}

impl Unit for Span {
    const EXPECTED: &'static str = "a time with its unit, such as \"11 cycles\" or \"13.75 ns\"";
    fn of(number: f64, unit: &str) -> Option<Span> {
        match unit {
            "cycle" | "cycles" => {
                (number.fract() == 0.0 && number <= MOST_CYCLES).then_some(Span::Cycles(number as u64))
            }
            _ => time(number, unit).map(Span::Time),
        }
    }
}

impl Quantity<Span> {
    /// `key` of `[table]` is a latency of a machine with such a clock.
    ///
    /// # Errors
    /// It is longer than one can be.
    pub(crate) fn check_latency(
        &self,
        source: SourceText<'_>,
        (table, key): (&str, &str),
        cycle_fs: u64,
    ) -> Result<(), ConfigError> {
        match self.is.fs(cycle_fs) <= LONGEST_LATENCY_FS {
            true => Ok(()),
            false => Err(source.wrong(table, key, "a second at most")),
        }
    }
}

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Bytes(pub u64);

impl Unit for Bytes {
    const EXPECTED: &'static str = "a size with its unit, such as \"64 B\" or \"256 MiB\"";
    fn of(number: f64, unit: &str) -> Option<Bytes> {
        let scale = match unit {
            "B" => 1,
            "KiB" => 1 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return None,
        };
        let bytes = number * scale as f64;
        (bytes.fract() == 0.0 && bytes < 1e15).then_some(Bytes(bytes as u64))
    }
}

/// A frequency, as the length of its cycle in femtoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frequency {
    /// One cycle.
    pub cycle_fs: u64,
}

impl Unit for Frequency {
    const EXPECTED: &'static str = "a frequency with its unit, such as \"1.87 GHz\"";
    fn of(number: f64, unit: &str) -> Option<Frequency> {
        let hertz = match unit {
            "MHz" => number * 1e6,
            "GHz" => number * 1e9,
            _ => return None,
        };
        let cycle_fs = (1e15 / hertz).round();
        (1.0..=LONGEST_CYCLE_FS as f64)
            .contains(&cycle_fs)
            .then_some(Frequency {
                cycle_fs: cycle_fs as u64,
            })
    }
}

macro_rules! real {
    ($(#[$doc:meta])* $name:ident, $expected:literal, $($unit:literal => $scale:literal),+) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
        pub struct $name(pub f64);
        impl Unit for $name {
            const EXPECTED: &'static str = $expected;
            fn of(number: f64, unit: &str) -> Option<$name> {
                match unit {
                    $($unit => Some($name(number * $scale)),)+
                    _ => None,
                }
            }
        }
    };
}
real!(
    /// Amperes.
    Current, "a current with its unit, such as \"55 mA\"", "mA" => 1e-3, "A" => 1.0
);
real!(
    /// Volts.
    Voltage, "a voltage with its unit, such as \"1.35 V\"", "V" => 1.0, "mV" => 1e-3
);
real!(
    /// Joules.
    Energy, "an energy with its unit, such as \"1.68 nJ\"", "pJ" => 1e-12, "nJ" => 1e-9, "uJ" => 1e-6, "J" => 1.0
);
real!(
    /// Watts.
    Power, "a power with its unit, such as \"3120 mW\"", "mW" => 1e-3, "W" => 1.0
);

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Unit>(text: &str) -> Option<T> {
        Quantity::<T>::parse(text)
    }

    #[test]
    fn units_are_needed_and_must_fit() {
        assert_eq!(read("1.25 ns"), Some(Time(1_250_000)));
        assert_eq!(read("16 ms"), Some(Time(16_000_000_000_000)));
        assert_eq!(read("11 cycles"), Some(Span::Cycles(11)));
        assert_eq!(read("8 KiB"), Some(Bytes(8192)));
        assert_eq!(read("8KiB"), Some(Bytes(8192)));
        assert_eq!(read("1e3ns"), Some(Time(1_000_000_000)));
        assert_eq!(read("1.87 GHz"), Some(Frequency { cycle_fs: 534_759 }));
        assert_eq!(read("55 mA"), Some(Current(0.055)));
        for wrong in [
            "1.25", "ns", "-1 ns", "1.25 KiB", "inf ns", "NaN ns", "1e30 s", "0x10 ns",
        ] {
            assert_eq!(read::<Time>(wrong), None, "{wrong}");
        }
        assert_eq!(read::<Span>("1.5 cycles"), None);
        assert_eq!(read::<Frequency>("0 MHz"), None);
        assert_eq!(read::<Frequency>("0.9 MHz"), None);
        assert_eq!(read::<Span>("9000000001 cycles"), None);
        let longest = read::<Span>("9000000000 cycles").unwrap();
        assert_eq!(longest.fs(LONGEST_CYCLE_FS), 9_000_000_000_000_000_000);
        assert_eq!(read::<Bytes>("8 kB"), None);
    }

    #[test]
    fn a_time_is_rounded_up_to_cycles() {
        assert_eq!(Span::Time(Time(13_750_000)).cycles(1_250_000), 11);
        assert_eq!(Span::Time(Time(13_750_001)).cycles(1_250_000), 12);
        assert_eq!(Span::Cycles(4).fs(2_500_000), 10_000_000);
    }
}
