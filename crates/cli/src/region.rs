//! `twinpage info`, `check`, `stats` and `backup` of a region's file.

use crate::args::{Backup, Look, Stats};
use crate::info::{DAMAGED, json_of};
use crate::show::{self, Rows};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};
use twinpage::check::Report;
use twinpage::inspect::{self, inspect};
use twinpage::objects::{self, ObjectInfo};
use twinpage::superblock::{Superblock, VERSION};
use twinpage::{Durability, control_socket};
use twinpage_core::Damage;

const KIND: &str = "region";

/// Whether `path` is for this module: a region is a file, the state of a program a directory.
pub(crate) fn is_region(path: &Path) -> bool {
    path.is_file()
}

/// An error in one line that names the file, once.
pub(crate) fn naming(path: &Path) -> impl FnOnce(twinpage::Error) -> String {
    move |error| {
        let (path, error) = (path.display().to_string(), error.to_string());
        if error.contains(&path) {
            error
        } else {
            format!("{path}: {error}")
        }
    }
}

fn version(look: &inspect::Inspection) -> u32 {
    look.superblock.map_or(VERSION, |superblock| superblock.version())
}

/// What every look at a region begins with, as scripts read it.
fn json_of_region(look: &inspect::Inspection) -> Value {
    let mut document = json_of(KIND, version(look), Some(&look.info()), Some(look.durability));
    document["in_use"] = json!(look.in_use);
    document["region"] = json!(look.superblock);
    document
}

