//! `twinpage log`: the calls of a region's objects, those that are there and those that come.

use crate::args::Log;
use crate::region::naming;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use twinpage::objects::{Operation, follow, operations};

/// How often it is looked for new calls.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) fn log(arguments: &Log) -> Result<ExitCode, String> {
    if arguments.follow {
        return follow_log(arguments);
    }
    let path = &arguments.region;
    let mut found = operations(path).map_err(naming(path))?;
    if let Some(until) = arguments.until {
        if found
            .operations
            .iter()
            .any(|operation| operation.unix_ms.is_none())
        {
            return Err(format!(
                "{}: calls in its log have no time: a build wrote them that kept none; leave out --until",
                path.display()
            ));
        }
        found
            .operations
            .retain(|operation| logged_at(operation) <= Some(until));
    }
    if arguments.json {
        println!("{:#}", json!(found));
        return Ok(ExitCode::SUCCESS);
    }
    if found.operations.is_empty() {
        let by_then = arguments.until.map_or("", |_| " until then");
        println!("no calls since the last checkpoint{by_then}");
    }
    for operation in &found.operations {
        println!("{}", line(operation));
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
