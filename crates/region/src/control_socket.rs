//! Talking to a region that a program has open: what its checkpoints cost, and a backup of it.
//!
//! A process that has a region open listens on a socket of the name `twinpage-region-DEVICE-INODE` (unix(7),
//! abstract, so nothing stays behind), and answers one request a connection, one line of JSON each way:
//!
//! ```text
//! {"ask": "statistics"}                     {"info": {...}, "statistics": {...}}
//! {"ask": "backup", "to": "/absolute"}      {"epoch": 17}
//! {"ask": "copy", "to": "/absolute"}        {"epoch": 17}          of the last checkpoint, as it is
//!                                           {"error": "why not"}
//! ```
//!
//! Only the same user, or root, is answered.

use crate::error::{Error, Result};
use serde_json::{Value, json};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;
use twinpage_core::Epoch;

/// The longest request: a path and what is around it.
const LONGEST: u64 = 32 << 10;
/// How long a caller may take to ask.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a region's checkpoints cost since the program that has it open opened it: `info` and
/// `statistics`, as [`Region::info`](crate::Region::info) and
/// [`Region::statistics`](crate::Region::statistics) tell them, serialized.
///
/// # Errors
/// [`Error::Invalid`] when no program has the region open, or it does not answer.
pub fn statistics(region: impl AsRef<Path>) -> Result<Value> {
    ask(region.as_ref(), &json!({ "ask": "statistics" }))
}

/// Lets the program that has the region open copy it to the new file `to`: see
/// [`Region::backup`](crate::Region::backup).
///
/// # Errors
/// As [`statistics`]; what the program says.
pub fn backup(region: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Epoch> {
    let to = std::path::absolute(to).map_err(|e| Error::system("looking where I am", e))?;
    let to = to
        .to_str()
        .ok_or_else(|| Error::Invalid(format!("{} is not text: choose another name", to.display())))?;
    let answer = ask(region.as_ref(), &json!({ "ask": "backup", "to": to }))?;
    answer["epoch"]
        .as_u64()
        .ok_or_else(|| Error::Invalid(format!("an answer that makes no sense: {answer}")))
}

/// As [`backup`], of the last checkpoint there is: none is made for it.
pub(crate) fn copy(region: &Path, to: &Path) -> Result<Epoch> {
    let to = to
        .to_str()
        .ok_or_else(|| Error::Invalid(format!("{} is not text", to.display())))?;
    let answer = ask(region, &json!({ "ask": "copy", "to": to }))?;
    answer["epoch"]
        .as_u64()
        .ok_or_else(|| Error::Invalid(format!("an answer that makes no sense: {answer}")))
}

fn address(file: &Path) -> io::Result<SocketAddr> {
    let found = std::fs::metadata(file)?;
    let name = format!("twinpage-region-{:x}-{:x}", found.dev(), found.ino());
    SocketAddr::from_abstract_name(name.as_bytes())
}

fn ask(region: &Path, request: &Value) -> Result<Value> {
    let path = region.display();
    let address = address(region).map_err(|e| Error::system(format!("looking at {path}"), e))?;
    let stream = UnixStream::connect_addr(&address)
        .map_err(|_| Error::Invalid(format!("no program that can be asked has the region {path} open")))?;
    let failed = |e: io::Error| Error::system(format!("asking who has {path} open"), e);
    let mut line = request.to_string();
    line.push('\n');
    (&stream).write_all(line.as_bytes()).map_err(failed)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).map_err(|e| failed(e.into()))?;
    match answer["error"].as_str() {
        Some(why) => Err(Error::Invalid(why.to_owned())),
        None => Ok(answer),
    }
}

/// What is asked of a region.
pub(crate) trait Answers: Send + Sync {
    /// What its store says of itself, and what its checkpoints cost.
    fn told(&self) -> Value;
    /// Makes a checkpoint.
    fn checkpoint(&self) -> Result<Epoch>;
    /// Copies the last checkpoint to a new file.
    fn copy_to(&self, path: &Path) -> Result<Epoch>;
}

/// Answers, until dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Listening {
    /// Listens for questions about the region in `file`. Where sockets are forbidden there are no questions,
    /// and nothing else is different.
    pub(crate) fn start(region: Arc<dyn Answers>, file: &Path) -> io::Result<Listening> {
        let address = address(file)?;
        let listener = UnixListener::bind_addr(&address)?;
        let ended = Arc::new(AtomicBool::new(false));
        let watched = ended.clone();
        let thread = Builder::new().name("twinpage-live".into()).spawn(move || {
            for stream in listener.incoming() {
                if watched.load(Ordering::Acquire) {
                    break;
                }
                if let Ok(stream) = stream {
                    // A client that does not read the answer misses it.
                    let _ = serve(&*region, &stream);
                }
            }
        })?;
        Ok(Listening {
            address,
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Wakes the thread.
        let woken = UnixStream::connect_addr(&self.address);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            let _ = thread.join();
        }
    }
}

fn serve(region: &dyn Answers, stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let caller = rustix::net::sockopt::socket_peercred(stream)?;
    if caller.uid != rustix::process::geteuid() && !caller.uid.is_root() {
        return Ok(());
    }
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST)).read_line(&mut line)?;
    let answer = serde_json::from_str(&line)
        .map_err(|e| Error::Invalid(format!("a request that makes no sense: {e}")))
        .and_then(|request: Value| answer(region, &request));
    let mut answer = answer
        .unwrap_or_else(|error| json!({ "error": error.to_string() }))
        .to_string();
    answer.push('\n');
    (&*stream).write_all(answer.as_bytes())
}

fn answer(region: &dyn Answers, request: &Value) -> Result<Value> {
    match (request["ask"].as_str(), request["to"].as_str()) {
        (Some("statistics"), _) => Ok(region.told()),
        (Some("backup"), Some(to)) if Path::new(to).as_os_str().as_bytes().starts_with(b"/") => {
            region.checkpoint()?;
            Ok(json!({ "epoch": region.copy_to(Path::new(to))? }))
        }
        (Some("copy"), Some(to)) if to.starts_with('/') => {
            Ok(json!({ "epoch": region.copy_to(Path::new(to))? }))
        }
        _ => Err(Error::Invalid(format!(
            "a request that makes no sense: {request}"
        ))),
    }
}
