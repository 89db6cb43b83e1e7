//! Talking to a region that a program has open: what its checkpoints cost, and a backup of it.
//!
//! A process that has a region open listens on a socket of the name `twinpage-region-DEVICE-INODE` (unix(7),
//! abstract, so nothing stays behind), and answers one request a connection, one line of JSON each way:
//!
//! ```text
//! {"ask": "statistics"}                     {"info": {...}, "statistics": {...}}
//! {"ask": "backup", "to": "/absolute"}      {"epoch": 17}
//! {"ask": "copy", "to": "/absolute"}        {"epoch": 17}          of the last checkpoint, as it is
//! {"ask": "holders"}                        {"holders": [{"process": 17, "object": "scores"}]}
//! {"ask": "share", "object": "scores", "functions": ["add(by: u64)"]}
//!                                           {"id": 1}              calls follow (`objects/wire.rs`)
//!                                           {"error": "why not"}
//! ```
//!
//! Only the same user, or root, is answered; and only they are believed, since any process can take the name first. Of root,
//! the owner of the file is believed as well. Processes that share an object have a thread each here, until they or the
//! region close the connection.

use crate::error::{Error, Result};
use crate::lock::lock;
use serde_json::{Value, json};
use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use twinpage_core::Epoch;

/// The longest request: a path and what is around it.
const LONGEST: u64 = 32 << 10;
/// How long a caller may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long an answer may take that needs no copy. A backup may be made before it.
const ANSWER: Duration = Duration::from_secs(60);

/// What a region's checkpoints cost since the program that has it open opened it: `info` and
/// `statistics`, as [`Region::info`](crate::Region::info) and
/// [`Region::statistics`](crate::Region::statistics) tell them, serialized.
///
/// # Errors
/// [`Error::Invalid`] when no program has the region open, or one answers that is another user's; [`Error::System`] when it
/// does not answer for a minute.
pub fn statistics(region: impl AsRef<Path>) -> Result<Value> {
    ask(region.as_ref(), &json!({ "ask": "statistics" }))
}

/// Lets the program that has the region open copy it to the new file `to`: see
/// [`Region::backup`](crate::Region::backup).
///
/// # Errors
/// As [`statistics`], but that there is no time limit; what the program says; [`Error::Invalid`] when there is no file
/// afterwards.
pub fn backup(region: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<Epoch> {
    let to = std::path::absolute(to).map_err(|e| Error::system("looking where I am", e))?;
    let to = to
        .to_str()
        .ok_or_else(|| Error::Invalid(format!("{} is not text: choose another name", to.display())))?;
    copied(region.as_ref(), "backup", to)
}

/// As [`backup`], of the last checkpoint there is: none is made for it.
pub(crate) fn copy(region: &Path, to: &Path) -> Result<Epoch> {
    let to = to
        .to_str()
        .ok_or_else(|| Error::Invalid(format!("{} is not text", to.display())))?;
    copied(region, "copy", to)
}

/// Asks for a copy, and looks whether it is there.
fn copied(region: &Path, ask: &str, to: &str) -> Result<Epoch> {
    let (answer, _) = exchange(region, &json!({ "ask": ask, "to": to }), None)?;
    let epoch = answer["epoch"].as_u64();
    let epoch =
        epoch.ok_or_else(|| Error::Invalid(format!("an answer without the number \"epoch\": {answer}")))?;
    match std::fs::metadata(to).is_ok_and(|found| found.is_file()) {
        true => Ok(epoch),
        false => Err(Error::Invalid(format!(
            "the program that has the region {} open says that it copied it to {to}, where no file is: it may see other \
             folders (another root, another container); choose one that both see",
            region.display()
        ))),
    }
}

/// The processes that share objects of the region, each with the object's name.
pub(crate) fn holders(region: &Path) -> Result<Vec<(i64, String)>> {
    let answer = ask(region, &json!({ "ask": "holders" }))?;
    let all = answer["holders"].as_array().into_iter().flatten();
    let known = all.filter_map(|one| Some((one["process"].as_i64()?, one["object"].as_str()?.to_owned())));
    Ok(known.collect())
}

fn name_of(file: &Metadata) -> String {
    format!("twinpage-region-{:x}-{:x}", file.dev(), file.ino())
}

/// A connection to the socket of that name; no longer waited for than a caller may.
fn reach(name: &str) -> io::Result<UnixStream> {
    use rustix::net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
    };
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket.into())
}

/// Whether what a process of this user says of a file of that owner is believed.
fn is_believed(user: u32, owner: u32) -> bool {
    let own = rustix::process::geteuid();
    user == own.as_raw() || user == 0 || (own.is_root() && user == owner)
}

