//! `twinpage log`: the calls of a region's objects, those that are there and those that come.

use crate::args::Log;
use crate::region::naming;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twinpage::objects::{Operation, Operations, Until, follow, go_back, kept, operations, withdraw};

/// How often it is looked for new calls.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn log(arguments: &Log) -> Result<ExitCode, String> {
    if arguments.follow {
        return follow_log(arguments);
    }
    let path = &arguments.region;
    if let Some(position) = arguments.withdraw {
        return withdraw_from(arguments, position);
    }
    if let (Some(folder), Some(until), Some(copy)) = (&arguments.kept, arguments.until, &arguments.into) {
        return copy_of_the_past(arguments, (folder, until), copy);
    }
    let mut found = match &arguments.kept {
        Some(folder) => kept(path, folder).map_err(naming(path))?,
        None => operations(path).map_err(naming(path))?,
    };
    if let Some(until) = arguments.until {
        retain(&mut found, until, path)?;
    }
    if arguments.json {
        println!("{:#}", json!(found));
        return Ok(ExitCode::SUCCESS);
    }
    if found.operations.is_empty() {
        let by_then = arguments.until.map_or("", |_| " until then");
        let which = match arguments.kept {
            Some(_) => "are kept",
            None => "since the last checkpoint",
        };
        println!("no calls {which}{by_then}");
    }
    for operation in &found.operations {
        println!("{}", line(operation));
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves out the calls after some time, or some call.
fn retain(found: &mut Operations, until: Until, path: &Path) -> Result<(), String> {
    let operations = &mut found.operations;
    match until {
        Until::Call(position) => operations.retain(|operation| operation.position <= position),
        Until::Time(_) if operations.iter().any(|operation| operation.unix_ms.is_none()) => {
            return Err(format!(
                "{}: calls in its log have no time: a build wrote them that kept none; leave out --until",
                path.display()
            ));
        }
        Until::Time(time) => operations.retain(|operation| logged_at(operation) <= Some(time)),
    }
    Ok(())
}

fn copy_of_the_past(
    arguments: &Log,
    (folder, until): (&Path, Until),
    copy: &Path,
) -> Result<ExitCode, String> {
    let path = &arguments.region;
    let past = go_back(path, folder, until, copy).map_err(naming(path))?;
    match arguments.json {
        true => println!("{:#}", json!(past)),
        false => {
            let (calls, copy) = (past.calls, copy.display());
            println!("{copy}: a base, and {calls} calls that run when its objects are opened");
            past.last.iter().for_each(|last| println!("{}", line(last)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn withdraw_from(arguments: &Log, position: u64) -> Result<ExitCode, String> {
    let path = &arguments.region;
    let withdrawn = withdraw(path, position).map_err(naming(path))?;
    match arguments.json {
        true => println!("{:#}", json!(withdrawn)),
        false => {
            let (call, left) = (line(&withdrawn.operation), withdrawn.left);
            println!(
                "taken out, never to be run:\n{call}\n{left} of the calls since the last checkpoint are left"
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn follow_log(arguments: &Log) -> Result<ExitCode, String> {
    let path = &arguments.region;
    let mut following = follow(path).map_err(naming(path))?;
    let mut out = std::io::stdout().lock();
    loop {
        let news = following.news().map_err(naming(path))?;
        if news.missed {
            eprintln!(
                "twinpage: {}: calls were written over before they were seen; what follows begins after them",
                path.display()
            );
        }
        for operation in &news.operations {
            let shown = match arguments.json {
                true => json!(operation).to_string(),
                false => line(operation),
            };
            if writeln!(out, "{shown}").is_err() {
                return Ok(ExitCode::SUCCESS); // its reader has gone
            }
        }
        if out.flush().is_err() || news.closed {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(PAUSE);
    }
}

fn logged_at(operation: &Operation) -> Option<SystemTime> {
    operation.unix_ms.map(|ms| UNIX_EPOCH + Duration::from_millis(ms))
}

fn line(operation: &Operation) -> String {
    let at = logged_at(operation).map_or("-".into(), |at| humantime::format_rfc3339_millis(at).to_string());
    let number = operation.thread.to_string();
    let thread = operation.thread_name.as_ref().unwrap_or(&number);
    format!(
        "{:>12}  {at:<24}  thread {thread:<3}  {operation}",
        operation.position
    )
}
