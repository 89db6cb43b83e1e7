//! The machine: QEMU with a kernel, and in its first file system this very program as process 1.
//!
//! * The processor is emulated, which every host can do; a boot takes a few seconds.
//! * The console is a stream of lines; those of the guest's program begin with a mark.
//! * Cutting its power is SIGKILL.

use super::disk::Disk;
use std::collections::VecDeque;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Bytes of the guest's memory, in MiB. Its first file system is unpacked into it from an archive that lies in it too.
const MEMORY_MIB: usize = 256;

/// What the lines of the guest's program begin with.
pub(crate) const MARK: &str = "power: ";

/// Kernel modules, each after those it needs.
const MODULES: [&str; 5] = [
    "drivers/nvdimm/libnvdimm.ko",
    "drivers/nvdimm/nd_btt.ko",
    "drivers/nvdimm/nd_pmem.ko",
    "drivers/acpi/nfit/nfit.ko",
    "drivers/block/virtio_blk.ko",
];

/// What the guest does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Job {
    /// Recovers, verifies, and goes on writing.
    Write,
    /// Recovers and verifies.
    Look,
    /// The same with versioned arrays.
    Arrays,
    /// Recovers and verifies versioned arrays.
    LookAtArrays,
    /// Runs a program under `twinpage run`, or resumes it.
    Program,
}

/// Where the guest's file system is.
pub(crate) enum Drive {
    /// On persistent memory, a file.
    Memory(PathBuf),
    /// On a disk.
    Disk(Disk),
}

/// A machine to boot.
pub(crate) struct Machine {
    kernel: PathBuf,
    folder: tempfile::TempDir,
}

impl Machine {
    /// A machine with the kernel of an unpacked Debian package.
    pub(crate) fn new(package: &Path) -> Machine {
        let folder = tempfile::tempdir().expect("a folder for the machine");
        let kernel = only(&package.join("boot"), "vmlinuz");
        let modules = only(&package.join("lib/modules"), "").join("kernel");
        let root = Archive::of_this_program(&modules, folder.path());
        let most = MEMORY_MIB << 18;
        assert!(
            root.len() <= most,
            "the machine's first file system has {} bytes: at most {most} fit its memory beside what runs",
            root.len()
        );
        fs::write(folder.path().join("root"), root).expect("the machine's first file system");
        Machine { kernel, folder }
    }

    /// Switches it on. `promised`: the drive holds a durable epoch, so its file system may not be made anew.
    pub(crate) fn boot(&self, drive: &Drive, job: Job, promised: bool) -> Console {
        let mut qemu = Command::new("qemu-system-x86_64");
        // cx16: QEMU 7.2 emulates that instruction wrongly and the kernel does without.
        // One thread for both processors: with two, a boot in a hundred dies in code that the kernel is patching.
        qemu.args([
            "-machine",
            "pc,nvdimm=on",
            "-accel",
            "tcg,thread=single",
            "-cpu",
            "max,cx16=off",
            "-smp",
            "2",
        ])
        .args([
            "-m",
            &format!("{MEMORY_MIB}M,slots=1,maxmem=1G"),
            "-nodefaults",
            "-no-reboot",
        ])
        .args(["-display", "none", "-serial", "stdio", "-kernel"])
        .arg(&self.kernel)
        .arg("-initrd")
        .arg(self.folder.path().join("root"));
        let device = match drive {
            Drive::Memory(file) => {
                let (bytes, path) = (file.metadata().expect("its memory").len(), file.display());
                let backend =
                    format!("memory-backend-file,id=nv,share=on,pmem=off,size={bytes},mem-path={path}");
                qemu.args(["-object", &backend, "-device", "nvdimm,memdev=nv"]);
                "pmem0"
            }
            Drive::Disk(disk) => {
                let server = format!(
                    "driver=nbd,node-name=d,server.type=unix,server.path={}",
                    disk.socket().display()
                );
                qemu.args(["-blockdev", &server, "-device"])
                    .arg("virtio-blk-pci,drive=d,write-cache=on,werror=report,rerror=report");
                "vda"
            }
        };
        // A busy host gives the emulated timer too few turns for the kernel's test of it.
        let options = "console=ttyS0 quiet panic=-1 no_timer_check";
        qemu.arg("-append").arg(format!(
            "{options} drive={device} job={job:?} promised={promised}"
        ));
        let qemu = qemu
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        Console::of(
            qemu.spawn()
                .expect("qemu-system-x86_64 starts (package qemu-system-x86)"),
        )
    }
}

/// A running machine and what it says.
pub(crate) struct Console {
    qemu: Child,
    lines: Receiver<String>,
    /// All it said, the last on top of the others; shown when something is amiss.
    said: VecDeque<String>,
}