/// A connection on which all reads and writes together end at an instant, if there is one.
struct Timed<'a> {
    stream: &'a UnixStream,
    until: Option<Instant>,
}

impl Timed<'_> {
    fn left(&self) -> io::Result<Option<Duration>> {
        let left = self
            .until
            .map(|until| until.saturating_duration_since(Instant::now()));
        match left {
            Some(Duration::ZERO) => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.left()?)?;
        self.stream.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.left()?)?;
        self.stream.write(from)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ask(region: &Path, request: &Value) -> Result<Value> {
    let (answer, _) = connect(region, request)?;
    Ok(answer)
}

/// Asks, and keeps the connection.
pub(crate) fn connect(region: &Path, request: &Value) -> Result<(Value, UnixStream)> {
    exchange(region, request, Some(ANSWER))
}

fn exchange(region: &Path, request: &Value, patience: Option<Duration>) -> Result<(Value, UnixStream)> {
    let path = region.display();
    let found = std::fs::metadata(region).map_err(|e| Error::system(format!("looking at {path}"), e))?;
    let stream = reach(&name_of(&found))
        .map_err(|_| Error::Invalid(format!("no program that can be asked has the region {path} open")))?;
    let failed = |e: io::Error| Error::system(format!("asking who has {path} open"), e);
    let who = rustix::net::sockopt::socket_peercred(&stream).map_err(|e| failed(e.into()))?;
    if !is_believed(who.uid.as_raw(), found.uid()) {
        return Err(Error::Invalid(format!(
            "process {} of the user {} answers for the region {path}, and is not believed: it may have taken the name of \
             the region's socket; end it",
            who.pid.as_raw_nonzero(),
            who.uid.as_raw()
        )));
    }
    let mut line = request.to_string();
    line.push('\n');
    (&stream).write_all(line.as_bytes()).map_err(failed)?;
    let until = patience.map(|patience| Instant::now() + patience);
    let mut answer = String::new();
    let timed = Timed {
        stream: &stream,
        until,
    };
    BufReader::new(timed).read_line(&mut answer).map_err(failed)?;
    let no_limit = |stream: &UnixStream| {
        stream.set_read_timeout(None)?;
        stream.set_write_timeout(None)
    };
    no_limit(&stream).map_err(failed)?;
    let answer: Value = serde_json::from_str(&answer).map_err(|e| failed(e.into()))?;
    match answer["error"].as_str() {
        Some(why) => Err(Error::Invalid(why.to_owned())),
        None => Ok((answer, stream)),
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

/// What is built on a region and shared through its socket: its objects.
pub(crate) trait Sharing: Send + Sync {
    /// Which process shares which object.
    fn holders(&self) -> Value;
    /// Answers the request of a process to share an object, then makes its calls until the connection ends.
    fn share(&self, request: &Value, process: i32, stream: &UnixStream) -> io::Result<()>;
}

/// Answers, until dropped.
#[derive(Debug)]
pub(crate) struct Listening {
    address: SocketAddr,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
}

/// What is shared, and with whom.
#[derive(Default)]
struct Shared {
    /// The connection on which a request is read or answered.
    asking: Mutex<Option<UnixStream>>,
    sharing: Mutex<Option<Weak<dyn Sharing>>>,
    connections: Mutex<Vec<Connection>>,
}

#[derive(Debug)]
struct Connection {
    stream: UnixStream,
    thread: JoinHandle<()>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "shared by {:?}", lock(&self.connections))
    }
}

impl Shared {
    fn sharing(&self) -> Option<Arc<dyn Sharing>> {
        lock(&self.sharing).as_ref()?.upgrade()
    }

