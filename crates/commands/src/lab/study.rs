//! `twinpage lab eval mss|ssp|simpo`: studies on machines with their memory on the bus.

use super::eval::{Eval, show_claims, write};
use super::{bar, command};
use crate::output::print_json;
use std::process::ExitCode;
use twinpage_lab::eval::{Document, Tell, mss, simpo, ssp};

/// Programs that persist by themselves.
pub(super) fn mss(arguments: &Eval) -> Result<ExitCode, String> {
    refuse_others(arguments, "mss")?;
    let request = mss::Request {
        machine: "mss".into(),
        artifacts: arguments.artifact.clone(),
        smaller: smaller(arguments),
        seed: arguments.seed,
        jobs: arguments.jobs.map(|jobs| jobs as usize),
        command: command(),
    };
    let evaluation = with_bar(|tell| mss::evaluate(&request, tell))?;
    hand_over(arguments, &evaluation)
}

/// Failure-atomic sections.
pub(super) fn ssp(arguments: &Eval) -> Result<ExitCode, String> {
    refuse_others(arguments, "ssp")?;
    let request = ssp::Request {
        machine: "ssp".into(),
        artifacts: arguments.artifact.clone(),
        smaller: smaller(arguments),
        seed: arguments.seed,
        jobs: arguments.jobs.map(|jobs| jobs as usize),
        command: command(),
    };
    let evaluation = with_bar(|tell| ssp::evaluate(&request, tell))?;
    let code = hand_over(arguments, &evaluation)?;
    if !arguments.json {
        show_claims(&evaluation.claims);
    }
    Ok(code)
}

/// Persistent objects.
pub(super) fn simpo(arguments: &Eval) -> Result<ExitCode, String> {
    refuse_others(arguments, "simpo")?;
    let request = simpo::Request {
        artifacts: arguments.artifact.clone(),
        smaller: smaller(arguments),
        jobs: arguments.jobs.map(|jobs| jobs as usize),
        command: command(),
    };
    let evaluation = with_bar(|tell| simpo::evaluate(&request, tell))?;
    for left_out in &evaluation.left_out {
        twinpage_os::messages::tell(&format!("left out: {left_out}"));
    }
    let code = hand_over(arguments, &evaluation)?;
    if !arguments.json {
        show_claims(&evaluation.claims);
    }
    Ok(code)
}

/// Options that only the papers of schemes have.
fn refuse_others(arguments: &Eval, paper: &str) -> Result<(), String> {
    match arguments.for_schemes() {
        Some(option) => Err(format!(
            "{option} is for dpc and twins; {paper} runs each program at its full length"
        )),
        None => Ok(()),
    }
}

fn smaller(arguments: &Eval) -> u64 {
    let quick = if arguments.quick { 64 } else { 1 };
    arguments.smaller.unwrap_or(quick)
}

fn with_bar<T>(evaluate: impl FnOnce(Tell<'_>) -> Result<T, String>) -> Result<T, String> {
    let shown = bar(1, "runs");
    let evaluation = evaluate(&|done, all, last| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
        shown.set_message(last.to_owned());
    })?;
    shown.finish_and_clear();
    Ok(evaluation)
}

/// To the folder asked for, and to standard output.
fn hand_over(arguments: &Eval, evaluation: &impl Document) -> Result<ExitCode, String> {
    if let Some(folder) = &arguments.out {
        write(evaluation, folder)?;
    }
    match arguments.json {
        true => print_json(evaluation)?,
        false => show(evaluation),
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
