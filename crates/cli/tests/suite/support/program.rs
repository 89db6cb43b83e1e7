//! The programs under `tests/programs`: how each is built and started, and how long it runs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use super::skip;

/// What a program is written in, and what it needs besides.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    /// C, with the libraries to link.
    C(&'static [&'static str]),
    /// Go.
    Go,
    /// Java; the file is named as its class.
    Java,
    /// Python, with the module it imports.
    Python(&'static str),
    /// Perl.
    Perl,
    /// Bash.
    Bash,
    /// Node.
    Node,
}

/// One test program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    /// Its file, without the directory.
    pub(crate) file: &'static str,
    pub(crate) kind: Kind,
    /// Rounds of about two seconds of work on a small machine.
    pub(crate) rounds: u32,
}

const fn program(file: &'static str, kind: Kind, rounds: u32) -> Program {
    Program { file, kind, rounds }
}

/// Every program that must survive.
pub(crate) const PROGRAMS: &[Program] = &[
    program("c_threads.c", Kind::C(&["-pthread", "-lm"]), 24),
    program("c_files.c", Kind::C(&[]), 48),
    program("c_objects.c", Kind::C(&["-pthread"]), 36),
    program("c_memory.c", Kind::C(&[]), 18),
    program("c_loading.c", Kind::C(&["-pthread"]), 60),
    program("c_precopy.c", Kind::C(&["-pthread"]), 50),
    program("c_mappings.c", Kind::C(&[]), 24),
    program("c_calls.c", Kind::C(&["-pthread"]), 4),
    program("c_ttys.c", Kind::C(&["-pthread"]), 1),
    program("c_held.c", Kind::C(&["-pthread"]), 6),
    program("c_waits.c", Kind::C(&["-pthread"]), 4000), // milliseconds
    program("c_kernel.c", Kind::C(&[]), 48),
    program("c_descriptors.c", Kind::C(&[]), 60),
    program("c_own.c", Kind::C(&[]), 120),
    program("c_many.c", Kind::C(&["-pthread"]), 60),
    program("c_ends.c", Kind::C(&["-lrt"]), 50),
    program("c_places.c", Kind::C(&[]), 60),
    program("c_leaderless.c", Kind::C(&["-pthread"]), 31),
    program("c_successors.c", Kind::C(&["-pthread"]), 60),
    program("c_tables.c", Kind::C(&["-pthread"]), 400),
    program("c_limits.c", Kind::C(&[]), 120),
    program("c_processors.c", Kind::C(&["-pthread"]), 120),
    program("c_pairs.c", Kind::C(&["-pthread"]), 100),
    program("c_zombies.c", Kind::C(&[]), 60),
    program("c_brief.c", Kind::C(&["-pthread"]), 4000),
    program("c_pidfds.c", Kind::C(&[]), 300),
    program("c_workers.c", Kind::C(&[]), 200),
    program("c_ties.c", Kind::C(&[]), 60),
    program("c_groups.c", Kind::C(&[]), 120),
    program("c_sleepers.c", Kind::C(&[]), 40),
    program("c_users.c", Kind::C(&["-pthread"]), 150),
    program("c_inotify.c", Kind::C(&[]), 300),
    program("c_segments.c", Kind::C(&[]), 60),
    program("c_ipc.c", Kind::C(&[]), 60),
    program("c_inherits.c", Kind::C(&[]), 60),
    program("c_timers.c", Kind::C(&["-pthread", "-lrt"]), 40),
    program("c_shared.c", Kind::C(&["-pthread", "-lrt"]), 150),
    program("c_sqlite.c", Kind::C(&["-lsqlite3"]), 160),
    program("python_threads.py", Kind::Python("threading"), 80),
    program(
        "python_shared.py",
        Kind::Python("multiprocessing.shared_memory"),
        8,
    ),
    program("python_sockets.py", Kind::Python("multiprocessing.managers"), 3),
    program("python_bound.py", Kind::Python("socket"), 8),
    program("python_tcp.py", Kind::Python("asyncio"), 4),
    program("python_ptys.py", Kind::Python("pty"), 6),
    program("python_full_ptys.py", Kind::Python("pty"), 2),
    program("python_datagrams.py", Kind::Python("socket"), 5),
    program("python_senders.py", Kind::Python("socket"), 60),
    program("python_netlink.py", Kind::Python("socket"), 200),
    program("python_numpy.py", Kind::Python("numpy"), 28),
    program("sqlite_memory.py", Kind::Python("sqlite3"), 110),
    program("churn.pl", Kind::Perl, 95),
    program("builtins.sh", Kind::Bash, 70),
    program("goroutines.go", Kind::Go, 13),
    program("commands.go", Kind::Go, 200),
    program("promises.js", Kind::Node, 140),
    program("Collections.java", Kind::Java, 62),
];

/// The program of that file.
pub(crate) fn named(file: &str) -> Program {
    *PROGRAMS
        .iter()
        .find(|p| p.file == file)
        .unwrap_or_else(|| panic!("{file} is not in the list of programs"))
}

/// Where the sources of the test programs are.
pub(crate) fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs")
}

/// Where built programs are kept between runs.
pub(crate) fn built() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&dir).expect("a directory for built programs");
    dir
}

impl Program {
    /// The command line that runs it for `rounds`, built if need be. `None`: its runtime is missing, which
    /// was said.
    pub(crate) fn command(&self, rounds: u32) -> Option<Vec<String>> {
        let mut line = self.start()?;
        line.push(rounds.to_string());
        Some(line)
    }

