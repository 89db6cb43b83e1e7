//! What the kernel keeps for a program beside its memory and descriptors.
//!
//! * Each part is read again only after a call that may have changed it ([`Dirty`]), some from
//!   outside, the rest by calls injected in the program's main thread.
//! * Running timers are read at every stop, because they run.

use crate::clocks::{Clock, Clocks};
use crate::error::{Error, Result};
use crate::files;
use crate::limits::{self, Limit};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::PathBuf;
use twinpage_os::inject::{self, Call, ROOM};
use twinpage_os::proc_file;
use twinpage_os::remote::Process;
use twinpage_os::trace::Tid;

const SECOND_NS: u64 = 1_000_000_000;

/// Signals are numbered from 1 to 64.
pub const SIGNALS: usize = 64;
/// Those that are not real-time signals.
const STANDARD_SIGNALS: usize = 31;

/// Parts that may have changed since they were read.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, clippy::struct_excessive_bools)]
pub struct Dirty {
    pub actions: bool,
    pub brk: bool,
    pub umask: bool,
    pub directory: bool,
    pub interval_timers: bool,
    pub timers: bool,
    pub limits: bool,
    pub membarrier: bool,
    pub options: bool,
    pub settings: bool,
}

impl Dirty {
    /// Everything is to be read.
    pub const ALL: Dirty = Dirty {
        actions: true,
        brk: true,
        umask: true,
        directory: true,
        interval_timers: true,
        timers: true,
        limits: true,
        membarrier: true,
        options: true,
        settings: false, // inherited, until the program writes one
    };

    /// Whether anything is to be read.
    #[must_use]
    pub fn is_any(self) -> bool {
        let Dirty {
            actions,
            brk,
            umask,
            directory,
            interval_timers,
            timers,
            limits,
            membarrier,
            options,
            settings,
        } = self;
        actions
            || brk
            || umask
            || directory
            || interval_timers
            || timers
            || limits
            || membarrier
            || options
            || settings
    }

    /// Nothing is.
    pub const NOTHING: Dirty = Dirty {
        actions: false,
        brk: false,
        umask: false,
        directory: false,
        interval_timers: false,
        timers: false,
        limits: false,
        membarrier: false,
        options: false,
        settings: false,
    };
}

/// A signal action as the kernel keeps it: rt_sigaction(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Action {
    /// Address of the handler, or 0 (default) or 1 (ignored).
    pub handler: u64,
    /// `SA_*` bits.
    pub flags: u64,
    /// Where the handler returns to.
    pub restorer: u64,
    /// Signals blocked while it runs.
    pub mask: u64,
}

impl Action {
    /// The 32 bytes that rt_sigaction(2) reads and writes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (slot, word) in
            bytes
                .chunks_exact_mut(8)
                .zip([self.handler, self.flags, self.restorer, self.mask])
        {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8]) -> Action {
        let word =
            |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        Action {
            handler: word(0),
            flags: word(1),
            restorer: word(2),
            mask: word(3),
        }
    }
}

/// Where the kernel thinks the parts of the program are: prctl(2), `PR_SET_MM_MAP`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MemoryFields {
    /// start_code, end_code, start_data, end_data, start_brk, brk, start_stack, arg_start, arg_end,
    /// env_start, env_end: the order of `struct prctl_mm_map`.
    pub addresses: [u64; 11],
    /// The auxiliary vector.
    pub auxv: Vec<u8>,
    /// Path of the program's file.
    #[serde(with = "crate::path_bytes")]
    pub exe: PathBuf,
}

/// Index of the break in [`MemoryFields::addresses`].
pub const BRK: usize = 5;

/// A POSIX timer: timer_create(2).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PosixTimer {
    /// Its id.
    pub id: i32,
    /// The clock it runs on.
    pub clock: Clock,
    /// The signal it sends.
    pub signal: i32,
    /// The value that comes with the signal.
    pub value: u64,
    /// `SIGEV_*` bits.
    pub notify: i32,
    /// The thread it notifies, for `SIGEV_THREAD_ID`.
    pub thread: i32,
}

/// Two durations as itimerspec and itimerval keep them: seconds and fractions of the period, then
/// of the time left.
pub type Setting = [u64; 4];

