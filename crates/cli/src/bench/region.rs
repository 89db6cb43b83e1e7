//! `twinpage bench region`, `sections`, `versions` and `objects`: starts the program that is installed beside this one and
//! knows the stores compared with. It is a program of its own so that this one has no part of them.

use crate::args::RegionArguments;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

const PROGRAM: &str = "twinpage-bench";

pub(crate) fn bench(what: &str, arguments: &RegionArguments) -> Result<ExitCode, String> {
    let own =
        std::env::current_exe().map_err(|error| format!("cannot find the twinpage program: {error}"))?;
    let program = own.with_file_name(PROGRAM);
    if !program.exists() {
        return Err(format!(
            "{} is not there: make install, in the source, installs both programs",
            program.display()
        ));
    }
    if let (Some(its), Some(ours)) = (built(&program), built(&own))
        && its < ours
    {
        eprintln!(
            "note: {} is older than this program and measures what it was built from: make install, in the source, makes both",
            program.display()
        );
    }
    let error = Command::new(&program).arg(what).args(&arguments.options).exec();
    Err(format!("cannot start {}: {error}", program.display()))
}

/// When a program was built, as far as its file tells.
fn built(program: &Path) -> Option<SystemTime> {
    program.metadata().ok()?.modified().ok()
}
