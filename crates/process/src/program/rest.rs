//! Whether a process is unchanged since its last checkpoint, so that the next one can be left out.
//!
//! * A checkpoint moves the threads itself: a thread that waits in a call begins that call again. So the first
//!   look after one asks whether each thread sleeps in the call it was let go with, and whether a page was
//!   written since.
//! * The kernel writes to a thread's memory when it goes on: which processor it is on, rseq(2). Pages that were
//!   written at a first look are kept at the next checkpoint, and compared at the look after it.
//! * From then on the kernel's count of the times that a thread was given a processor tells whether it ran.
//! * The counts are read before the look and after it, so nothing ran unseen in between.
//! * Whatever a thread stops for has the answer be no, and so does doubt: a file that cannot be read, a kernel
//!   that does not count.

use super::{Program, State};
use crate::error::Result;
use crate::memory::Memory;
use crate::threads::ThreadRegisters;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use twinpage_os::proc_file;
use twinpage_os::remote::Process;
use twinpage_os::trace::{Registers, SYSCALL_BYTES, Tid, WatchedCall, arguments};
use twinpage_os::tracker::PAGE;

/// More written pages than this are no doubt.
const MOST_DOUBTFUL: u64 = 256;

/// What is known since the last checkpoint.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// The registers each thread was let go with; none when something happened since.
    let_go: Option<HashMap<Tid, Registers>>,
    /// How often each thread had been given a processor when it was seen asleep.
    asleep: Option<Vec<(Counter, u64)>>,
    /// The counts of all threads when it was last asked whether the program waits.
    pulse: Vec<Option<u64>>,
    /// Pages to be kept at the next checkpoint.
    doubtful: Vec<u64>,
    /// Where the kernel tells threads which processor they are on: rseq(2).
    areas: Vec<Range<u64>>,
    /// What such pages held at the last one.
    kept: BTreeMap<u64, Vec<u8>>,
}

impl Rest {
    /// A checkpoint begins. Pages that were kept are kept again: processes of a tree rest all at once, or none does.
    pub(super) fn begin(&mut self) {
        self.doubtful.extend(std::mem::take(&mut self.kept).into_keys());
        self.disturb();
        self.let_go = Some(HashMap::new());
        self.areas.clear();
    }

    /// A thread is about to be let go with these registers.
    pub(super) fn let_go(&mut self, thread: &ThreadRegisters) {
        if let Some(threads) = &mut self.let_go {
            threads.insert(thread.tid, thread.registers);
            let start = thread.rseq.address;
            self.areas.push(start..start + u64::from(thread.rseq.size));
        }
    }

    /// Something happened in the program, or its checkpoint failed.
    pub(super) fn disturb(&mut self) {
        self.let_go = None;
        self.asleep = None;
        self.kept.clear();
    }

    /// A thread is about to make a call: perhaps the one it was let go with.
    pub(super) fn calls(&mut self, tid: Tid, call: &WatchedCall) {
        let call = Sleep {
            number: call.number as i64,
            arguments: call.arguments,
            stack: call.stack,
            after: call.after,
        };
        let known = self.let_go.as_ref().and_then(|threads| threads.get(&tid));
        if !known.is_some_and(|known| call.is_of(known)) {
            self.disturb();
        }
    }
}

/// A process, to be looked at while it may run.
pub(super) struct Subject<'a> {
    pub(super) process: &'a Process,
    pub(super) memory: &'a mut Memory,
    pub(super) threads: Vec<(Tid, State)>,
}

impl Rest {
    /// Whether the process is what its last checkpoint holds: no thread ran since.
    ///
    /// # Errors
    /// When its memory cannot be looked at.
    pub(super) fn holds(&mut self, subject: &mut Subject<'_>) -> Result<bool> {
        if self.let_go.is_none() || subject.threads.is_empty() || subject.memory.owes() {
            return Ok(false);
        }
        let rests = self.is_still() || self.asleep.is_none() && self.falls_asleep(subject)?;
        if !rests {
            self.disturb();
        }
        Ok(rests)
    }

    /// Whether it was seen asleep, and nothing was told of it since.
    pub(super) fn is_asleep(&self) -> bool {
        self.asleep.is_some()
    }

    /// Whether no thread ran since the process was seen asleep.
    pub(super) fn is_still(&self) -> bool {
        let still = |(counter, count): &(Counter, u64)| counter.read() == Some(*count);
        self.asleep
            .as_ref()
            .is_some_and(|asleep| asleep.iter().all(still))
    }

