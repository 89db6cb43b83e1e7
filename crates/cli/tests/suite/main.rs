//! Tests of the built `twinpage` command on real programs, as a user would run it.
//!
//! - `plain`: the test programs alone print the same thing every time, so that they can be an oracle.
//!
//! `TWINPAGE_LONG=1` runs longer campaigns. A program whose runtime is missing is skipped and says so, except where `CI=true`.

mod plain;
mod support;