/// Process-wide kernel state that seldom changes.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Kernel {
    /// Memory fields, with the break.
    pub memory: MemoryFields,
    /// Actions of signals 1 to 64.
    pub actions: Vec<Action>,
    /// The file mode mask.
    pub umask: u32,
    /// The working directory.
    #[serde(with = "crate::path_bytes")]
    pub directory: PathBuf,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// `MEMBARRIER_CMD_REGISTER_*` bits in force.
    pub membarrier: u64,
    /// POSIX timers that exist.
    pub timers: Vec<PosixTimer>,
    /// Options of the process.
    pub options: Options,
    /// Values that the program wrote to files of its own in `/proc`.
    pub settings: Settings,
    /// Set when the working directory was removed: then it has no path.
    pub directory_gone: Option<GoneDirectory>,
}

/// Options of a process that it may set: prctl(2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Options {
    /// `PR_SET_DUMPABLE`.
    pub dumpable: u64,
    /// `PR_SET_THP_DISABLE`.
    pub no_huge_pages: u64,
    /// `PR_SET_CHILD_SUBREAPER`.
    pub subreaper: u32,
}

impl Options {
    fn read(process: &Process, tid: Tid) -> Result<Options> {
        let ask = |source| Error::target("cannot ask for the options of the program", source);
        let mut calls = [
            Call::new(libc::SYS_prctl, &[libc::PR_GET_DUMPABLE as u64]),
            Call::new(libc::SYS_prctl, &[libc::PR_GET_THP_DISABLE as u64]),
            Call::new(libc::SYS_prctl, &[libc::PR_GET_CHILD_SUBREAPER as u64, ROOM]),
        ];
        inject::run(process, tid, &mut calls).map_err(ask)?;
        calls[2].result().map_err(ask)?;
        Ok(Options {
            dumpable: calls[0].result().map_err(ask)?,
            no_huge_pages: calls[1].result().map_err(ask)?,
            subreaper: process.read_u64(ROOM).map_err(ask)? as u32,
        })
    }

    /// The calls that set them in a new process.
    #[must_use]
    pub fn calls(self) -> Vec<Call> {
        let set = |option: i32, value: u64| Call::new(libc::SYS_prctl, &[option as u64, value]);
        let mut calls = vec![set(libc::PR_SET_CHILD_SUBREAPER, self.subreaper.into())];
        if self.no_huge_pages != 0 {
            // The lowest bit says that it is set, the others are its flags.
            let flags = self.no_huge_pages & !1;
            let arguments = [libc::PR_SET_THP_DISABLE as u64, 1, flags];
            calls.push(Call::new(libc::SYS_prctl, &arguments));
        }
        // 2 is the kernel's own doing, and cannot be asked for.
        if self.dumpable < 2 {
            calls.push(set(libc::PR_SET_DUMPABLE, self.dumpable));
        }
        calls
    }
}

/// Values of a process that are set by writing to `/proc`: proc_pid_oom_score_adj(5),
/// proc_pid_coredump_filter(5), proc_pid_autogroup(5). `None` for what the program never wrote, which it
/// inherits.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Settings {
    /// How likely the kernel ends it for want of memory, -1000 to 1000.
    pub oom_score_adj: Option<i32>,
    /// Which mappings a core dump has, one bit a kind.
    pub coredump_filter: Option<u32>,
    /// Niceness of its session, -20 to 19.
    pub autogroup: Option<i32>,
    /// The number of its session's scheduling group when it wrote to it first. A resume makes a new session, so that the
    /// kernel has another one then. In a context of its own ([`crate::context`], version 6).
    #[serde(skip)]
    pub group: Option<u64>,
}

impl Settings {
    /// The names of their files.
    pub const OOM_SCORE_ADJ: &str = "oom_score_adj";
    #[allow(missing_docs)]
    pub const COREDUMP_FILTER: &str = "coredump_filter";
    #[allow(missing_docs)]
    pub const AUTOGROUP: &str = "autogroup";

    /// Of a descendant: its session's scheduling group is not its own, and one that set it is not captured.
    pub(crate) fn leave_group(&mut self) {
        (self.autogroup, self.group) = (None, None);
    }

    fn read(pid: i32) -> Settings {
        let number = |name, radix| i64::from_str_radix(read(pid, name).ok()?.trim(), radix).ok();
        let group = Group::of(pid);
        Settings {
            oom_score_adj: number(Settings::OOM_SCORE_ADJ, 10).map(|number| number as i32),
            coredump_filter: number(Settings::COREDUMP_FILTER, 16).map(|number| number as u32),
            autogroup: group.map(|group| group.nice),
            group: group.map(|group| group.number),
        }
    }
}

/// The scheduling group of a process's session, proc_pid_autogroup(5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Group {
    pub(crate) number: u64,
    /// Its niceness.
    pub(crate) nice: i32,
}

