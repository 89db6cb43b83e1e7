//! `twinpage lab run --sweep`: one table of many runs.

use super::bar;
use super::run::Run;
use crate::output::{make_folder, print_json};
use crate::report::provenance;
use std::path::Path;
use std::process::ExitCode;
use twinpage_lab::sweep::Grid;
use twinpage_lab::whole_file;

pub(super) fn sweep(arguments: &Run) -> Result<ExitCode, String> {
    for (given, option) in [
        (arguments.crash_at.is_some(), "--crash-at"),
        (arguments.epochs.is_some(), "--epochs"),
        (arguments.print_config, "--print-config"),
    ] {
        if given {
            return Err(format!(
                "{option} is for one run: one scheme, one workload, no --sweep"
            ));
        }
    }
    if let Some(folder) = &arguments.out {
        make_folder(folder)?;
    }
    let shown = bar(1, "runs");
    let grid = arguments.asked().run(provenance(), &|done, all| {
        shown.set_length(all as u64);
        shown.set_position(done as u64);
    })?;
    shown.finish_and_clear();
    match arguments.json {
        true => print_json(&grid)?,
        false => show(&grid),
    }
    if let Some(folder) = &arguments.out {
        write(&grid, folder)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn write(grid: &Grid, folder: &Path) -> Result<(), String> {
    let put = |name: &str, text: String| whole_file::write(&folder.join(name), &text);
    let json = serde_json::to_string_pretty(grid).map_err(|why| why.to_string())?;
    put("sweep.json", json + "\n")?;
    put("sweep.csv", grid.csv())?;
    put("sweep.svg", grid.figure()?)
}

fn show(grid: &Grid) {
    let (names, lines) = grid.table();
    let mut table = comfy_table::Table::new();
    table.load_preset(comfy_table::presets::NOTHING);
    table.set_header(names);
    table.add_rows(lines.iter().map(|line| line.iter().map(|field| short(field))));
    println!("{table}");
}

/// A number to four digits; the files have all.
fn short(field: &str) -> String {
    match field.parse::<f64>() {
        Ok(number) if field.contains('.') && number != 0.0 => {
            let digits = (3.0 - number.abs().log10().floor()).max(0.0) as usize;
            format!("{number:.digits$}")
        }
        _ => field.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn numbers_have_four_digits_and_all_else_stays() {
        let told = [
            "0.007357662403547191",
            "1.0",
            "123456.789",
            "-0.5",
            "2128211",
            "1.5ms",
            "NaN",
            "",
        ]
        .map(short);
        assert_eq!(
            told,
            [
                "0.007358", "1.000", "123457", "-0.5000", "2128211", "1.5ms", "NaN", ""
            ]
        );
    }
}