impl Console {
    fn of(mut qemu: Child) -> Console {
        let output = qemu.stdout.take().expect("it is piped");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            // Only whole lines: the last one may be torn by the cut.
            while output
                .read_until(b'\n', &mut line)
                .is_ok_and(|_| line.ends_with(b"\n"))
            {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if sender.send(text).is_err() {
                    break;
                }
            }
        });
        Console {
            qemu,
            lines,
            said: VecDeque::new(),
        }
    }

    /// What follows `word` in the next line of the program that begins with it.
    pub(crate) fn wait_for(&mut self, word: &str) -> String {
        loop {
            let Ok(line) = self.lines.recv() else {
                self.amiss(&format!("the machine ended before it said {word:?}"));
            };
            let found = line
                .strip_prefix(MARK)
                .and_then(|line| line.strip_prefix(word))
                .map(|rest| rest.trim().to_owned());
            self.hear(line);
            if let Some(found) = found {
                return found;
            }
        }
    }

    /// Lets it run.
    pub(crate) fn run_for(&mut self, time: Duration) {
        let end = std::time::Instant::now() + time;
        loop {
            match self
                .lines
                .recv_timeout(end.saturating_duration_since(std::time::Instant::now()))
            {
                Ok(line) => self.hear(line),
                Err(RecvTimeoutError::Timeout) => return,
                Err(RecvTimeoutError::Disconnected) => self.amiss("the machine ended by itself"),
            }
        }
    }

    /// Cuts the power. Returns all lines of the program.
    pub(crate) fn kill(mut self) -> Vec<String> {
        self.switch_off();
        while let Ok(line) = self.lines.recv() {
            self.hear(line);
        }
        self.said
            .iter()
            .filter_map(|line| line.strip_prefix(MARK))
            .map(str::to_owned)
            .collect()
    }

    fn hear(&mut self, line: String) {
        let is_bad = line
            .strip_prefix(MARK)
            .is_some_and(|line| line.starts_with("broken"));
        self.said.push_back(line);
        if is_bad {
            self.amiss("a promise is broken");
        }
    }

    fn amiss(&mut self, what: &str) -> ! {
        let first = self.said.len().saturating_sub(40);
        self.said
            .iter()
            .skip(first)
            .for_each(|line| println!("  | {line}"));
        panic!("{what}");
    }

    fn switch_off(&mut self) {
        self.qemu.kill().expect("the machine can be killed");
        self.qemu.wait().expect("the machine ends");
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        self.switch_off();
    }
}

/// A cpio archive, which the kernel unpacks as its first file system
/// (<https://docs.kernel.org/driver-api/early-userspace/buffer-format.html>).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: Vec<PathBuf>,
}

impl Archive {
    /// This program as `/init`, the command, `mke2fs`, their libraries, and the kernel's modules. `folder` is for files
    /// on the way.
    fn of_this_program(modules: &Path, folder: &Path) -> Vec<u8> {
        let mut archive = Archive::default();
        let this = std::env::current_exe().expect("this program");
        let programs = [
            ("init", this.as_path()),
            ("twinpage", Path::new(env!("CARGO_BIN_EXE_twinpage"))),
            ("mke2fs", Path::new("/sbin/mke2fs")),
        ];
        let mut libraries = Vec::new();
        for (name, program) in programs {
            archive.add(Path::new(name), &stripped(program, &folder.join(name)));
            libraries.append(&mut libraries_of(program));
        }
        libraries.sort();
        libraries.dedup();
        for library in &libraries {
            archive.add(
                library.strip_prefix("/").expect("an absolute path"),
                &read(library),
            );
        }
        for (k, module) in MODULES.iter().enumerate() {
            archive.add(
                &Path::new("modules").join(k.to_string()),
                &unpacked(&modules.join(module)),
            );
        }
        for folder in ["proc", "sys", "dev", "mnt", "tmp"] {
            archive.folder(Path::new(folder));
        }
        archive.entry(Path::new("TRAILER!!!"), 0, &[]);
        archive.bytes
    }

    fn add(&mut self, path: &Path, bytes: &[u8]) {
        if let Some(folder) = path.parent() {
            self.folder(folder);
        }
        self.entry(path, 0o100_755, bytes);
    }

    fn folder(&mut self, path: &Path) {
        if path.as_os_str().is_empty() || self.folders.iter().any(|folder| folder == path) {
            return;
        }
        if let Some(parent) = path.parent() {
            self.folder(parent);
        }
        self.folders.push(path.to_owned());
        self.entry(path, 0o040_755, &[]);
    }

    fn entry(&mut self, path: &Path, mode: u32, bytes: &[u8]) {
        let name = path.to_str().expect("a plain path");
        let name_bytes = name.len() as u32 + 1;
        self.bytes.extend_from_slice(b"070701");
        let fields = [1, mode, 0, 0, 1, 0, bytes.len() as u32, 0, 0, 0, 0, name_bytes, 0];
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(bytes);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// A program without what debuggers read in it, which is most of its bytes.
fn stripped(program: &Path, to: &Path) -> Vec<u8> {
    let strip = Command::new("strip")
        .arg("--strip-debug")
        .arg("-o")
        .args([to, program])
        .status();
    assert!(
        strip.is_ok_and(|strip| strip.success()),
        "{} cannot be stripped (package binutils)",
        program.display()
    );
    read(to)
}

/// The libraries a program is linked with, and its loader.
fn libraries_of(program: &Path) -> Vec<PathBuf> {
    let listed = Command::new("ldd").arg(program).output().expect("ldd");
    let listed = String::from_utf8(listed.stdout).expect("paths");
    let words = listed.split_whitespace().filter(|word| word.starts_with('/'));
    words.map(PathBuf::from).collect()
}

/// A kernel module, which may be packed with xz.
fn unpacked(module: &Path) -> Vec<u8> {
    if module.exists() {
        return read(module);
    }
    let packed = module.with_extension("ko.xz");
    let unpacked = Command::new("xz").arg("-dc").arg(&packed).output().expect("xz");
    assert!(
        unpacked.status.success(),
        "{} cannot be unpacked",
        packed.display()
    );
    unpacked.stdout
}

fn read(path: &Path) -> Vec<u8> {
    fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The one entry of `folder` whose name begins with `prefix`.
fn only(folder: &Path, prefix: &str) -> PathBuf {
    let entries =
        fs::read_dir(folder).unwrap_or_else(|error| panic!("TWINPAGE_KERNEL: {}: {error}", folder.display()));
    let mut found = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix));
    let first = found
        .next()
        .unwrap_or_else(|| panic!("{} has no {prefix}", folder.display()));
    assert!(
        found.next().is_none(),
        "{} has more than one {prefix}",
        folder.display()
    );
    first.path()
}