impl Group {
    /// That of process `pid`, if the kernel has such groups.
    pub(crate) fn of(pid: i32) -> Option<Group> {
        let text = read(pid, Settings::AUTOGROUP).ok()?;
        let (number, nice) = text
            .trim_end()
            .strip_prefix("/autogroup-")?
            .split_once(" nice ")?;
        Some(Group {
            number: number.parse().ok()?,
            nice: nice.parse().ok()?,
        })
    }
}

/// As the kernel shows it.
impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "/autogroup-{} nice {}", self.number, self.nice)
    }
}

/// A directory that was removed while it was in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GoneDirectory {
    /// Its inode: what has the same one is the same directory.
    pub inode: u64,
    /// Its permissions.
    pub mode: u32,
    /// Its owner and group.
    pub owner: (u32, u32),
}

impl GoneDirectory {
    /// The directory that `stat` is of, if it was removed.
    #[must_use]
    pub fn of(stat: &rustix::fs::Stat) -> Option<GoneDirectory> {
        (stat.st_nlink == 0).then_some(GoneDirectory {
            inode: stat.st_ino,
            mode: stat.st_mode & 0o7777,
            owner: (stat.st_uid, stat.st_gid),
        })
    }
}

/// What runs by itself: read at every stop while it does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Running {
    /// The three interval timers: real, virtual, profiling.
    pub interval_timers: [Setting; 3],
    /// What each POSIX timer has left, in the order of [`Kernel::timers`].
    pub timers: Vec<Setting>,
    /// Periodic POSIX timers whose signal waits: the timer's id, and when, in nanoseconds of its clock, the
    /// expiration was that the signal is for. Later ones are its overruns, timer_getoverrun(2).
    pub waiting: Vec<(i32, u64)>,
}

impl Kernel {
    /// Asks for the actions of signals, of which no watched call tells, where one is or was another than the default: what
    /// a default action has beside, means nothing. For those of real-time signals, which few programs have, it asks where
    /// `all` are wanted or one of these is so. Whether any changed.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn refresh_actions(&mut self, process: &Process, tid: Tid, all: bool) -> Result<bool> {
        let Some((standard, real_time)) = self.actions.split_at_checked(STANDARD_SIGNALS) else {
            self.actions = read_actions(process, tid, SIGNALS)?;
            return Ok(true);
        };
        let mut asked = SIGNALS;
        if !all && real_time.iter().all(|action| action.handler == 0) {
            let handled = process.handled_signals();
            let handled = handled.map_err(|source| Error::target(ACTIONS_UNREAD, source))?;
            let had_default = standard.iter().all(|action| *action == Action::default());
            if handled == 0 && had_default {
                return Ok(false);
            }
            if handled >> STANDARD_SIGNALS == 0 {
                asked = STANDARD_SIGNALS;
            }
        }
        let now = read_actions(process, tid, asked)?;
        let known = asked.min(self.actions.len());
        if self.actions[..known] == *now {
            return Ok(false);
        }
        self.actions.splice(..known, now);
        Ok(true)
    }

    /// Reads what is stale, but for the actions. The thread `tid` is stopped, and the one the process is looked at by.
    ///
    /// # Errors
    /// When the program is gone, or something cannot be captured.
    pub fn refresh(&mut self, process: &Process, tid: Tid, stale: Dirty) -> Result<()> {
        let pid = process.thread();
        if stale.brk {
            let brk = inject::call(process, tid, libc::SYS_brk, &[0]);
            self.memory.addresses[BRK] =
                brk.map_err(|source| Error::target("cannot ask for the break", source))?;
        }
        if stale.umask {
            let status = read(pid, "status")?;
            self.umask = proc_file::field(&status, "Umask")
                .and_then(|text| u32::from_str_radix(text, 8).ok())
                .unwrap_or(0o022);
        }
        if stale.directory {
            self.directory = link(pid, "cwd", "the working directory")?;
            let path = format!("/proc/{pid}/cwd");
            let stat = rustix::fs::stat(&path);
            let stat = stat.map_err(|error| Error::file("cannot look at", path)(error.into()))?;
            self.directory_gone = GoneDirectory::of(&stat);
        }
        if stale.settings {
            let first = self.settings.group;
            self.settings = Settings::read(pid);
            self.settings.group = first.or(self.settings.group);
        }
        if stale.limits {
            self.limits = limits::read(process, tid)?;
        }
        if stale.membarrier {
            const GET_REGISTRATIONS: u64 = 1 << 9;
            // Kernels older than 6.3 cannot say; then nothing has been registered that a program
            // could not register again when its barrier fails.
            self.membarrier =
                inject::call(process, tid, libc::SYS_membarrier, &[GET_REGISTRATIONS]).unwrap_or(0);
        }
        if stale.timers {
            self.timers = read_timers(pid)?;
        }
        if stale.options {
            self.options = Options::read(process, tid)?;
        }
        Ok(())
    }

    /// Reads what an exec sets: where things are, and which program it is. The break is not told there, proc_pid_stat(5);
    /// [`Kernel::refresh`] asks for it.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn read_program(&mut self, pid: i32) -> Result<()> {
        let stat = read(pid, "stat")?;
        let unreadable = || Error::Internal(format!("/proc/{pid}/stat is not understood: {stat}"));
        let after_name = stat.rfind(')').ok_or_else(unreadable)?;
        let words: Vec<u64> = stat[after_name + 1..]
            .split_whitespace()
            .map(|word| word.parse().unwrap_or(0))
            .collect();
        // Fields are numbered from 1 in proc_pid_stat(5); the first word after the name is 3.
        let number = |field: usize| words.get(field - 3).copied().ok_or_else(unreadable);
        self.memory.addresses = [
            number(26)?,
            number(27)?,
            number(45)?,
            number(46)?,
            number(47)?,
            self.memory.addresses[BRK],
            number(28)?,
            number(48)?,
            number(49)?,
            number(50)?,
            number(51)?,
        ];
        let auxv = format!("/proc/{pid}/auxv");
        self.memory.auxv = fs::read(&auxv).map_err(Error::file("cannot read", auxv))?;
        self.memory.exe = link(pid, "exe", "the program's file")?;
        Ok(())
    }

    /// Reads the timers that run. Injects nothing when none is set.
    ///
    /// # Errors
    /// When the program is gone.
    pub fn running(
        &self,
        process: &Process,
        tid: Tid,
        interval_timers: bool,
        stopped: Clocks,
    ) -> Result<Running> {
        let mut running = Running::default();
        if interval_timers {
            let ask = |which| Call::new(libc::SYS_getitimer, &[which, ROOM + which * SETTING_BYTES]);
            let settings = settings(process, tid, &mut [0, 1, 2].map(ask))?;
            running.interval_timers.copy_from_slice(&settings);
        }
        for timers in self.timers.chunks(TIMERS_AT_ONCE) {
            running.timers.extend(left(timers, process, tid, stopped)?);
        }
        Ok(running)
    }
}

