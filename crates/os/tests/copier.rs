//! Copies from inside a stopped program.

use std::process::{Child, Command};
use twinpage_core::Buffer;
use twinpage_os::copier::Copier;
use twinpage_os::inject;
use twinpage_os::remote::{Process, Remote};
use twinpage_os::trace::{self, Status};

/// A program, stopped, with our code in it.
struct Stopped {
    child: Child,
    process: Process,
}

impl Stopped {
    fn new() -> Stopped {
        let child = Command::new("sleep").arg("1000").spawn().expect("sleep starts");
        let pid = child.id() as i32;
        let sleeps = format!("{} ", libc::SYS_clock_nanosleep);
        let call = || std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
        while !call().starts_with(&sleeps) {
            std::thread::yield_now(); // not yet what it will be: its loader still maps and unmaps
        }
        trace::seize(pid).expect("a child may be traced");
        trace::interrupt(pid).unwrap();
        while !matches!(trace::wait(pid, true).unwrap(), Some((_, Status::Interrupted))) {
            trace::go_on(pid, 0).unwrap();
            trace::interrupt(pid).unwrap(); // any stop answers the request before
        }
        let process = Process::open(pid).unwrap();
        inject::plant(&process, pid).unwrap();
        Stopped { child, process }
    }

    /// Everything readable and private, page by page in another order.
    fn pages(&self) -> Vec<Remote> {
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.process.pid())).unwrap();
        let mut pages = Vec::new();
        for line in maps
            .lines()
            .filter(|line| line.contains(" r") && line.contains("p ") && !line.contains("[v"))
        {
            let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
            let at = |hex| u64::from_str_radix(hex, 16).unwrap();
            pages.extend(
                (at(start)..at(end))
                    .step_by(4096)
                    .map(|start| Remote { start, len: 4096 }),
            );
        }
        let scattered = (0..pages.len()).map(|n| pages[n * 7919 % pages.len()]);
        scattered.collect()
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn copies_are_exact_until_a_helper_is_killed() {
    let program = Stopped::new();
    let pid = program.process.pid();
    let maps = |what: &str| std::fs::read_to_string(format!("/proc/{pid}/{what}")).unwrap();
    let descriptors = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = descriptors();
    let copier = Copier::new(&program.process, pid).unwrap();
    assert!(maps("maps").contains("twinpage-copies"));
    assert_eq!(descriptors(), before);

    let pages = program.pages();
    let bytes = pages.len() * 4096;
    let mut expected = vec![0; bytes];
    program.process.gather(&pages, &mut expected).unwrap();
    let mut buffer = Buffer::default();
    assert!(
        !copier.copy(&pages, buffer.append(bytes)).unwrap(),
        "a buffer elsewhere is refused"
    );
    buffer.clear();
    copier.lend(&mut buffer);
    for part in [1, 2, pages.len() / 2, pages.len()] {
        buffer.clear();
        assert!(copier.copy(&pages[..part], buffer.append(part * 4096)).unwrap());
        assert!(buffer[..] == expected[..part * 4096], "{part} pages differ");
    }

    let tasks = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // Ours alone: other programs on this machine may have helpers of their own.
    let parent = format!("PPid:\t{}\n", std::process::id());
    let mut helpers = tasks.filter(|task: &i32| {
        let look = |what| std::fs::read_to_string(format!("/proc/{task}/{what}")).unwrap_or_default();
        *task != pid && look("status").contains(&parent) && look("maps").contains("twinpage-copies")
    });
    let helper = helpers.next().expect("a helper shows among the processes");
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(helper).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let status = || std::fs::read_to_string(format!("/proc/{helper}/status")).unwrap();
    while !status().contains("State:\tZ") {
        std::thread::yield_now(); // a kill takes its time
    }
    buffer.clear();
    assert!(copier.copy(&pages, buffer.append(bytes)).is_err());
}
