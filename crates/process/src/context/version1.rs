//! The shapes of version 1, and what they mean today. What is not here has the same bytes in both.

use super::{Ending, StableState, VolatileState};
use crate::advice::Advice;
use crate::descriptors::{Descriptor, Held};
use crate::files::OpenFile;
use crate::kernel::{Action, Kernel, MemoryFields, Options, PosixTimer, Running, Setting, Settings};
use crate::layout::{Kind, Mapping};
use crate::machine::Machine;
use crate::threads::{Pending, ThreadState};
use serde::Deserialize;
use std::path::PathBuf;

/// Reads both sections.
pub(super) fn decode(live: &[u8], fixed: &[u8]) -> postcard::Result<(VolatileState, StableState)> {
    let live: Live1 = postcard::from_bytes(live)?;
    let fixed: Fixed1 = postcard::from_bytes(fixed)?;
    Ok((live.into(), fixed.into()))
}

#[derive(Deserialize)]
struct Live1 {
    held: Vec<Held>,
    timers: Running1,
    pending: Vec<Pending>,
    files: Vec<OpenFile>,
}

#[derive(Deserialize)]
struct Running1 {
    interval_timers: [Setting; 3],
    timers: Vec<Setting>,
}

impl From<Live1> for VolatileState {
    fn from(old: Live1) -> VolatileState {
        VolatileState {
            held: old.held,
            timers: Running {
                interval_timers: old.timers.interval_timers,
                timers: old.timers.timers,
                waiting: Vec::new(),
            },
            pending: old.pending,
            files: old.files,
            objects: Vec::new(),
            links: Vec::new(),
            guards: Vec::new(),
            stopped: false,
        }
    }
}

#[derive(Deserialize)]
struct Fixed1 {
    machine: Machine,
    pid: i32,
    command: Vec<String>,
    mappings: Vec<Mapping1>,
    marks: Vec<Advice>,
    kernel: Kernel1,
    descriptors: Vec<Descriptor>,
    threads: Vec<Steady1>,
    ended: Option<Ending>,
}

impl From<Fixed1> for StableState {
    fn from(old: Fixed1) -> StableState {
        StableState {
            machine: old.machine,
            pid: old.pid,
            command: old.command,
            mappings: old.mappings.into_iter().map(Mapping::from).collect(),
            marks: old.marks,
            kernel: old.kernel.into(),
            descriptors: old.descriptors,
            threads: old.threads.into_iter().map(ThreadState::from).collect(),
            ended: old.ended,
            fifos: Vec::new(),
            main_thread_ended: None,
            apart: Vec::new(),
            segments: Default::default(),
            ipc: Default::default(),
            last_id: 0,
        }
    }
}

#[derive(Deserialize)]
struct Mapping1 {
    start: u64,
    end: u64,
    protection: u32,
    kind: Kind,
    offset: u64,
    inode: u64,
    #[serde(with = "crate::path_bytes")]
    path: PathBuf,
}

impl From<Mapping1> for Mapping {
    fn from(old: Mapping1) -> Mapping {
        Mapping {
            start: old.start,
            end: old.end,
            protection: old.protection,
            kind: old.kind,
            offset: old.offset,
            inode: old.inode,
            device: 0,
            object: None,
            only_read: false,
            path: old.path,
        }
    }
}

#[derive(Deserialize)]
struct Kernel1 {
    memory: MemoryFields,
    actions: Vec<Action>,
    umask: u32,
    #[serde(with = "crate::path_bytes")]
    directory: PathBuf,
    limits: Vec<(u32, u64, u64)>,
    membarrier: u64,
    timers: Vec<PosixTimer>,
}

impl From<Kernel1> for Kernel {
    fn from(old: Kernel1) -> Kernel {
        Kernel {
            memory: old.memory,
            actions: old.actions,
            umask: old.umask,
            directory: old.directory,
            limits: old.limits,
            membarrier: old.membarrier,
            timers: old.timers,
            options: Options {
                dumpable: 1,
                ..Options::default()
            },
            settings: Settings::default(),
            directory_gone: None,
        }
    }
}

#[derive(Deserialize)]
struct Steady1 {
    tid: i32,
    name: Vec<u8>,
    alternate_stack: (u64, u32, u64),
    clear_tid: u64,
    scheduling: (i32, i32, i32, [u64; 16]),
}

impl From<Steady1> for ThreadState {
    fn from(old: Steady1) -> ThreadState {
        ThreadState {
            tid: old.tid,
            name: old.name,
            alternate_stack: old.alternate_stack,
            clear_tid: old.clear_tid,
            scheduling: old.scheduling,
            timer_slack_ns: 0,
            parent_death_signal: 0,
            credentials: None,
            keeps_capabilities: false,
        }
    }
}