/// `struct itimerval` and `struct itimerspec`.
const SETTING_BYTES: u64 = 32;
/// As many are asked in one batch, behind the clock.
const TIMERS_AT_ONCE: usize = 250;

/// What each of some timers had left at the stop.
fn left(timers: &[PosixTimer], process: &Process, tid: Tid, stopped: Clocks) -> Result<Vec<Setting>> {
    let place = |index: usize| ROOM + index as u64 * SETTING_BYTES;
    let ask = |(index, timer): (usize, &PosixTimer)| {
        Call::new(libc::SYS_timer_gettime, &[timer.id as u64, place(index + 1)])
    };
    // The thread may wait for a processor before it looks: so it tells when it did.
    let clock = Call::new(libc::SYS_clock_gettime, &[libc::CLOCK_MONOTONIC as u64, place(0)]);
    let mut calls: Vec<Call> = std::iter::once(clock)
        .chain(timers.iter().enumerate().map(ask))
        .collect();
    let settings = settings(process, tid, &mut calls)?;
    let [seconds, nanoseconds, ..] = settings[0];
    let looked_at_ns = seconds.saturating_mul(SECOND_NS).saturating_add(nanoseconds);
    let since_ns = looked_at_ns.saturating_sub(stopped.monotonic_ns);
    let left = timers.iter().zip(&settings[1..]);
    Ok(left
        .map(|(timer, setting)| left_at_the_stop(timer, *setting, since_ns))
        .collect())
}

/// What calls answer, each at its place.
fn settings(process: &Process, tid: Tid, calls: &mut [Call]) -> Result<Vec<Setting>> {
    let asked = |source| Error::target("cannot read the program's timers", source);
    inject::run(process, tid, calls).map_err(asked)?;
    let mut bytes = vec![0; calls.len() * SETTING_BYTES as usize];
    process.read(ROOM, &mut bytes).map_err(asked)?;
    Ok(bytes.chunks_exact(SETTING_BYTES as usize).map(setting).collect())
}

