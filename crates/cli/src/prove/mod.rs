//! `twinpage prove`: would my program survive?
//!
//! ```text
//! undisturbed   the program alone ------------------------------> outputs, files, exit
//! run 1         twinpage run ------------------------------------> the same?     if not, no kill is the cause
//! run 2         twinpage run --x  resume --x  resume ------------> the same?
//! run 3         twinpage run ----x  resume ----------------------> the same?     ... until N kills (x)
//! ```
//!
//! * Alone, the program has what it has when a user starts it: signal mask, signal actions, no tracer.
//! * Each run is in a fresh directory under one and the same name, so that a program which prints
//!   where it is prints the same.
//! * The instants of the kills are drawn from a printed seed, as shares of what was measured.
//! * Nothing of the user's is copied or changed by `prove` itself.

mod campaign;
mod compare;
mod progress;
mod report;
mod scratch;
mod waiting;

use crate::args::Prove;
use crate::show;
use campaign::Campaign;
use progress::Progress;
use report::{Cause, Report};
use scratch::{Scratch, describe};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use twinpage_os::messages;
use twinpage_process::launch;

/// The exit code when a run with kills came to another end.
const DIFFERENT: u8 = 1;

pub(crate) fn prove(arguments: &Prove) -> Result<ExitCode, String> {
    let said = |error: twinpage_process::Error| error.to_string();
    let words = absolute(&launch::resolve(&arguments.program).map_err(said)?);
    launch::Command::find(&words).map_err(said)?;
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut scratch = Scratch::new(arguments.scratch.as_deref(), words)?;
    messages::tell(&format!(
        "seed {seed}; --seed {seed} draws the same instants again"
    ));
    let report = measure(arguments, seed, &scratch)?;
    if arguments.keep {
        messages::tell(&format!("what the runs left is in {}", scratch.keep().display()));
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
fn measure(arguments: &Prove, seed: u64, scratch: &Scratch) -> Result<Report, String> {
    let progress = Progress::new(arguments.kills);
    progress.now("alone".into());
    let undisturbed = scratch.run_undisturbed(arguments.timeout)?;
    let mut report = Report::new(seed, &undisturbed);
    progress.say(&format!(
        "alone: {}, {}",
        show::time(undisturbed.took),
        describe(undisturbed.ended)
    ));
    let mut campaign = Campaign::new(arguments, seed, scratch, &progress);
    let whole = campaign.run_whole(arguments.kills)?;
    report.difference = scratch.judge(undisturbed.ended, whole)?;
    if report.difference.is_some() {
        let refused = !campaign.tally.refused.is_empty();
        report.cause = Some(if refused { Cause::Refusal } else { Cause::Twinpage });
    } else {
        progress.say(&format!(
            "under twinpage, without kills: the same, {}",
            show::time(campaign.whole_took())
        ));
    }
    while campaign.tally.kills < arguments.kills && report.difference.is_none() {
        let ended = campaign.run()?;
        report.difference = scratch.judge(undisturbed.ended, ended)?;
        report.cause = report.difference.as_ref().map(|_| Cause::Kill);
    }
    if report.difference.is_some() {
        progress.now("alone, again".into());
        if !scratch.repeats(&undisturbed, arguments.timeout)? {
            report.cause = Some(Cause::Program);
        }
    }
    report.tally = campaign.tally;
    report.sizes = scratch.sizes()?;
    Ok(report)
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
