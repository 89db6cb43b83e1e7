//! A program on a terminal that a process of ours holds, so that a person's terminals can come and go.
//!
//! ```text
//! twinpage run --detach ---- its end of a pseudo-terminal
//!                                      |
//!                     the keeper: the terminal's other end, and a socket DIR/attach
//!                                      |
//! twinpage attach, any number of: a person's terminal, in raw mode
//! ```
//!
//! * The keeper knows nothing of checkpoints: what reaches it has gone outside already.
//! * When the keeper ends, its terminal hangs up, and the program is suspended as with any other terminal.
//! * An attached terminal that is slow or gone holds up neither the program nor the others.

mod client;
mod frames;
mod history;
mod keeper;

pub use client::{Left, attach};
pub use keeper::{Begun, Side, detach};

use std::path::PathBuf;
use twinpage_os::name;

/// The keeper's socket in a state directory.
const SOCKET: &str = "attach";

/// A name of the socket that fits into an address, unix(7), however long that of the directory is.
fn socket_in(directory: &std::fs::File) -> PathBuf {
    name::of_open(directory).join(SOCKET)
}
