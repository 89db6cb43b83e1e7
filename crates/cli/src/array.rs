//! `twinpage info`, `check` and `backup` of a versioned array's file.

use crate::args::{Backup, Look};
use crate::info::DAMAGED;
use crate::show::{self, Rows};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use twinpage::Durability;
use twinpage::versions::{self, Header, Kind, look};
use twinpage_core::Damage;

pub(crate) use twinpage::versions::is_array;

fn told(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// What every look at an array begins with, as scripts read it.
fn json_of(found: Option<&versions::Look>) -> Value {
    json!({
        "kind": "array",
        "version": found.map(|found| found.header.version),
        "durability": found.map(|found| match found.durability {
            Durability::Disk => "disk",
            Durability::Memory => "memory",
            Durability::Dax => "dax",
        }),
        "in_use": found.and_then(|found| found.in_use.clone()),
        "array": found.map(|found| &found.header),
        "bytes": found.map(versions::Look::bytes),
        "durable": found.map(|found| found.durable),
        "plane": found.and_then(|found| found.plane),
    })
}

/// The unit that is durable as a whole.
fn unit(header: &Header) -> &'static str {
    match header.kind {
        Kind::Elements => "update",
        Kind::Planes => "step",
    }
}

pub(crate) fn info(arguments: &Look) -> Result<ExitCode, String> {
    let found = look(&arguments.state).map_err(told)?;
    if arguments.json {
        let mut document = json_of(Some(&found));
        document["under_way"] = json!(found.in_use.is_none().then(|| found.under_way()));
        println!("{document:#}");
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = Rows::default();
    rows.add(
        "array",
        format!(
            "{}, format version {}",
            found.path.display(),
            found.header.version
        ),
    );
    rows.add(
        "status",
        match &found.in_use {
            Some(holder) => format!("in use by {holder}"),
            None => "not in use".into(),
        },
    );
    rows.add("content", found.header.describe());
    let survives = match found.durability.outlives_machine() {
        true => "survives a power cut",
        false => "survives the end of the program, not of the machine",
    };
    let plane = found
        .plane
        .map_or(String::new(), |plane| format!(", in plane {plane}"));
    rows.add(
        "durable",
        format!("{} {}{plane}; {survives}", unit(&found.header), found.durable),
    );
    rows.add("file", show::bytes(found.bytes()));
    rows.print();
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn check(arguments: &Look) -> Result<ExitCode, String> {
    let path = arguments.state.display();
    // A file that opening refuses is damaged too, and that is the answer.
    let (document, damage) = match look(&arguments.state) {
        Ok(found) => (json_of(Some(&found)), found.check().map_err(told)?),
        Err(versions::Error::Store(twinpage_core::Error::Damaged { what, at, why })) => {
            let what = what.to_owned();
            (json_of(None), vec![Damage { what, at, why }])
        }
        Err(error) => return Err(told(error)),
    };
    if arguments.json {
        let mut document = document;
        document["damage"] = json!(damage);
        println!("{document:#}");
    } else {
        for Damage { what, at, why } in &damage {
            println!("{path}: damaged {what} at byte {at}: {why}");
        }
        if damage.is_empty() {
            println!("{path}: whole; header, word and numbers are right (values carry no checksum)");
        }
    }
    Ok(match damage.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(DAMAGED),
    })
}

pub(crate) fn backup(arguments: &Backup) -> Result<ExitCode, String> {
    let (from, to): (&Path, &Path) = (&arguments.region, &arguments.file);
    let found = look(from).map_err(told)?;
    let durable = found.backup(to).map_err(told)?;
    if arguments.json {
        println!("{:#}", json!({ "durable": durable, "live": false }));
    } else {
        let unit = unit(&found.header);
        println!("{}: {unit} {durable} of {}", to.display(), from.display());
    }
    Ok(ExitCode::SUCCESS)
}