pub(crate) fn info(arguments: &Look) -> Result<ExitCode, String> {
    let objects = objects::list(&arguments.state);
    let look = inspect(&arguments.state).map_err(naming(&arguments.state))?;
    if arguments.json {
        let mut document = json_of_region(&look);
        document["next_level"] = look.next_level().map_or(Value::Null, |(file, objects)| {
            json!({ "file": file, "objects": objects.len(), "bytes": objects.values().sum::<u64>() })
        });
        document["objects"] = json!(objects.as_ref().ok());
        document["why_no_objects"] = json!(objects.as_ref().err().map(ToString::to_string));
        println!("{document:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let (path, info, mut rows) = (arguments.state.display(), look.info(), Rows::default());
    rows.add("region", format!("{path}, format version {}", version(&look)));
    rows.add(
        "status",
        match &look.in_use {
            Some(holder) => format!("in use by {holder}"),
            None => "closed".into(),
        },
    );
    match &look.superblock {
        Some(superblock) => add_checkpoint(&mut rows, superblock, info.epoch, look.durability),
        None => rows.add("checkpoint", "none yet"),
    }
    crate::info::add_store(&mut rows, &info);
    if let Some((file, objects)) = look.next_level() {
        let bytes = show::bytes(objects.values().sum());
        let objects = show::count(objects.len() as u64, "object");
        rows.add("next level", format!("{}: {objects}, {bytes}", file.display()));
    }
    match &objects {
        Ok(objects) => objects
            .iter()
            .for_each(|object| rows.add("object", object_line(object))),
        Err(error) => rows.add("objects", format!("cannot be listed: {error}")),
    }
    rows.print();
    Ok(ExitCode::SUCCESS)
}

fn object_line(object: &ObjectInfo) -> String {
    let number = object.id.map_or(String::new(), |id| format!(", number {id}"));
    let held = match object.holders.is_empty() {
        true => String::new(),
        false => format!("; held by {}", object.holders.join(", ")),
    };
    let away = match object.next_level_bytes {
        0 => String::new(),
        bytes => format!("; {} of it in the next level", show::bytes(bytes)),
    };
    let value = value(&object.type_name, object.blocks, object.bytes);
    format!("{:?}{number}, {value}{away}{held}", object.name)
}

/// A value: its type, and the blocks that it owns.
fn value(type_name: &str, blocks: u64, bytes: u64) -> String {
    let (blocks, bytes) = (show::count(blocks, "block"), show::bytes(bytes));
    format!("a {type_name}: {blocks}, {bytes}")
}

fn add_checkpoint(rows: &mut Rows, superblock: &Superblock, epoch: u64, durability: Durability) {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(superblock.unix_ms);
    let age = show::time(SystemTime::now().duration_since(at).unwrap_or_default());
    let survives = match durability.outlives_machine() {
        true => "survives a power cut",
        false => "survives the end of the program, not of the machine",
    };
    rows.add("checkpoint", format!("epoch {epoch}, {age} ago; {survives}"));
    rows.add(
        "memory",
        format!(
            "{} at {:#x}, at most {}; layout {}",
            show::bytes(superblock.bytes),
            superblock.base,
            show::bytes(superblock.bound),
            superblock.layout
        ),
    );
}

pub(crate) fn check(arguments: &Look) -> Result<ExitCode, String> {
    let path = arguments.state.display();
    // A file that recovery refuses is damaged too, and that is the answer.
    let (document, damage, heap) = match inspect(&arguments.state) {
        Ok(look) => {
            let (damage, heap) = look.check().map_err(|error| error.to_string())?;
            (json_of_region(&look), damage, heap)
        }
        Err(twinpage::Error::Store(twinpage_core::Error::Damaged { what, at, why })) => {
            let what = what.to_owned();
            (
                json_of(KIND, VERSION, None, None),
                vec![Damage { what, at, why }],
                None,
            )
        }
        Err(twinpage::Error::NextLevel { file, why }) => {
            let what = format!("next level {}", file.display());
            let damage = Damage { what, at: 0, why };
            (json_of(KIND, VERSION, None, None), vec![damage], None)
        }
        Err(error) => return Err(naming(&arguments.state)(error)),
    };
    let sound = damage.is_empty() && heap.as_ref().is_none_or(Report::is_sound);
    if arguments.json {
        let mut document = document;
        let found = heap.iter().flat_map(|heap| &heap.damage);
        let of_heap = found.map(|finding| json!({ "what": "heap", "at": finding.at, "why": finding.what }));
        document["damage"] = damage.iter().map(|damage| json!(damage)).chain(of_heap).collect();
        document["heap"] = json!(heap);
        println!("{document:#}");
    } else {
        for Damage { what, at, why } in &damage {
            println!("{path}: damaged {what} at byte {at}: {why}");
        }
        if let Some(heap) = &heap {
            tell_heap(&arguments.state, heap);
        }
        if sound {
            println!(
                "{path}: whole; {}",
                show::checksums(document["checksums"] == true)
            );
        }
    }
    Ok(if sound {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DAMAGED)
    })
}

fn tell_heap(path: &Path, heap: &Report) {
    let path = path.display();
    for finding in &heap.damage {
        println!("{path}: damaged heap {finding}");
    }
    if heap.leaked_blocks > 0 {
        println!(
            "{path}: {} that no root reaches, {}",
            show::count(heap.leaked_blocks, "block"),
            show::bytes(heap.leaked_bytes)
        );
    }
    for (at, bytes) in &heap.leaks {
        println!("{path}: leaked block of {bytes} bytes at {at:#x}");
    }
    for root in &heap.roots {
        let value = value(&root.type_name, root.blocks, root.bytes);
        println!("{path}: root {:?}, {value}", root.name);
    }
}

pub(crate) fn stats(arguments: &Stats) -> Result<ExitCode, String> {
    let found = control_socket::statistics(&arguments.region).map_err(|error| {
        let region = arguments.region.display();
        match arguments.region.is_file() {
            true => format!("{error}; twinpage info {region} tells what is in it"),
            false => error.to_string(),
        }
    })?;
    if arguments.json {
        println!("{found:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let number = |at: &str| found.pointer(at).and_then(Value::as_f64).unwrap_or_default();
    let count = |at: &str| found.pointer(at).and_then(Value::as_u64).unwrap_or_default();
    let mut rows = Rows::default();
    rows.add(
        "epochs",
        format!(
            "{} since it was opened, {} in all",
            count("/statistics/epochs"),
            count("/info/epoch")
        ),
    );
    rows.add(
        "stops",
        format!(
            "{} (p50), {} (p99), {} (max)",
            show::ms_of_us(number("/statistics/stop_us/p50")),
            show::ms_of_us(number("/statistics/stop_us/p99")),
            show::ms_of_us(number("/statistics/stop_us/max")),
        ),
    );
    rows.add(
        "durable",
        format!(
            "{} (p50), {} (p99) after the stop",
            show::ms(number("/statistics/durable_ms/p50")),
            show::ms(number("/statistics/durable_ms/p99")),
        ),
    );
    rows.add(
        "written",
        format!(
            "{:.2} bytes for each changed byte, {} changed",
            number("/statistics/bytes_per_changed_byte"),
            show::bytes(count("/statistics/changed_bytes")),
        ),
    );
    rows.add(
        "pages",
        format!(
            "{} loaded, {} evicted",
            count("/statistics/paging/loaded_pages"),
            count("/statistics/paging/evicted_pages"),
        ),
    );
    rows.add(
        "pool",
        format!(
            "{}, {} in use",
            show::count(count("/info/pool/pages"), "derivative page"),
            count("/info/pool/used"),
        ),
    );
    rows.print();
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn backup(arguments: &Backup) -> Result<ExitCode, String> {
    let (region, to) = (&arguments.region, &arguments.file);
    let found = inspect(region).map_err(naming(region))?;
    let in_use = found.in_use.is_some();
    let epoch = if in_use {
        drop(found);
        control_socket::backup(region, to)
    } else {
        found.backup(to)
    };
    let epoch = epoch.map_err(|error| error.to_string())?;
    if arguments.json {
        println!("{:#}", json!({ "epoch": epoch, "live": in_use }));
    } else {
        let how = if in_use { ", while it was in use" } else { "" };
        println!("{}: epoch {epoch} of {}{how}", to.display(), region.display());
    }
    Ok(ExitCode::SUCCESS)
}
