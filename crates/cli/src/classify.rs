//! `twinpage classify`: which methods of an object can be deferred, and why the others cannot.

use crate::args::Classify;
use serde_json::json;
use std::process::ExitCode;
use twinpage_classify::{Method, Sources, Summary};

pub(crate) fn classify(arguments: &Classify) -> Result<ExitCode, String> {
    let mut sources = Sources::default();
    for path in &arguments.sources {
        sources.read(path).map_err(|error| error.to_string())?;
    }
    let methods = sources.classify();
    let summaries = Summary::of(&methods);
    if arguments.json {
        println!("{:#}", json!({ "objects": summaries, "methods": methods }));
    } else {
        print_all(&methods, &summaries);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_all(methods: &[Method], summaries: &[Summary]) {
    if methods.is_empty() {
        println!("no type has methods here");
    }
    for (index, summary) in summaries.iter().enumerate() {
        if index > 0 {
            println!();
        }
        println!("{summary}");
        for method in methods.iter().filter(|method| method.object == summary.object) {
            println!("  {}", method.to_string().replace('\n', "\n  "));
        }
    }
}