/// What a timer had left at the stop, by what it has left `since_ns` later. Clocks of processor time stand.
fn left_at_the_stop(timer: &PosixTimer, setting: Setting, since_ns: u64) -> Setting {
    let [every, every_ns, seconds, nanoseconds] = setting;
    let left_ns = seconds * SECOND_NS + nanoseconds;
    if left_ns == 0 || !timer.clock.runs() {
        return setting;
    }
    let left_ns = left_ns + since_ns;
    [every, every_ns, left_ns / SECOND_NS, left_ns % SECOND_NS]
}

fn setting(bytes: &[u8]) -> Setting {
    std::array::from_fn(|index| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes")))
}

/// The actions for the signals from 1 to `most`.
fn read_actions(process: &Process, tid: Tid, most: usize) -> Result<Vec<Action>> {
    let mut calls: Vec<Call> = (1..=most as u64)
        .map(|signal| Call::new(libc::SYS_rt_sigaction, &[signal, 0, ROOM + (signal - 1) * 32, 8]))
        .collect();
    let asked = |source| Error::target(ACTIONS_UNREAD, source);
    inject::run(process, tid, &mut calls).map_err(asked)?;
    let mut bytes = vec![0; most * 32];
    process.read(ROOM, &mut bytes).map_err(asked)?;
    Ok(bytes.chunks_exact(32).map(Action::from_bytes).collect())
}

const ACTIONS_UNREAD: &str = "cannot read the program's signal actions";

const LINES_IN_TIMER: usize = 4;

/// proc_pid_timers(5).
fn read_timers(pid: i32) -> Result<Vec<PosixTimer>> {
    let text = read(pid, "timers")?;
    let lines: Vec<&str> = text.lines().collect();
    let timers = lines.chunks(LINES_IN_TIMER).map(|timer| {
        parse_timer(timer).ok_or_else(|| Error::Internal(format!("a timer is not understood: {timer:?}")))
    });
    timers.collect()
}

fn parse_timer(lines: &[&str]) -> Option<PosixTimer> {
    let mut lines = lines.iter();
    let id = lines.next()?.strip_prefix("ID: ")?.trim().parse().ok()?;
    let (signal, value) = lines.next()?.strip_prefix("signal: ")?.split_once('/')?;
    let (how, target) = lines.next()?.strip_prefix("notify: ")?.split_once('/')?;
    let clock: i32 = lines.next()?.strip_prefix("ClockID: ")?.trim().parse().ok()?;
    let base = match how {
        "none" => libc::SIGEV_NONE,
        _ => libc::SIGEV_SIGNAL, // user-space SIGEV_THREAD is a signal to a helper thread
    };
    let (kind, thread) = target.split_once('.')?;
    let to_thread = if kind == "tid" { libc::SIGEV_THREAD_ID } else { 0 };
    Some(PosixTimer {
        id,
        clock: clock.into(),
        signal: signal.parse().ok()?,
        value: u64::from_str_radix(value.trim(), 16).ok()?,
        notify: base | to_thread,
        thread: thread.trim().parse().ok()?,
    })
}

fn read(pid: i32, name: &str) -> Result<String> {
    let path = format!("/proc/{pid}/{name}");
    proc_file::text(&path).map_err(Error::file("cannot read", path))
}

/// What a link in the files of process `pid` leads to; `what` names that for people.
pub(crate) fn link(pid: i32, name: &str, what: &str) -> Result<PathBuf> {
    let path = format!("/proc/{pid}/{name}");
    match fs::read_link(&path) {
        Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
            let above = files::directory_above_link(path.as_ref());
            Err(Error::Unsupported(format!(
                "{what} lies deep below {}, with a name longer than 4095 bytes from the root, by which it cannot be opened again: work in a directory nearer to the root, or with shorter names",
                above.display()
            )))
        }
        link => link.map_err(Error::file("cannot read", path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_understood() {
        let lines = [
            "ID: 0",
            "signal: 14/00007ffc12345678",
            "notify: signal/tid.301",
            "ClockID: 1",
        ];
        let timer = parse_timer(&lines).unwrap();
        assert_eq!(
            (timer.id, timer.signal, timer.clock, timer.thread),
            (0, 14, Clock::Monotonic, 301)
        );
        assert_eq!(timer.notify, libc::SIGEV_THREAD_ID);
        assert_eq!(timer.value, 0x7ffc_1234_5678);
    }

    #[test]
    fn an_action_is_its_bytes() {
        let action = Action {
            handler: 1,
            flags: 2,
            restorer: 3,
            mask: 4,
        };
        assert_eq!(Action::from_bytes(&action.to_bytes()), action);
    }
}
