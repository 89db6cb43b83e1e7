//! Process 1 of the machine: modules, a file system, and the job.

use super::machine::MARK;
use super::{arrays, program, writer};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::ffi::CString;
use std::fs;
use std::io::{self, Write};
use std::panic::catch_unwind;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Tells the host something.
pub(crate) fn say(what: &str) {
    let mut console = io::stdout().lock();
    // Without a console there is no reader.
    let _ = writeln!(console, "{MARK}{what}").and_then(|()| console.flush());
}

/// Does the job that the kernel's command line names, and switches the machine off.
pub(crate) fn run() -> ! {
    if catch_unwind(work).is_err() {
        say("broken: the guest panicked");
    }
    let _ = reboot(RebootCommand::PowerOff);
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn work() {
    let places = [
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("devtmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("tmpfs", "/dev/shm"),
    ];
    for (kind, place) in places {
        fs::create_dir_all(place).unwrap_or_else(|e| panic!("{place}: {e}"));
        mount(kind, place, kind, MountFlags::empty(), None).unwrap_or_else(|e| panic!("mount {place}: {e}"));
    }
    let mut modules: Vec<_> = fs::read_dir("/modules")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    modules.sort();
    for module in modules {
        finit_module(fs::File::open(&module).unwrap(), c"", 0)
            .unwrap_or_else(|e| panic!("{}: {e}", module.display()));
    }
    let words = fs::read_to_string("/proc/cmdline").unwrap();
    let word = |name: &str| {
        words
            .split_whitespace()
            .find_map(|word| word.strip_prefix(name))
            .unwrap()
            .to_owned()
    };
    let (drive, job) = (word("drive="), word("job="));
    let on_dax = drive == "pmem0";
    let device = format!("/dev/{drive}");
    wait_for_device(&device);
    if on_dax {
        map_pages(&device);
    }
    mount_or_make(
        &device,
        if on_dax { "dax=always" } else { "" },
        word("promised=") == "true",
    );
    match job.as_str() {
        "Program" => program::run(Path::new("/mnt")),
        "Arrays" | "LookAtArrays" => arrays::run(Path::new("/mnt"), on_dax, job == "Arrays"),
        _ => writer::run(Path::new("/mnt/store"), on_dax, job == "Write"),
    }
}

/// Direct access needs page structures for the persistent memory; where they are kept is written to its
/// beginning, once (<https://docs.kernel.org/driver-api/nvdimm/nvdimm.html>, PFN device).
fn map_pages(device: &str) {
    let bus = Path::new("/sys/bus/nd");
    let write = |file: &str, what: &str| {
        fs::write(bus.join(file), what).unwrap_or_else(|e| panic!("{file}: {e}"));
    };
    // The kernel adds the link to /sys/block after the node in /dev.
    let link = "/sys/block/pmem0/device";
    wait_for(link);
    let owner = fs::canonicalize(link).unwrap();
    if !owner.ends_with("namespace0.0") {
        return;
    }
    write("drivers/nd_pmem/unbind", "namespace0.0");
    write("devices/pfn0.0/mode", "ram");
    write("devices/pfn0.0/align", "4096");
    write("devices/pfn0.0/uuid", "6f1c9a1e-5d0b-4e0f-9c55-3f6f6c2f7a11");
    write("devices/pfn0.0/namespace", "namespace0.0");
    write("drivers/nd_pmem/bind", "pfn0.0");
    wait_for_device(device);
}

/// Mounts the file system; makes it first where there is none yet, and nothing on it was promised.
fn mount_or_make(device: &str, options: &str, promised: bool) {
    let options = CString::new(options).unwrap();
    let attempt = || {
        mount(
            device,
            "/mnt",
            "ext4",
            MountFlags::empty(),
            Some(options.as_c_str()),
        )
    };
    match attempt() {
        Ok(()) => return,
        Err(error) if promised => panic!("mount {device}: {error}"),
        Err(_) => {}
    }
    say("making a file system");
    let made = Command::new("/mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-b", "4096", device])
        .status();
    assert!(made.unwrap().success(), "mke2fs {device}");
    attempt().unwrap_or_else(|e| panic!("mount {device}: {e}"));
}

fn wait_for(file: &str) {
    while !Path::new(file).exists() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A device can be opened some time after its node is there.
fn wait_for_device(node: &str) {
    while fs::File::open(node).is_err() {
        std::thread::sleep(Duration::from_millis(2));
    }
}
