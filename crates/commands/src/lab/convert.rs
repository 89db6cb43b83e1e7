//! `twinpage lab convert`: a trace in another form.

use super::bar;
use crate::output::print_json;
use clap::Args;
use serde::Serialize;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use twinpage_lab::trace::{self, Form, Trace};
use twinpage_lab::whole_file;
use twinpage_os::name;

pub(super) const EXAMPLES: &str = "Example:
  twinpage lab convert lackey.txt.xz --out ls.trace
  twinpage lab convert ls.trace --to dramsim3 --out ls.trc

Read: native, champsim, dramsim3, ramulator, ramulator-core, lackey, csv, each also compressed by
gzip, xz or zstd. Written: native, dramsim3, ramulator; the last two get one request for each line of 64
bytes, a cycle for each instruction, and no persist, fence or commit.";

#[derive(Args, Debug)]
pub(crate) struct Convert {
    /// The trace to read
    trace: PathBuf,
    /// Its form, where its content does not tell
    #[arg(long, value_name = "FORM")]
    from: Option<Form>,
    /// The form to write
    #[arg(long, value_name = "FORM", default_value = "native")]
    to: Form,
    /// Records to write at most
    #[arg(long, value_name = "N", default_value_t = u64::MAX, hide_default_value = true)]
    limit: u64,
    /// Where to write it: a new file
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// One JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Done {
    from: &'static str,
    to: &'static str,
    records: u64,
    instructions: u64,
}

pub(super) fn convert(arguments: &Convert) -> Result<ExitCode, String> {
    if !arguments.to.is_written() {
        return Err(trace::ConvertError::Form(arguments.to).to_string());
    }
    let mut input = Trace::open(&arguments.trace, arguments.from).map_err(|why| why.to_string())?;
    let output = NewFile::make(&arguments.out)?;
    let done = watched(&mut input, |input| {
        trace::convert(
            input,
            BufWriter::new(output.file()),
            arguments.to,
            arguments.limit,
        )
    });
    let done = done.map_err(|why| output.told(&why))?;
    output.finish()?;
    if arguments.json {
        let done = Done {
            from: input.form().name(),
            to: arguments.to.name(),
            records: done.records,
            instructions: done.instructions,
        };
        print_json(&done)?;
    } else {
        let out = arguments.out.display();
        println!("{out}: {} records from {}", done.records, input.form());
    }
    Ok(ExitCode::SUCCESS)
}

/// A file that was not there before: it has its name when it is whole.
pub(super) struct NewFile<'a> {
    path: &'a Path,
    /// Where it is until then.
    part: PathBuf,
    file: File,
}

impl NewFile<'_> {
    pub(super) fn make(path: &Path) -> Result<NewFile<'_>, String> {
        if path.symlink_metadata().is_ok() {
            return Err(is_there(path));
        }
        let part = whole_file::part_of(path);
        let file = File::create(&part).map_err(|why| format!("{}: {why}", path.display()))?;
        Ok(NewFile { path, part, file })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Why it is not written.
    pub(super) fn told(&self, why: &dyn std::error::Error) -> String {
        format!("{}: {why}", self.path.display())
    }

    pub(super) fn finish(self) -> Result<(), String> {
        match name::give(&self.part, self.path) {
            Ok(true) => Ok(()),
            Ok(false) => Err(is_there(self.path)),
            Err(why) => Err(self.told(&why)),
        }
    }
}

impl Drop for NewFile<'_> {
    fn drop(&mut self) {
        // Half a file is none. A whole one has its name.
        let _ = std::fs::remove_file(&self.part);
    }
}

fn is_there(path: &Path) -> String {
    format!(
        "{} is there already; remove it or name another file",
        path.display()
    )
}

/// Shows how far reading has come while `deed` reads.
fn watched<T>(input: &mut Trace, deed: impl FnOnce(&mut Trace) -> T) -> T {
    let progress = input.progress();
    let bar = bar(progress.total(), "bytes");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                bar.set_position(progress.read());
                std::thread::park_timeout(Duration::from_millis(200));
            }
        });
        let result = deed(input);
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        watcher.thread().unpark();
        bar.finish_and_clear();
        result
    })
}