    /// The first look after a checkpoint.
    fn falls_asleep(&mut self, subject: &mut Subject<'_>) -> Result<bool> {
        let pid = subject.process.pid();
        let counters = subject.threads.iter().map(|(tid, _)| {
            let counter = Counter::of(pid, *tid)?;
            let count = counter.read()?;
            Some((counter, count))
        });
        let Some(counters) = counters.collect::<Option<Vec<_>>>() else {
            return Ok(false);
        };
        let sleeps = |(tid, state): &(Tid, State)| self.sleeps(pid, *tid, *state);
        if !subject.threads.iter().all(sleeps) || !self.holds_the_same(subject)? {
            return Ok(false);
        }
        self.asleep = Some(counters);
        Ok(self.is_still())
    }

    /// Whether the memory is as it was at the checkpoint, but for what the kernel writes for itself.
    fn holds_the_same(&mut self, subject: &mut Subject<'_>) -> Result<bool> {
        let mut written = Vec::new();
        for region in subject.memory.written()? {
            if written.len() as u64 + region.pages() > MOST_DOUBTFUL {
                return Ok(false);
            }
            written.extend((region.start..region.end).step_by(PAGE as usize));
        }
        for page in &written {
            let before = self.kept.get(page);
            let same = before.is_some_and(|before| {
                self.masked(subject.process, *page)
                    .is_some_and(|now| now == *before)
            });
            if !same {
                self.doubtful = written;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Keeps what the doubtful pages hold, while nothing moves.
    pub(super) fn keep_doubtful(&mut self, process: &Process) {
        for page in std::mem::take(&mut self.doubtful) {
            if let Some(bytes) = self.masked(process, page) {
                self.kept.insert(page, bytes);
            }
        }
    }

    /// A page without what the kernel writes for a thread that goes on. `None` when nothing is there.
    fn masked(&self, process: &Process, page: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; PAGE as usize];
        process.read(page, &mut bytes).ok()?;
        let on_page = |area: &&Range<u64>| area.start < page + PAGE && page < area.end;
        for area in self.areas.iter().filter(on_page) {
            let inside = area.start.max(page) - page..area.end.min(page + PAGE) - page;
            bytes[inside.start as usize..inside.end as usize].fill(0);
        }
        Some(bytes)
    }

    /// Whether a thread sleeps in the call it was let go with.
    fn sleeps(&self, pid: i32, tid: Tid, state: State) -> bool {
        if matches!(state, State::Listening | State::Standing) {
            return true; // a signal stopped it, or it is not let go
        }
        let known = self.let_go.as_ref().and_then(|threads| threads.get(&tid));
        let line = call_line(pid, tid);
        let sleep = line.ok().and_then(|line| Sleep::parse(&line));
        known.is_some_and(|known| sleep.is_some_and(|sleep| sleep.is_of(known)))
    }
}

impl Program {
    /// A thread is about to make a watched call.
    pub(crate) fn is_about_to_call(&mut self, tid: Tid, call: &WatchedCall) {
        self.rest.calls(tid, call);
        self.may_leave(tid, call);
    }

    /// Whether the program is what its last checkpoint holds: no thread ran since, of it or of a descendant, and no
    /// stream moved.
    ///
    /// # Errors
    /// When its memory or what it printed cannot be looked at.
    pub fn is_at_rest(&mut self) -> Result<bool> {
        if self.descendants.changed() || !self.streams.is_as_at_stop()? {
            return Ok(false);
        }
        let mut own = Subject {
            process: &self.process,
            memory: &mut self.memory,
            threads: (self.threads.iter())
                .map(|thread| (thread.tid, thread.state))
                .collect(),
        };
        let own_rests = self.ending.is_some() || self.rest.holds(&mut own)?;
        Ok(self.members.all_rest(&self.descendants) && own_rests) // all are looked at
    }

    /// Whether something waits for a checkpoint: printed or typed bytes, or the program itself, which did nothing
    /// since the last call.
    ///
    /// # Errors
    /// When what was printed cannot be looked at.
    pub fn waits(&mut self) -> Result<bool> {
        const MOST_THREADS: usize = 16;
        let counts: Vec<Option<u64>> = (self.threads.iter().take(MOST_THREADS + 1))
            .map(|thread| Counter::of(self.process.pid(), thread.tid)?.read())
            .collect();
        let stood = counts.len() <= MOST_THREADS
            && !self.descendants.any_lives() // the work may be theirs
            && !counts.contains(&None)
            && counts == self.rest.pulse;
        self.rest.pulse = counts;
        Ok((stood && !self.is_on_processor()) || !self.streams.is_as_at_stop()?)
    }

    /// Whether a thread runs now: proc_pid_syscall(5).
    pub(super) fn is_on_processor(&self) -> bool {
        self.threads.iter().any(|thread| {
            let line = call_line(self.process.pid(), thread.tid);
            line.is_ok_and(|line| line.starts_with("running"))
        })
    }
}

/// The call that a thread is in, or `running`: proc_pid_syscall(5).
fn call_line(pid: i32, tid: Tid) -> std::io::Result<String> {
    proc_file::text(format!("/proc/{pid}/task/{tid}/syscall"))
}

/// Whether a thread sleeps, and was not woken: else its call reads `running`.
pub(super) fn is_asleep(pid: i32, tid: Tid) -> bool {
    let line = call_line(pid, tid);
    line.is_ok_and(|line| Sleep::parse(&line).is_some())
}

/// A call that a thread is in: proc_pid_syscall(5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sleep {
    number: i64,
    arguments: [u64; 6],
    stack: u64,
    /// The address after the instruction.
    after: u64,
}

impl Sleep {
    /// `None` for a thread that runs, or that waits for a page.
    fn parse(line: &str) -> Option<Sleep> {
        let mut words = line.split_ascii_whitespace();
        let number = words.next()?.parse().ok()?;
        let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let mut arguments = [0; 6];
        for argument in &mut arguments {
            *argument = word()?;
        }
        Some(Sleep {
            number,
            arguments,
            stack: word()?,
            after: word()?,
        })
    }

