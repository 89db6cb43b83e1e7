//! `twinpage lab record`: the memory accesses of a real program.

use super::bar;
use super::convert::NewFile;
use crate::output::print_json;
use clap::Args;
use serde::Serialize;
use std::ffi::OsString;
use std::io::BufWriter;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use twinpage_lab::trace::{self, Recorded, Window};
use twinpage_os::messages;

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab record --out bzip2.trace --limit 100000000 -- bzip2 -k -c /usr/share/dict/words

Needs qemu's user mode (apt install qemu-user). The program runs some hundred times slower than alone, and
what is skipped some ten to a hundred times; processes that it starts are not recorded: of gcc, name the compiler
itself (gcc -print-prog-name=cc1).";

#[derive(Args, Debug)]
pub(crate) struct Record {
    /// Where the trace is written: a new file
    #[arg(long, value_name = "FILE", default_value = "program.trace")]
    out: PathBuf,
    /// Instructions recorded; the program is ended then
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// Instructions that go by before
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip: u64,
    /// One JSON document on standard output, where the program's own output then does not go
    #[arg(long)]
    json: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

#[derive(Serialize)]
struct Done {
    out: String,
    instructions: u64,
    records: u64,
    bytes: u64,
    status: Option<i32>,
}

pub(super) fn record(arguments: &Record) -> Result<ExitCode, String> {
    let window = Window {
        skip: arguments.skip,
        limit: arguments.limit,
    };
    let mut program = Command::new(&arguments.program[0]);
    program.args(&arguments.program[1..]);
    let stdout = if arguments.json {
        Stdio::null()
    } else {
        Stdio::inherit()
    };
    let output = NewFile::make(&arguments.out)?;
    let bar = bar(window.skip.saturating_add(window.limit), "instructions");
    let recorded = trace::record(
        &program,
        [Stdio::inherit(), stdout],
        &window,
        BufWriter::new(output.file()),
        |instructions| bar.set_position(instructions),
    );
    bar.finish_and_clear();
    let recorded = recorded.map_err(|why| output.told(&why))?;
    output.finish()?;
    tell(arguments, &recorded)
}

fn tell(arguments: &Record, recorded: &Recorded) -> Result<ExitCode, String> {
    let out = arguments.out.display().to_string();
    let bytes = arguments
        .out
        .metadata()
        .map_err(|why| format!("{out}: {why}"))?
        .len();
    if let Some(status) = recorded.status.filter(|status| !status.success()) {
        messages::tell(&format!(
            "the program failed ({status}); what it did until then is in {out}"
        ));
    }
    if arguments.json {
        let done = Done {
            out,
            instructions: recorded.instructions,
            records: recorded.records,
            bytes,
            status: recorded.status.and_then(|status| status.code()),
        };
        print_json(&done)?;
    } else {
        let Recorded {
            instructions,
            records,
            ..
        } = recorded;
        messages::tell(&format!(
            "{out}: {instructions} instructions, {records} accesses, {bytes} bytes"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
