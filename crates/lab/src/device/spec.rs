//! What a device file says, and the devices that come with the lab.

use super::energy::Model;
use super::timing::Timing;
use crate::quantity::{Bytes, Current, Energy, LONGEST_CYCLE_FS, Power, Quantity, Span, Time, Voltage};
use crate::text::{ConfigError, SourceText, find};
use serde::Deserialize;

/// The devices that come with the lab: name and text.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("ddr3-1600k", include_str!("../../devices/ddr3-1600k.toml")),
    ("pcm", include_str!("../../devices/pcm.toml")),
    ("ssp-nvram", include_str!("../../devices/ssp-nvram.toml")),
    ("pcm-mlc", include_str!("../../devices/pcm-mlc.toml")),
    ("stt-ram", include_str!("../../devices/stt-ram.toml")),
    ("rram", include_str!("../../devices/rram.toml")),
    ("simpo-nvram", include_str!("../../devices/simpo-nvram.toml")),
    ("optane-like", include_str!("../../devices/optane-like.toml")),
];

/// Channels of a device.
pub(crate) const MOST_CHANNELS: u32 = 16;
/// Bytes of a row buffer: a request counts its lines in 16 bits.
const MOST_BUFFER: u64 = 1 << 20;
/// Bytes of a device.
const MOST_BYTES: u128 = 1 << 50;
/// Cycles of any of its times: a sum of some of them is still a time.
const MOST_CYCLES: u64 = 1_000_000_000;

/// A device, resolved to cycles and bytes.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Device {
    /// Its name.
    pub name: String,
    /// One cycle of its clock, in femtoseconds.
    pub cycle_fs: u64,
    /// Independent channels.
    pub channels: u32,
    /// Ranks of a channel.
    pub ranks: u32,
    /// Banks of a rank.
    pub banks: u32,
    /// Rows of a bank.
    pub rows: u64,
    /// Consecutive bytes in one bank.
    pub row_bytes: u64,
    /// Bytes one activation opens.
    pub buffer_bytes: u64,
    /// Bytes one burst moves.
    pub burst_bytes: u64,
    /// The constraints between commands, in cycles.
    pub timing: Timing,
    /// The queues.
    pub queue: Queue,
    /// What commands cost.
    pub energy: Model,
}