    /// Whether it is the call of a thread that was let go with `registers`: at its end, to be begun again by the
    /// kernel, or before its beginning.
    fn is_of(&self, registers: &Registers) -> bool {
        let numbers = [
            libc::SYS_restart_syscall,
            registers.orig_rax as i64,
            registers.rax as i64,
        ];
        numbers.contains(&self.number)
            && self.arguments == arguments(registers)
            && self.stack == registers.rsp
            && [registers.rip, registers.rip.wrapping_add(SYSCALL_BYTES)].contains(&self.after)
    }
}

/// How often a thread was given a processor: the third number of proc_pid_schedstat(5).
#[derive(Debug)]
struct Counter(File);

impl Counter {
    fn of(pid: i32, tid: Tid) -> Option<Counter> {
        File::open(format!("/proc/{pid}/task/{tid}/schedstat"))
            .ok()
            .map(Counter)
    }

    /// `None` when the thread is gone, or the kernel does not count (then all three numbers are zero).
    fn read(&self) -> Option<u64> {
        let mut bytes = [0; 80];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        let count = text.split_ascii_whitespace().nth(2)?.parse().ok()?;
        (count > 0).then_some(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_sleeps_in_its_own_call_only() {
        let line = "230 0x1 0x0 0x7ffd10 0x7ffd20 0x5 0x6 0x7ffce0 0x55000a\n";
        let sleep = Sleep::parse(line).unwrap();
        let mut registers = twinpage_os::trace::from_words(&[0; 27]);
        registers.orig_rax = 230;
        registers.rax = -516i64 as u64;
        [registers.rdi, registers.rdx, registers.r10] = [1, 0x7ffd10, 0x7ffd20];
        [registers.r8, registers.r9] = [5, 6];
        [registers.rsp, registers.rip] = [0x7ffce0, 0x55000a];
        assert!(sleep.is_of(&registers));
        let restarted = Sleep {
            number: libc::SYS_restart_syscall,
            ..sleep
        };
        assert!(restarted.is_of(&registers));
        let before = Registers {
            rip: 0x550008,
            rax: 230,
            orig_rax: u64::MAX,
            ..registers
        };
        assert!(sleep.is_of(&before), "let go at the instruction itself");
        for other in [
            Sleep { number: 35, ..sleep },
            Sleep {
                stack: 0x7ffcd8,
                ..sleep
            },
            Sleep {
                after: 0x55000c + 1,
                ..sleep
            },
            Sleep {
                arguments: [1, 0, 0x7ffd10, 0x7ffd20, 5, 7],
                ..sleep
            },
        ] {
            assert!(!other.is_of(&registers), "{other:?}");
        }
        for none in ["running\n", "-1 0x7ffce0 0x55000a\n", "", "230 0x1\n"] {
            assert_eq!(Sleep::parse(none), None, "{none:?}");
        }
    }

    #[test]
    fn a_thread_that_ran_is_counted() {
        let tid = rustix::thread::gettid().as_raw_nonzero().get();
        let Some(counter) = Counter::of(std::process::id() as i32, tid) else {
            panic!("no /proc");
        };
        let before = counter.read();
        if before.is_none() {
            eprintln!("SKIPPED: this kernel does not count (CONFIG_SCHED_INFO)");
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
        assert!(counter.read() > before);
    }
}
