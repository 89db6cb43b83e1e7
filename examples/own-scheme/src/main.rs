//! The lab with a scheme and a workload of one's own. `docs/own-scheme.md` walks through it.
//!
//! ```text
//! cargo run --release -- verify --scheme whole-pages
//! cargo run --release -- eval dpc --quick --artifact fig9a fig9b --with whole-pages --out results
//! cargo run --release -- run --scheme whole-pages dual-page --workload journal --smaller 64
//! ```

mod journal;
mod whole_pages;

use std::process::ExitCode;
use twinpage_lab::{schemes, workload::list};

fn main() -> ExitCode {
    schemes::add::<whole_pages::Family>();
    schemes::add::<whole_pages::Hasty>();
    list::add(
        "journal",
        "Records appended to a ring, and its head moved",
        journal::make,
    );
    twinpage_commands::lab::main()
}
