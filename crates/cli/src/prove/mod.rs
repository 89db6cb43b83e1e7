//! `twinpage prove`: would my program survive?
//!
//! ```text
//! undisturbed   the program alone ------------------------------> outputs, files, exit
//! run 1         twinpage run --x  resume --x  resume ------------> the same?
//! run 2         twinpage run ----x  resume ----------------------> the same?     ... until N kills (x)
//! ```
//!
//! * Each run is in a fresh directory under one and the same name, so that a program which prints
//!   where it is prints the same.
//! * The instants of the kills are drawn from a printed seed, as shares of what was measured.
//! * Nothing of the user's is copied or changed by `prove` itself.

mod campaign;
mod compare;
mod report;
mod scratch;

use crate::args::Prove;
use campaign::Campaign;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::Report;
use scratch::Scratch;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use twinpage_process::{launch, notes};

/// The exit code when a run with kills came to another end.
const DIFFERENT: u8 = 1;

pub(crate) fn prove(arguments: &Prove) -> Result<ExitCode, String> {
    let said = |error: twinpage_process::Error| error.to_string();
    let words = absolute(&launch::resolve(&arguments.program).map_err(said)?);
    launch::Command::find(&words).map_err(said)?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut scratch = Scratch::new(arguments.scratch.as_deref(), words)?;
    notes::tell(&format!(
        "seed {seed}; --seed {seed} draws the same instants again"
    ));
    let bar = progress(u64::from(arguments.kills));
    let report = measure(arguments, seed, &scratch, &bar)?;
    bar.finish_and_clear();
    if arguments.keep {
        notes::tell(&format!("what the runs left is in {}", scratch.keep().display()));
    }
    if arguments.json {
        println!("{:#}", report.to_json());
    } else {
        report.print();
    }
    Ok(if report.difference.is_none() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DIFFERENT)
    })
}

/// All the runs, until there were enough kills or one of them came to another end.
fn measure(arguments: &Prove, seed: u64, scratch: &Scratch, bar: &ProgressBar) -> Result<Report, String> {
    bar.set_message("undisturbed");
    let undisturbed = scratch.run_undisturbed()?;
    let mut report = Report::new(seed, &undisturbed);
    let mut campaign = Campaign::new(arguments, seed, scratch, bar, undisturbed.took)?;
    while campaign.tally.kills < arguments.kills && report.difference.is_none() {
        report.difference = match campaign.run()? {
            Ok(ended) => scratch.difference(undisturbed.ended, ended)?,
            Err(lost) => Some(lost),
        };
    }
    if report.difference.is_some() {
        bar.set_message("undisturbed, again");
        report.repeatable = Some(scratch.repeats(&undisturbed)?);
    }
    report.tally = campaign.tally;
    report.sizes = scratch.sizes()?;
    Ok(report)
}

/// Drawn on a terminal only.
fn progress(kills: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(kills), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} kills, {elapsed}: {msg}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

/// Words that name something that exists below the working directory name it from anywhere: the
/// program runs elsewhere.
fn absolute(words: &[OsString]) -> Vec<OsString> {
    let is_path = |index: usize, word: &OsStr| {
        // The first is looked up along PATH unless it has a slash.
        (index > 0 || word.as_bytes().contains(&b'/')) && Path::new(word).exists()
    };
    let words = words.iter().enumerate();
    let words = words.map(|(index, word)| match std::path::absolute(word) {
        Ok(path) if is_path(index, word) => path.into(),
        _ => word.clone(),
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_exist_become_absolute() {
        let words = ["src", "src", "./src/main.rs", "--n", "no such file", "/", ""].map(OsString::from);
        let found = absolute(&words);
        let here = std::env::current_dir().unwrap();
        assert_eq!(found[0], "src", "a program is looked for along PATH");
        assert_eq!(found[1], here.join("src"));
        assert_eq!(found[2], here.join("src/main.rs"));
        assert_eq!(found[3..], words[3..]);
    }
}