/// The queues of a channel.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Where the values come from.
    pub source: String,
    /// Reads waiting.
    pub reads: usize,
    /// Writes waiting.
    pub writes: usize,
    /// With that many writes waiting, writes go first...
    pub drain_from: usize,
    /// ...until so few are left, or no read waits.
    pub drain_to: usize,
    /// Row hits a bank serves in turn while an older request waits for another row.
    pub hit_streak: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    #[serde(rename = "source")]
    _source: String,
    clock: Clock,
    shape: Shape,
    timing: Timings,
    refresh: Option<Refresh>,
    queue: Queue,
    energy: Energies,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Clock {
    #[serde(rename = "source")]
    _source: String,
    t_ck: Quantity<Time>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    #[serde(rename = "source")]
    _source: String,
    channels: u32,
    ranks: u32,
    banks: u32,
    rows: u64,
    row: Quantity<Bytes>,
    row_buffer: Quantity<Bytes>,
    burst: Quantity<Bytes>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Timings {
    #[serde(rename = "source")]
    _source: String,
    command: Quantity<Span>,
    cl: Quantity<Span>,
    cwl: Quantity<Span>,
    burst: Quantity<Span>,
    t_rcd: Quantity<Span>,
    t_rp: Quantity<Span>,
    t_ras: Quantity<Span>,
    t_rc: Quantity<Span>,
    t_ccd: Quantity<Span>,
    t_rrd: Quantity<Span>,
    t_faw: Quantity<Span>,
    t_wr: Quantity<Span>,
    t_wtr: Quantity<Span>,
    t_rtp: Quantity<Span>,
    t_rtrs: Quantity<Span>,
    write_pulse: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Refresh {
    #[serde(rename = "source")]
    _source: String,
    t_refi: Quantity<Span>,
    t_rfc: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Energies {
    currents: Option<Currents>,
    accesses: Option<Accesses>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Currents {
    #[serde(rename = "source")]
    _source: String,
    chips: u32,
    vdd: Quantity<Voltage>,
    idd0: Quantity<Current>,
    idd2n: Quantity<Current>,
    idd3n: Quantity<Current>,
    idd4r: Quantity<Current>,
    idd4w: Quantity<Current>,
    idd5ab: Quantity<Current>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Accesses {
    #[serde(rename = "source")]
    _source: String,
    activate: Quantity<Energy>,
    read: Quantity<Energy>,
    write: Quantity<Energy>,
    leakage: Quantity<Power>,
}

impl Device {
    /// A built-in device by name, or a device file by its path.
    ///
    /// # Errors
    /// Neither; or what is wrong with the file, and in which line.
    pub fn find(name: &str) -> Result<Device, ConfigError> {
        let (name, text) = find(name, "devices", &BUILT_IN)?;
        Device::parse(name, &text)
    }

    /// The device a text describes; `file` is for errors.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn parse(file: &str, text: &str) -> Result<Device, ConfigError> {
        let place = SourceText { file, text };
        let said: File = place.read()?;
        check_shape(place, &said)?;
        let cycle_fs = said.clock.t_ck.is.0;
        let timing = resolve(&said, cycle_fs);
        check_timing(place, &timing)?;
        let energy = match (&said.energy.currents, &said.energy.accesses) {
            (Some(currents), None) => {
                let energy = by_current(currents, &timing, cycle_fs);
                check_energy(place, &energy)?;
                energy
            }
            (None, Some(accesses)) => Model {
                activate_j: accesses.activate.is.0,
                read_j: accesses.read.is.0,
                write_j: accesses.write.is.0,
                refresh_j: 0.0,
                idle_w: accesses.leakage.is.0,
                open_w: accesses.leakage.is.0,
                by_rank: false,
            },
            _ => {
                return Err(place.wrong(
                    "energy",
                    "currents",
                    "give either [energy.currents] or [energy.accesses]",
                ));
            }
        };
        Ok(Device {
            name: said.name,
            cycle_fs,
            channels: said.shape.channels,
            ranks: said.shape.ranks,
            banks: said.shape.banks,
            rows: said.shape.rows,
            row_bytes: said.shape.row.is.0,
            buffer_bytes: said.shape.row_buffer.is.0,
            burst_bytes: said.shape.burst.is.0,
            timing,
            queue: said.queue,
            energy,
        })
    }

    /// So many channels, and the same bytes: a bank has fewer rows, or more.
    pub fn set_channels(&mut self, channels: u32) {
        self.rows = self.rows * u64::from(self.channels) / u64::from(channels.max(1));
        self.channels = channels;
    }

    /// Bytes it holds.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        u64::from(self.channels) * u64::from(self.ranks) * u64::from(self.banks) * self.rows * self.row_bytes
    }
}

fn resolve(said: &File, cycle_fs: u64) -> Timing {
    let cycles = |span: &Quantity<Span>| span.is.cycles(cycle_fs);
    let timings = &said.timing;
    let refresh = said.refresh.as_ref();
    Timing {
        command: cycles(&timings.command),
        cl: cycles(&timings.cl),
        cwl: cycles(&timings.cwl),
        burst: cycles(&timings.burst),
        rcd: cycles(&timings.t_rcd),
        rp: cycles(&timings.t_rp),
        ras: cycles(&timings.t_ras),
        rc: cycles(&timings.t_rc),
        ccd: cycles(&timings.t_ccd),
        rrd: cycles(&timings.t_rrd),
        faw: cycles(&timings.t_faw),
        wr: cycles(&timings.t_wr),
        wtr: cycles(&timings.t_wtr),
        rtp: cycles(&timings.t_rtp),
        rtrs: cycles(&timings.t_rtrs),
        write_pulse: cycles(&timings.write_pulse),
        refi: refresh.map_or(0, |refresh| cycles(&refresh.t_refi)),
        rfc: refresh.map_or(0, |refresh| cycles(&refresh.t_rfc)),
    }
}

/// Joules a command, from the currents of a data sheet (Micron TN-41-01).
fn by_current(said: &Currents, timing: &Timing, cycle_fs: u64) -> Model {
    let volts = said.vdd.is.0 * f64::from(said.chips);
    let seconds = |cycles: u64| (cycles * cycle_fs) as f64 * 1e-15;
    let [idd0, idd2n, idd3n] = [said.idd0.is.0, said.idd2n.is.0, said.idd3n.is.0];
    let (ras, rest) = (seconds(timing.ras), seconds(timing.rc - timing.ras));
    Model {
        activate_j: volts * (idd0 * seconds(timing.rc) - idd3n * ras - idd2n * rest),
        read_j: volts * (said.idd4r.is.0 - idd3n) * seconds(timing.burst),
        write_j: volts * (said.idd4w.is.0 - idd3n) * seconds(timing.burst),
        refresh_j: volts * (said.idd5ab.is.0 - idd3n) * seconds(timing.rfc),
        idle_w: volts * idd2n,
        open_w: volts * idd3n,
        by_rank: true,
    }
}

fn check_shape(place: SourceText<'_>, said: &File) -> Result<(), ConfigError> {
    let shape = &said.shape;
    let powers = [
        ("channels", u64::from(shape.channels)),
        ("ranks", u64::from(shape.ranks)),
        ("banks", u64::from(shape.banks)),
        ("rows", shape.rows),
        ("row", shape.row.is.0),
        ("row_buffer", shape.row_buffer.is.0),
        ("burst", shape.burst.is.0),
    ];
    for (key, value) in powers {
        if !value.is_power_of_two() || value > 1 << 32 {
            return Err(place.wrong("shape", key, format!("{value} is not a power of two that fits")));
        }
    }
    if shape.burst.is.0 != 64 {
        return Err(place.wrong("shape", "burst", "the lab's line is 64 B, and a burst moves one"));
    }
    if shape.row_buffer.is < shape.burst.is || shape.row.is < shape.row_buffer.is {
        return Err(place.wrong("shape", "row_buffer", "must hold a burst and lie in a row"));
    }
    if shape.row_buffer.is.0 > MOST_BUFFER {
        return Err(place.wrong("shape", "row_buffer", "1 MiB at most"));
    }
    if shape.channels > MOST_CHANNELS {
        return Err(place.wrong("shape", "channels", format!("{MOST_CHANNELS} at most")));
    }
    if shape.ranks > 16 {
        return Err(place.wrong("shape", "ranks", "more than 16 in a channel"));
    }
    if u64::from(shape.ranks) * u64::from(shape.banks) > 64 {
        return Err(place.wrong("shape", "banks", "more than 64 in a channel"));
    }
    let banks = u128::from(shape.channels) * u128::from(shape.ranks) * u128::from(shape.banks);
    if banks * u128::from(shape.rows) * u128::from(shape.row.is.0) > MOST_BYTES {
        return Err(place.wrong("shape", "rows", "the device would hold more than 1 PiB"));
    }
    if !(1..=LONGEST_CYCLE_FS).contains(&said.clock.t_ck.is.0) {
        return Err(place.wrong("clock", "t_ck", "a cycle must last, and a microsecond at most"));
    }
    let queue = &said.queue;
    for (key, fits) in [
        ("reads", (1..=4096).contains(&queue.reads)),
        ("writes", (1..=4096).contains(&queue.writes)),
        ("drain_from", (1..=queue.writes).contains(&queue.drain_from)),
        ("drain_to", queue.drain_to < queue.drain_from),
        ("hit_streak", queue.hit_streak > 0),
    ] {
        if !fits {
            return Err(place.wrong(
                "queue",
                key,
                "cannot be: 1 <= reads, writes <= 4096; drain_to < drain_from <= writes; hit_streak >= 1",
            ));
        }
    }
    Ok(())
}

/// A command takes what a current is above that of standing by, which it then must be.
fn check_energy(place: SourceText<'_>, energy: &Model) -> Result<(), ConfigError> {
    for (key, joules) in [
        ("idd0", energy.activate_j),
        ("idd4r", energy.read_j),
        ("idd4w", energy.write_j),
        ("idd5ab", energy.refresh_j),
    ] {
        if joules < 0.0 {
            return Err(place.wrong("energy.currents", key, "less than the device draws standing by"));
        }
    }
    Ok(())
}

fn check_timing(place: SourceText<'_>, timing: &Timing) -> Result<(), ConfigError> {
    for (table, key, cycles) in [
        ("timing", "command", timing.command),
        ("timing", "cl", timing.cl),
        ("timing", "cwl", timing.cwl),
        ("timing", "burst", timing.burst),
        ("timing", "t_rcd", timing.rcd),
        ("timing", "t_rp", timing.rp),
        ("timing", "t_ras", timing.ras),
        ("timing", "t_rc", timing.rc),
        ("timing", "t_ccd", timing.ccd),
        ("timing", "t_rrd", timing.rrd),
        ("timing", "t_faw", timing.faw),
        ("timing", "t_wr", timing.wr),
        ("timing", "t_wtr", timing.wtr),
        ("timing", "t_rtp", timing.rtp),
        ("timing", "t_rtrs", timing.rtrs),
        ("timing", "write_pulse", timing.write_pulse),
        ("refresh", "t_refi", timing.refi),
        ("refresh", "t_rfc", timing.rfc),
    ] {
        if cycles > MOST_CYCLES {
            return Err(place.wrong(table, key, format!("{cycles} cycles; {MOST_CYCLES} at most")));
        }
    }
    for (key, cycles) in [("cl", timing.cl), ("burst", timing.burst), ("t_rcd", timing.rcd)] {
        if cycles == 0 {
            return Err(place.wrong("timing", key, "must last a cycle at least"));
        }
    }
    if timing.rc < timing.ras {
        return Err(place.wrong("timing", "t_rc", "shorter than t_ras"));
    }
    if timing.refi > 0 && timing.refi <= timing.rfc + timing.rp {
        return Err(place.wrong(
            "refresh",
            "t_refi",
            "refresh would leave no time for anything else",
        ));
    }
    Ok(())
}