    fn start(&self) -> Option<Vec<String>> {
        let source = sources().join(self.file).display().to_string();
        let line = |words: &[&str]| Some(words.iter().map(|w| w.to_string()).collect());
        match self.kind {
            Kind::C(libraries) => compile(self.file, libraries).and_then(|binary| line(&[&binary])),
            Kind::Go => self.compile_go().and_then(|binary| line(&[&binary])),
            Kind::Java => self.compile_java(),
            Kind::Python(module) => match python_with(module) {
                Some(python) => line(&[&python, &source]),
                None => {
                    skip(
                        self.file,
                        &format!("a python3 with {module}"),
                        &format!("python3 and python3-{module}"),
                    );
                    None
                }
            },
            Kind::Perl => self
                .found("perl", "perl")
                .and_then(|perl| line(&[&perl, &source])),
            Kind::Bash => self
                .found("bash", "bash")
                .and_then(|bash| line(&[&bash, &source])),
            Kind::Node => self
                .found("node", "nodejs")
                .and_then(|node| line(&[&node, &source])),
        }
    }

    fn found(&self, tool: &str, package: &str) -> Option<String> {
        let path = which(tool);
        if path.is_none() {
            skip(self.file, tool, package);
        }
        path
    }

    fn compile_go(&self) -> Option<String> {
        let go = self.found("go", "golang")?;
        Some(build(
            self.file,
            self.file.trim_end_matches(".go"),
            &[sources().join(self.file)],
            |out| {
                let mut command = Command::new(&go);
                command
                    .args(["build", "-o"])
                    .arg(out)
                    .arg(sources().join(self.file));
                // Never fetch another toolchain or module for a single file.
                command
                    .env("GOTOOLCHAIN", "local")
                    .env("GOFLAGS", "")
                    .env("GOCACHE", built().join("go-cache"))
                    .current_dir(built());
                command
            },
        ))
    }

    fn compile_java(&self) -> Option<Vec<String>> {
        let compiler = self.found("javac", "default-jdk-headless")?;
        let java = self.found("java", "default-jdk-headless")?;
        let classes = build(self.file, "java", &[sources().join(self.file)], |out| {
            let mut command = Command::new(&compiler);
            command.arg("-d").arg(out).arg(sources().join(self.file));
            command
        });
        let class = self.file.trim_end_matches(".java").to_string();
        Some(vec![java, "-cp".into(), classes, class])
    }
}

/// Compiles a C program, a file or a directory of them; `None` when something is missing, which was said.
pub(crate) fn compile(name: &str, libraries: &[&str]) -> Option<String> {
    let Some(cc) = which("cc") else {
        skip(name, "cc", "gcc and libc6-dev");
        return None;
    };
    if libraries.contains(&"-lsqlite3") && !Path::new("/usr/include/sqlite3.h").exists() {
        skip(name, "sqlite3.h", "libsqlite3-dev");
        return None;
    }
    let mut files = vec![sources().join(name)];
    if files[0].is_dir() {
        let inside = std::fs::read_dir(&files[0]).expect("a directory of sources");
        files = inside.filter_map(|entry| Some(entry.ok()?.path())).collect();
    }
    let newest = files
        .iter()
        .cloned()
        .chain([sources().join("check.h")])
        .collect::<Vec<_>>();
    files.retain(|file| file.extension().is_some_and(|kind| kind == "c"));
    Some(build(name, name.trim_end_matches(".c"), &newest, |out| {
        let mut command = Command::new(&cc);
        command
            .args(["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-o"])
            .arg(out);
        command.args(files).args(libraries);
        command
    }))
}

/// One build at a time; each is renamed into place whole, so that a build that fails leaves nothing.
static BUILDING: Mutex<()> = Mutex::new(());

fn build(file: &str, name: &str, from: &[PathBuf], how: impl FnOnce(&Path) -> Command) -> String {
    let _one = BUILDING.lock().unwrap_or_else(|broken| broken.into_inner());
    let done = built().join(name);
    let newest = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let sources_newest = from.iter().filter_map(|file| newest(file)).max();
    if newest(&done) <= sources_newest {
        // Another run of the tests may build it as well.
        let fresh = built().join(format!("{name}.{}", std::process::id()));
        let out = how(&fresh).output().expect("the compiler starts");
        let words = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{file} does not compile:\n{words}");
        let _ = std::fs::remove_dir_all(&done);
        std::fs::rename(&fresh, &done).expect("the built program is moved into place");
    }
    done.display().to_string()
}

/// The package of Debian that brings a tool.
pub(crate) fn package_of(tool: &str) -> &str {
    match tool {
        "mpicc" => "libopenmpi-dev",
        "mpirun" => "openmpi-bin",
        "redis-cli" => "redis-tools",
        "seq" | "tee" | "sort" | "uniq" | "cat" | "tr" | "cksum" | "sleep" => "coreutils",
        "xargs" => "findutils",
        "sh" => "dash",
        tool => tool,
    }
}

/// Where a tool is, as the shell would find it.
pub(crate) fn which(tool: &str) -> Option<String> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file())
        .map(|f| f.display().to_string())
}

/// A real Python interpreter (not a version manager's shell script) that can import `module`.
pub(crate) fn python_with(module: &str) -> Option<String> {
    let ask = |python: &str, code: &str| {
        let out = Command::new(python)
            .args(["-c", code])
            .stderr(Stdio::null())
            .output()
            .ok()?;
        out.status
            .success()
            .then(|| String::from_utf8_lossy(&out.stdout).trim().to_string())
    };
    let first = ask("python3", "import sys; print(sys.executable)");
    first
        .into_iter()
        .chain(["/usr/bin/python3".to_string()])
        .find(|p| ask(p, &format!("import {module}")).is_some())
}
