//! `twinpage lab eval mss`: programs that persist by themselves, on a machine with its memory on the bus.

use super::eval::{self, Eval};
use super::{bar, command};
use std::process::ExitCode;
use twinpage_lab::eval::Document;
use twinpage_lab::eval::mss::{Evaluation, Request, evaluate};

pub(super) fn eval(arguments: &Eval) -> Result<ExitCode, String> {
    if let Some(option) = arguments.for_schemes() {
        return Err(format!(
            "{option} is for dpc and twins; mss runs each program at its full length"
        ));
    }
    let request = Request {
        machine: "mss".into(),
        artifacts: arguments.artifact.clone(),
        smaller: arguments.smaller.unwrap_or(if arguments.quick { 64 } else { 1 }),
        seed: arguments.seed,
        jobs: arguments.jobs.map(|jobs| jobs as usize),
        command: command(),
    };
    let shown = bar(1, "runs");
    let evaluation = evaluate(&request, &|done, all, last| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
        shown.set_message(last.to_owned());
    })?;
    shown.finish_and_clear();
    if let Some(folder) = &arguments.out {
        eval::write(&evaluation, folder)?;
    }
    match arguments.json {
        true => println!(
            "{}",
            serde_json::to_string(&evaluation).map_err(|why| why.to_string())?
        ),
        false => show(&evaluation),
    }
    Ok(ExitCode::SUCCESS)
}

fn show(evaluation: &Evaluation) {
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(["artifact", "series", "of", "paper", "ours", "unit"]);
    for row in evaluation.all_rows() {
        table.add_row([
            row.artifact,
            &row.series,
            &row.workload,
            &row.paper.map_or(String::new(), |paper| format!("{paper:.2}")),
            &format!("{:.2}", row.ours),
            row.unit,
        ]);
    }
    println!("{table}");
    for row in evaluation.all_rows() {
        if let Some(note) = &row.note {
            println!("{} {} {}: {note}", row.artifact, row.series, row.workload);
        }
    }
}