    /// Serves a process that wants to share an object, in a thread of its own.
    fn begin(&self, request: Value, process: i32, stream: UnixStream) -> Result<()> {
        let why = "the process that has the region open has no objects open";
        let sharing = self.sharing().ok_or_else(|| Error::Invalid(why.into()))?;
        let failed = |e| Error::system("serving a process that shares an object", e);
        stream.set_read_timeout(None).map_err(failed)?; // it calls when it likes
        let kept = stream.try_clone().map_err(failed)?;
        let thread = Builder::new().name("twinpage-share".into()).spawn(move || {
            // A process that ends, or sends what makes no sense, is let go.
            let _ = sharing.share(&request, process, &stream);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let thread = thread.map_err(failed)?;
        let mut connections = lock(&self.connections);
        connections.retain(|connection| !connection.thread.is_finished());
        connections.push(Connection { stream: kept, thread });
        Ok(())
    }

    /// Ends all connections, once the calls that run have.
    fn end(&self) {
        *lock(&self.sharing) = None;
        for Connection { stream, thread } in lock(&self.connections).drain(..) {
            let _ = stream.shutdown(Shutdown::Read);
            let _ = thread.join();
        }
    }
}

impl Listening {
    /// Listens for questions about the region in `file`. Where sockets are forbidden there are no questions,
    /// and nothing else is different.
    pub(crate) fn start(region: Arc<dyn Answers>, file: &Path) -> io::Result<Listening> {
        let address = SocketAddr::from_abstract_name(name_of(&std::fs::metadata(file)?))?;
        let listener = UnixListener::bind_addr(&address)?;
        let ended = Arc::new(AtomicBool::new(false));
        let watched = ended.clone();
        let shared = Arc::new(Shared::default());
        let all_shared = shared.clone();
        let thread = Builder::new().name("twinpage-live".into()).spawn(move || {
            for stream in listener.incoming() {
                // Before the look at the end: who ends it looks at this afterwards.
                *lock(&all_shared.asking) = stream.as_ref().ok().and_then(|stream| stream.try_clone().ok());
                if watched.load(Ordering::Acquire) {
                    break;
                }
                if let Ok(stream) = stream {
                    // A client that does not read the answer misses it.
                    let _ = serve(&*region, &all_shared, stream);
                }
                *lock(&all_shared.asking) = None;
            }
        })?;
        Ok(Listening {
            address,
            ended,
            thread: Some(thread),
            shared,
        })
    }

    /// Lets other processes share these objects.
    pub(crate) fn share(&self, sharing: &Arc<dyn Sharing>) {
        *lock(&self.shared.sharing) = Some(Arc::downgrade(sharing));
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        if let Some(asking) = &*lock(&self.shared.asking) {
            let _ = asking.shutdown(Shutdown::Read); // a slow caller is not waited for
        }
        // Wakes the thread.
        let woken = UnixStream::connect_addr(&self.address);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            let _ = thread.join();
        }
        self.shared.end();
    }
}

fn serve(region: &dyn Answers, shared: &Shared, stream: UnixStream) -> io::Result<()> {
    let until = Some(Instant::now() + PATIENCE);
    let caller = rustix::net::sockopt::socket_peercred(&stream)?;
    if caller.uid != rustix::process::geteuid() && !caller.uid.is_root() {
        return Ok(());
    }
    let mut line = String::new();
    let stream_until = Timed {
        stream: &stream,
        until,
    };
    BufReader::new(stream_until.take(LONGEST)).read_line(&mut line)?;
    let request = serde_json::from_str(&line)
        .map_err(|e| Error::Invalid(format!("a request that is no JSON of one line: {e}")));
    let answer = match request {
        Ok(request) if is_to_share(&request) => {
            let answers = stream.try_clone()?;
            match shared.begin(request, caller.pid.as_raw_nonzero().get(), stream) {
                Ok(()) => return Ok(()),
                Err(error) => return tell(&answers, Err(error)),
            }
        }
        Ok(request) => answer(region, shared, &request),
        Err(error) => Err(error),
    };
    tell(&stream, answer)
}

fn is_to_share(request: &Value) -> bool {
    request["ask"] == "share"
}

fn tell(stream: &UnixStream, answer: Result<Value>) -> io::Result<()> {
    let mut answer = answer
        .unwrap_or_else(|error| json!({ "error": error.to_string() }))
        .to_string();
    answer.push('\n');
    let until = Some(Instant::now() + PATIENCE);
    Timed { stream, until }.write_all(answer.as_bytes())
}

fn answer(region: &dyn Answers, shared: &Shared, request: &Value) -> Result<Value> {
    match (request["ask"].as_str(), request["to"].as_str()) {
        (Some("statistics"), _) => Ok(region.told()),
        (Some("holders"), _) => {
            let holders = shared.sharing().map(|sharing| sharing.holders());
            Ok(json!({ "holders": holders }))
        }
        (Some("backup"), Some(to)) if Path::new(to).as_os_str().as_bytes().starts_with(b"/") => {
            region.checkpoint()?;
            Ok(json!({ "epoch": region.copy_to(Path::new(to))? }))
        }
        (Some("copy"), Some(to)) if to.starts_with('/') => {
            Ok(json!({ "epoch": region.copy_to(Path::new(to))? }))
        }
        _ => Err(Error::Invalid(format!(
            "{request}: expected \"ask\" to be statistics, holders, share, or backup or copy with an absolute path as \"to\""
        ))),
    }
}
