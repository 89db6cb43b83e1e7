//! How things are shown to people: aligned rows, sizes and times with units.

use std::time::Duration;

/// Rows of a name and what there is to say, the names aligned.
#[derive(Default)]
pub struct Rows(Vec<(&'static str, String)>);

impl Rows {
    /// One more row.
    pub fn add(&mut self, name: &'static str, what: impl Into<String>) {
        self.0.push((name, what.into()));
    }

    /// Prints them to standard output.
    pub fn print(&self) {
        let width = self.0.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, what) in &self.0 {
            println!("{name:width$}  {what}");
        }
    }
}

/// A size, to three digits or so.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return count(bytes, "byte");
    }
    let mut size = bytes as f64 / 1024.0;
    let mut unit = 0;
    while size >= 1023.5 && unit + 1 < UNITS.len() {
        size /= 1024.0;
        unit += 1;
    }
    format!("{size:.*} {}", usize::from(size < 100.0), UNITS[unit])
}

/// What a check verified that found nothing wrong.
pub fn checksums(lines_have_some: bool) -> &'static str {
    match lines_have_some {
        true => "every checksum is right, also those of lines",
        false => "every checksum is right; lines of pages have none in this store",
    }
}

/// A number of things: `1 thread`, `2 threads`.
pub fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A time that people can take in.
pub fn time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} days", s / 86_400.0),
    }
}

/// Microseconds as milliseconds.
pub fn ms_of_us(us: f64) -> String {
    ms(us / 1e3)
}

/// Milliseconds, with as many digits as say something.
pub fn ms(ms: f64) -> String {
    let digits = match ms {
        m if m < 1.0 => 2,
        m if m < 10.0 => 1,
        _ => 0,
    };
    format!("{ms:.digits$} ms")
}

/// A signal by number and, where it has one, name.
pub fn signal(number: i32) -> String {
    const NAMES: [&str; 32] = [
        "", "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
        "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU",
        "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
    ];
    match usize::try_from(number).ok().and_then(|number| NAMES.get(number)) {
        Some(name) if !name.is_empty() => format!("signal {number} (SIG{name})"),
        _ => format!("signal {number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        let sizes = [0, 1, 1023, 1024, 1536, 200 << 10, (1 << 20) - 1, 5 << 30].map(bytes);
        assert_eq!(
            sizes,
            [
                "0 bytes",
                "1 byte",
                "1023 bytes",
                "1.0 KiB",
                "1.5 KiB",
                "200 KiB",
                "1.0 MiB",
                "5.0 GiB"
            ]
        );
        let times = [20e-6, 0.25, 3.0, 600.0, 90_000.0, 1e6].map(|s| time(Duration::from_secs_f64(s)));
        assert_eq!(times, ["20 µs", "250 ms", "3.0 s", "10 min", "25 h", "12 days"]);
        assert_eq!([0.123, 1.23, 12.3].map(ms), ["0.12 ms", "1.2 ms", "12 ms"]);
        assert_eq!(
            [9, 40, -1].map(signal),
            ["signal 9 (SIGKILL)", "signal 40", "signal -1"]
        );
    }
}
