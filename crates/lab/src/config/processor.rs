//! What machine files say of cores and caches.

use crate::machine::Shape;
use crate::machine::hierarchy::Level;
use crate::machine::tlb::TlbShape;
use crate::quantity::{Bytes, Frequency, Quantity, Span};
use crate::text::{ConfigError, SourceText};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cpu {
    #[serde(rename = "source")]
    _source: String,
    cores: usize,
    pub(crate) clock: Quantity<Frequency>,
    width: u64,
    reorder_buffer: u64,
    store_buffer: usize,
    misses: usize,
    state: Quantity<Bytes>,
    front: Option<Front>,
    tlb: Option<Tlb>,
}

/// What comes before execution: branches and fetches that miss, of a thousand instructions, and what each costs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Front {
    #[serde(rename = "source")]
    _source: String,
    branch_misses: u64,
    branch: Quantity<Span>,
    fetch_misses: u64,
    fetch: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tlb {
    #[serde(rename = "source")]
    _source: String,
    entries: usize,
    walk: Quantity<Span>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Caches {
    l1: Cache,
    l2: Cache,
    l3: Option<Cache>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Cache {
    #[serde(rename = "source")]
    _source: String,
    size: Quantity<Bytes>,
    ways: u32,
    latency: Quantity<Span>,
}

/// Cores, `most_cores` at most, and caches, as a machine file says.
pub(crate) fn shape(
    source: SourceText<'_>,
    cpu: &Cpu,
    cache: &Caches,
    most_cores: u64,
) -> Result<Shape, ConfigError> {
    let cycle_fs = cpu.clock.is.cycle_fs;
    for (key, value, most) in [
        ("cores", cpu.cores as u64, most_cores),
        ("width", cpu.width, 64),
        ("reorder_buffer", cpu.reorder_buffer, 1 << 16),
        ("store_buffer", cpu.store_buffer as u64, 1 << 12),
        ("misses", cpu.misses as u64, 1 << 12),
    ] {
        if !(1..=most).contains(&value) {
            return Err(source.wrong("cpu", key, format!("{value} cannot be: 1 to {most}")));
        }
    }
    if cpu.state.is.0 > 1 << 20 {
        return Err(source.wrong("cpu", "state", "at most 1 MiB"));
    }
    if let Some(front) = &cpu.front {
        for (key, misses) in [
            ("branch_misses", front.branch_misses),
            ("fetch_misses", front.fetch_misses),
        ] {
            if misses > 1000 {
                let why = format!("{misses} cannot be: of a thousand instructions, so 1000 at most");
                return Err(source.wrong("cpu.front", key, why));
            }
        }
        for (key, span) in [("branch", &front.branch), ("fetch", &front.fetch)] {
            if span.is.fs(cycle_fs) > 1_000_000_000_000 {
                return Err(source.wrong("cpu.front", key, "a millisecond at most"));
            }
        }
    }
    if let Some(tlb) = &cpu.tlb
        && !(tlb.entries.is_power_of_two() && (4..=4096).contains(&tlb.entries))
    {
        return Err(source.wrong("cpu.tlb", "entries", "a power of two, 4 to 4096"));
    }
    if let Some(tlb) = &cpu.tlb {
        tlb.walk.check_latency(source, ("cpu.tlb", "walk"), cycle_fs)?;
    }
    let events_fs = cpu.front.as_ref().map_or(0, |front| {
        let branches = front.branch_misses * front.branch.is.fs(cycle_fs);
        (branches + front.fetch_misses * front.fetch.is.fs(cycle_fs)) / 1000
    });
    let mut levels = Vec::new();
    for (name, cache) in [
        ("cache.l1", Some(&cache.l1)),
        ("cache.l2", Some(&cache.l2)),
        ("cache.l3", cache.l3.as_ref()),
    ] {
        let Some(cache) = cache else { continue };
        let (bytes, ways) = (cache.size.is.0, u64::from(cache.ways));
        if ways == 0
            || ways > 64
            || !bytes.is_multiple_of(64 * ways.max(1))
            || !(bytes / 64 / ways).is_power_of_two()
        {
            return Err(source.wrong(
                name,
                "ways",
                format!("{bytes} bytes in {ways} ways are no power of two of sets"),
            ));
        }
        cache.latency.check_latency(source, (name, "latency"), cycle_fs)?;
        levels.push(Level {
            bytes,
            ways: cache.ways,
            cycles: u32::try_from(cache.latency.is.cycles(cycle_fs))
                .map_err(|_| source.wrong(name, "latency", "too long"))?,
        });
    }
    Ok(Shape {
        cores: cpu.cores,
        cycle_fs,
        instruction_fs: cycle_fs / cpu.width,
        events_fs,
        tlb: cpu.tlb.as_ref().map(|tlb| TlbShape {
            entries: tlb.entries,
            walk_fs: tlb.walk.is.fs(cycle_fs),
        }),
        reorder: cpu.reorder_buffer,
        store_buffer: cpu.store_buffer,
        misses: cpu.misses,
        levels,
        state_bytes: cpu.state.is.0,
    })
}
