//! `twinpage check`: reads everything in a state and verifies every checksum.

use crate::args::Look;
use crate::info::{DAMAGED, json_of_store};
use crate::show;
use serde_json::json;
use std::process::ExitCode;
use twinpage_core::Damage;
use twinpage_process::{check, inspect};

pub(crate) fn check(arguments: &Look) -> Result<ExitCode, String> {
    let checked = check::check(&arguments.state).map_err(|error| error.to_string())?;
    if arguments.json {
        let version = checked.version.unwrap_or(inspect::VERSION);
        let mut document = json_of_store(version, checked.info.as_ref(), checked.durability);
        document["damage"] = json!(checked.damage);
        println!("{document:#}");
    } else {
        let state = arguments.state.display();
        for Damage { what, at, why } in &checked.damage {
            println!("{state}: damaged {what} at byte {at}: {why}");
        }
        match &checked.info {
            Some(info) if checked.damage.is_empty() && info.epoch > 0 => println!(
                "{state}: whole, epoch {}; {}",
                info.epoch,
                show::checksums(info.checksums)
            ),
            Some(_) if checked.damage.is_empty() => {
                println!("{state}: whole, and without a checkpoint yet; start the program again");
            }
            _ => {}
        }
    }
    Ok(if checked.damage.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DAMAGED)
    })
}
