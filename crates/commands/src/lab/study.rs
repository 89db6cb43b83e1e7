//! `twinpage lab eval mss|ssp|simpo`: studies on machines with their memory on the bus.

use super::bar;
use super::eval::{Eval, show_claims, write};
use crate::output::{make_folder, print_json};
use crate::report::provenance;
use std::process::ExitCode;
use twinpage_lab::eval::{Claim, Document, StudyRequest, Tell, mss, simpo, ssp};

/// Programs that persist by themselves.
pub(super) fn mss(arguments: &Eval) -> Result<ExitCode, String> {
    let evaluation = repeat(arguments, "mss", mss::evaluate)?;
    hand_over(arguments, &evaluation, &[])
}

/// Failure-atomic sections.
pub(super) fn ssp(arguments: &Eval) -> Result<ExitCode, String> {
    let evaluation = repeat(arguments, "ssp", ssp::evaluate)?;
    hand_over(arguments, &evaluation, &evaluation.claims)
}

/// Persistent objects.
pub(super) fn simpo(arguments: &Eval) -> Result<ExitCode, String> {
    if arguments.seed.is_some() {
        return Err("--seed is not for simpo, whose programs draw the same each time".into());
    }
    let evaluation = repeat(arguments, "simpo", simpo::evaluate)?;
    for left_out in &evaluation.left_out {
        twinpage_os::messages::tell(&format!("left out: {left_out}"));
    }
    hand_over(arguments, &evaluation, &evaluation.claims)
}

/// Does what the arguments ask for of a study.
fn repeat<T>(
    arguments: &Eval,
    paper: &str,
    evaluate: impl FnOnce(&StudyRequest, Tell<'_>) -> Result<T, String>,
) -> Result<T, String> {
    refuse_others(arguments, paper)?;
    if let Some(folder) = &arguments.out {
        make_folder(folder)?;
    }
    let asked = StudyRequest {
        artifacts: arguments.artifact.clone(),
        set: arguments.set.clone(),
        smaller: arguments.smaller(),
        seed: arguments.seed(),
        jobs: arguments.jobs(),
        provenance: provenance(),
    };
    let shown = bar(1, "runs");
    let evaluation = evaluate(&asked, &|done, all, last| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
        shown.set_message(last.to_owned());
    })?;
    shown.finish_and_clear();
    Ok(evaluation)
}

/// Options that only the papers of schemes have.
fn refuse_others(arguments: &Eval, paper: &str) -> Result<(), String> {
    match arguments.for_schemes() {
        Some((option, instead)) => Err(format!("{option} is for dpc and twins; of {paper}, {instead}")),
        None => Ok(()),
    }
}

/// To standard output, and to the folder asked for.
fn hand_over(arguments: &Eval, evaluation: &impl Document, claims: &[Claim]) -> Result<ExitCode, String> {
    if arguments.json {
        print_json(evaluation)?;
    } else {
        show(evaluation);
        show_claims(claims);
    }
    if let Some(folder) = &arguments.out {
        write(evaluation, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(evaluation: &impl Document) {
    let rows = evaluation.all_rows();
    if rows.is_empty() {
        return;
    }
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["artifact", "series", "of", "paper", "ours", "±", "unit"]);
    for row in &rows {
        table.add_row([
            row.artifact,
            &row.series,
            &row.workload,
            &row.paper.map_or(String::new(), |paper| format!("{paper:.2}")),
            &format!("{:.2}", row.ours),
            &row.plus_minus
                .map_or(String::new(), |width| format!("{width:.3}")),
            row.unit,
        ]);
    }
    println!("{table}");
    for row in rows {
        if let Some(note) = &row.note {
            println!("{} {} {}: {note}", row.artifact, row.series, row.workload);
        }
    }
}
