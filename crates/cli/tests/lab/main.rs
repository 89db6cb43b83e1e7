//! `twinpage lab run`, `lab memory` and `lab sections`, as a user calls them.

mod machine;
mod sections;

use serde_json::Value;
use std::process::{Command, Output};

pub(crate) fn lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_twinpage"))
        .arg("lab")
        .args(arguments)
        .output()
        .expect("the command starts")
}

pub(crate) fn json(output: &Output) -> Value {
    let said = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"))
}
