//! `twinpage run --explain`: what a program may do, call by call.

use std::collections::BTreeMap;
use std::process::ExitCode;
use twinpage_process::syscalls::{CALLS, Policy};

/// Prints the table of system calls by what is done about them.
pub(crate) fn print(json: bool) -> Result<ExitCode, String> {
    let mut free = Vec::new();
    let mut watched = Vec::new();
    let mut in_descendants = Vec::new();
    let mut refused: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for call in CALLS {
        match call.policy {
            Policy::Free => free.push(call.name),
            Policy::FreeWhen(..) | Policy::Watched(_) => watched.push(call.name),
            Policy::Refused(refusal) => refused.entry(refusal.why).or_default().push(call.name),
            Policy::RefusedToFirst(refusal) => {
                refused.entry(refusal.why).or_default().push(call.name);
                in_descendants.push(call.name);
            }
        }
    }
    if json {
        let refused: Vec<_> = refused
            .iter()
            .map(|(why, calls)| serde_json::json!({ "why": why, "calls": calls }))
            .collect();
        let document = serde_json::json!({ "free": free, "watched": watched, "refused": refused, "in_descendants": in_descendants });
        println!("{document:#}");
        return Ok(ExitCode::SUCCESS);
    }
    println!("Captured: {}\n", CAPTURED);
    println!("Calls that run freely:\n  {}\n", wrap(&free));
    println!(
        "Calls that are watched, and refused by name when they ask for more than is captured:\n  {}\n",
        wrap(&watched)
    );
    println!("Calls that are refused:");
    for (why, calls) in refused {
        println!("  {why}:\n    {}", wrap(&calls).replace('\n', "\n  "));
    }
    println!(
        "\nCalls that are refused to the program itself, and run in its descendants (checkpoints may wait for their end then):\n  {}",
        wrap(&in_descendants)
    );
    Ok(ExitCode::SUCCESS)
}

const CAPTURED: &str =
    "private memory, threads and their registers, signal actions, masks and waiting signals,
  alternate stacks, timers, clocks; regular files (rolled back with the checkpoint), directories,
  pipes and socket pairs within the program, named pipes that it made, eventfd, timerfd, signalfd,
  inotify and epoll descriptors; working directory, file mode mask, limits, scheduling; standard input, output and error,
  held until the checkpoint is durable, and the program's own terminal by name.
  Pseudo-terminals that the program and its processes make, with what was typed and printed and not read.
  TCP, UDP and Unix sockets among the program and its processes, with what is in them.
  TCP, UDP and Unix sockets to the outside: listeners come back with their names; connections are reset at a resume.
  What is sent there goes out when its checkpoint is durable, or as --replies says.
  Child processes and theirs, with their ids, groups, sessions, the pipes and socket pairs among them and the memory that
  they share: anonymous, memory files, mapped files, /dev/shm and System V, with mutexes, semaphores and futexes in it.
  They go on when the first process has ended. While one has something that cannot be captured, or a child that still
  uses its memory (vfork), a checkpoint waits for that.";

fn wrap(words: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for word in words {
        let line = lines.last_mut().expect("never empty");
        if line.len() + word.len() > 90 {
            lines.push((*word).to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.join("\n  ")
}
