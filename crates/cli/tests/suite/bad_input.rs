//! Bad input: each says in one line what is wrong and what to do, ends with a failure, and loses nothing.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use twinpage_campaign::{either, seed};

use crate::support::process::{Victim, kill, twinpage, with_argument};
use crate::support::program::python_with;
use crate::support::state::{COUNTING, Killed, on_state, refused_in_order, wait_until};
use crate::support::{chance, say, skip};

fn run(state: &Path, words: &[&str]) -> std::process::Output {
    twinpage()
        .args(["run", "--state"])
        .arg(state)
        .args(words)
        .output()
        .expect("twinpage starts")
}

// ---- programs and options ----

#[test]
fn a_program_that_cannot_run() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let plain = scratch.path().join("plain.txt");
    fs::write(&plain, "not a program\n").expect("a file");
    let (plain, here) = (plain.display().to_string(), scratch.path().display().to_string());
    for program in ["no-such-program-anywhere", "/nonexistent/program", &plain, &here] {
        let state = scratch.path().join("state");
        let said = refused_in_order(program, &run(&state, &["--", program]));
        assert!(said.contains(program), "the program is not named: {said}");
    }
}

#[test]
fn a_heap_without_pages() {
    let words = "bench writer --heap-mib 0 --dirty-percent 1 --rounds 1 --spin 0";
    let out = twinpage()
        .args(words.split(' '))
        .output()
        .expect("twinpage starts");
    assert_eq!(out.status.code(), Some(2), "{out:?}");
}

#[test]
fn an_interval_that_makes_no_sense() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for every in [
        "0",
        "0ms",
        "-5ms",
        "soon",
        "16",
        "16 parsecs",
        "99999999999999999999s",
    ] {
        let out = run(&scratch.path().join("state"), &["--every", every, "--", "true"]);
        let stderr = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && !stderr.contains("panicked"),
            "--every {every}: {}\n{stderr}",
            out.status
        );
        assert!(
            stderr.contains("every"),
            "--every {every} is not named:\n{stderr}"
        );
    }
}

#[test]
fn numbers_of_benchmarks_that_make_no_sense() {
    for words in [
        &["process", "--seconds=-1"] as &[&str],
        &["process", "--seconds=nan"],
        &["process", "--seconds=inf"],
        &["trees", "--seconds=1e30"],
        &["trees", "--seconds=0"],
        &["process", "--heap-mib=0"],
        &["process", "--heap-mib=9999999"],
        &["process", "--dirty-percent=-1"],
        &["process", "--dirty-percent=inf"],
    ] {
        let out = twinpage().arg("bench").args(words).output();
        let out = out.expect("twinpage starts");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{words:?}: {said}");
        let option = words[1].split('=').next().expect("an option");
        assert!(said.contains(option), "{words:?} is not named: {said}");
    }
}

#[test]
fn a_benchmark_whose_program_cannot_run() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command.args(["bench", "process", "--durability", "dax", "--heap-mib", "1"]);
    command.args([
        "--dirty-percent",
        "1",
        "--every",
        "16ms",
        "--repeat",
        "1",
        "--seconds",
        "0.1",
    ]);
    command.arg("--place").arg(scratch.path());
    let out = command.output().expect("twinpage starts");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(125), "{said}");
    assert!(said.contains("twinpage run ended"), "{said}");
}

// ---- output without a reader ----

#[test]
fn a_reader_that_leaves_ends_what_is_explained() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = twinpage();
    command
        .args(["run", "--explain"])
        .stdout(writer)
        .stderr(Stdio::piped());
    let out = command.output().expect("twinpage starts");
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(
        out.status.signal(),
        Some(13),
        "as any command that prints: {}",
        out.status
    );
}

#[test]
fn an_output_that_is_full_is_an_error() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let place = scratch.path().display().to_string();
    for words in [
        &["run", "--explain"] as &[&str],
        &["run", "--explain", "--json"],
        &["list", &place],
        &["--help"],
        &["run", "--help"],
        &["--version"],
    ] {
        let full = fs::File::options()
            .write(true)
            .open("/dev/full")
            .expect("it is there");
        let out = twinpage()
            .args(words)
            .stdout(full)
            .output()
            .expect("twinpage starts");
        let said = refused_in_order(&format!("{words:?}"), &out);
        assert_eq!(out.status.code(), Some(125), "{words:?}: {said}");
        assert!(said.contains("standard output"), "{said}");
    }
}

// ---- state directories ----

const READERS: &[&[&str]] = &[&["resume"], &["info"], &["check"]];

#[test]
fn a_state_that_is_not_there_or_is_something_else() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("empty")).expect("a directory");
    fs::write(at("file"), "text").expect("a file");
    fs::create_dir(at("other")).expect("a directory");
    fs::write(at("other/store"), vec![b'x'; 100_000]).expect("a file");
    for name in ["missing", "empty", "file", "other"] {
        for reader in READERS {
            let said = refused_in_order(&format!("{reader:?} {name}"), &on_state(reader, &at(name)));
            assert!(said.contains(name), "the directory is not named: {said}");
            let is_missing = said.contains("does not exist");
            assert_eq!(is_missing, name == "missing", "{said}");
        }
    }
    assert_eq!(
        fs::read(at("other/store")).expect("the file"),
        vec![b'x'; 100_000],
        "a foreign file was changed"
    );
}

#[test]
fn a_state_that_is_taken() {
    let killed = Killed::midway();
    let said = refused_in_order("run on it", &run(&killed.path("state"), &["--", "true"]));
    assert!(said.contains("resume"), "the way out is not named: {said}");
    let out = on_state(&["resume"], &killed.path("state"));
    assert!(
        out.status.success(),
        "the state was lost: {}",
        String::from_utf8_lossy(&out.stderr)
    );
    assert_eq!(killed.whole(&out.stdout), killed.stdout, "the state was changed");
    // And now that it is finished there is nothing to resume.
    let again = on_state(&["resume"], &killed.path("state"));
    assert!(again.stdout.is_empty(), "a finished program printed again");
    assert!(
        String::from_utf8_lossy(&again.stderr).contains("finished"),
        "it does not say that it is finished"
    );
}

/// Its program has nothing to go on from, so that another begins in its place.
#[test]
fn a_state_without_a_checkpoint() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    loop {
        let mut command = twinpage();
        command.args(["run", "--state"]).arg(&state);
        let mut child = command
            .args(["--", "sleep", "9"])
            .spawn()
            .expect("twinpage starts");
        wait_until("there is a state", || state.join("kind").exists());
        kill(&mut child, Victim::Tree, &mut fastrand::Rng::with_seed(1));
        let said = String::from_utf8_lossy(&on_state(&["check"], &state).stdout).into_owned();
        if said.contains("without a checkpoint") {
            break;
        }
        fs::remove_dir_all(&state).expect("it is gone"); // the kill came late
    }
    let said = refused_in_order("resume", &on_state(&["resume"], &state));
    assert!(said.contains("start it again with twinpage run"), "{said}");
    let out = run(&state, &["--", "echo", "begun"]);
    assert_eq!(
        (out.status.code(), &out.stdout[..]),
        (Some(0), &b"begun\n"[..]),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Where a state cannot be made nothing is left of it: the same can be tried again.
#[test]
fn a_state_for_which_files_may_not_be_large_enough() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let tool = twinpage();
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 100; exec \"$@\"", "bash"]);
    limited.arg(tool.get_program()).args(tool.get_args());
    limited
        .args(["run", "--state"])
        .arg(&state)
        .args(["--", "echo", "begun"]);
    let said = refused_in_order("run", &limited.output().expect("bash"));
    assert!(said.contains("ulimit -f"), "{said}");
    let out = run(&state, &["--", "echo", "begun"]);
    assert_eq!(out.stdout, b"begun\n", "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn a_state_in_use() {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let state = scratch.path().join("state");
    let out = scratch.path().join("out");
    let mut command = twinpage();
    command
        .args(["run", "--every", "16ms", "--state"])
        .arg(&state)
        .args(["--", "bash", "-c", COUNTING]);
    let mut child = command
        .stdout(fs::File::create(&out).expect("a file"))
        .spawn()
        .expect("twinpage starts");
    wait_until("the first line is out", || {
        fs::metadata(&out).is_ok_and(|m| m.len() > 0)
    });
    for words in [&["resume"] as &[&str], &["check"]] {
        let said = refused_in_order(&format!("{words:?} while it runs"), &on_state(words, &state));
        assert!(said.contains("in use"), "{said}");
    }
    let said = refused_in_order("run while it runs", &run(&state, &["--", "true"]));
    assert!(said.contains("in use") || said.contains("resume"), "{said}");
    assert!(
        child.wait().expect("wait for twinpage").success(),
        "the program was disturbed"
    );
    let want = (1..=12).map(|i| format!("{i}\n")).collect::<String>();
    assert_eq!(fs::read_to_string(&out).expect("the output"), want);
}

#[test]
fn two_resumes_at_once() {
    let killed = Killed::midway();
    let mut at_once = 0;
    while at_once < 4 {
        let copy = killed.copy("twice");
        let start = || {
            let mut command = twinpage();
            command
                .arg("resume")
                .arg(&copy)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command.spawn().expect("twinpage starts")
        };
        let both = [start(), start()].map(|child| child.wait_with_output().expect("wait for twinpage"));
        let (won, lost): (Vec<_>, Vec<_>) = both.iter().partition(|out| out.status.success());
        let came_late = |out: &&Output| String::from_utf8_lossy(&out.stderr).contains("has finished");
        if lost.is_empty() && won.iter().filter(|out| came_late(out)).count() == 1 {
            continue; // the one began when the other had ended
        }
        assert_eq!(won.len(), 1, "both or none of two resumes went through");
        assert_eq!(
            killed.whole(&won[0].stdout),
            killed.stdout,
            "the resume that went through differs"
        );
        let said = refused_in_order("the second resume", lost[0]);
        assert!(said.contains("in use"), "{said}");
        at_once += 1;
    }
}

#[test]
fn a_state_that_cannot_be_written() {
    let killed = Killed::midway();
    // A mount of its own, so that it holds for root as well.
    let script = r#"mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && shift && exec "$@""#;
    let in_namespace = |words: &[&str], state: &Path| {
        let mut command = Command::new("unshare");
        command
            .args(["-rm", "sh", "-c", script, "sh"])
            .arg(state)
            .arg(env!("CARGO_BIN_EXE_twinpage"));
        command
            .args(words)
            .arg(state)
            .stdin(Stdio::null())
            .output()
            .expect("unshare")
    };
    let copy = killed.copy("read-only");
    let probe = in_namespace(&["--version"], &copy);
    if String::from_utf8_lossy(&probe.stderr).contains("unshare") {
        say("SKIPPED: a_state_that_cannot_be_written: no user namespaces on this machine");
        return;
    }
    let said = refused_in_order(
        "resume from a read-only directory",
        &in_namespace(&["resume"], &copy),
    );
    assert!(said.contains("read-only") || said.contains("Read-only"), "{said}");
    for words in [&["info"] as &[&str], &["check"]] {
        let out = in_namespace(words, &copy);
        let stderr = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{words:?} needs no writing: {stderr}");
    }
    let out = on_state(&["resume"], &copy);
    assert_eq!(killed.whole(&out.stdout), killed.stdout, "the state was changed");
}

// ---- damage ----

/// Every file of a state directory, and how long it is.
fn files_of(state: &Path) -> Vec<(String, u64)> {
    let inside = fs::read_dir(state).expect("a state directory");
    let mut files: Vec<_> = inside
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let meta = entry.metadata().ok()?;
            meta.is_file()
                .then(|| (entry.file_name().to_string_lossy().into_owned(), meta.len()))
        })
        .collect();
    files.sort();
    files
}

/// What may happen to a damaged state: `check` and `resume` say so in good order, or the damage was where
/// nothing is kept and the resume is whole. Returns whether it was noticed.
fn noticed_or_harmless(what: &str, killed: &Killed, state: &Path) -> bool {
    let check = on_state(&["check"], state);
    let stderr = String::from_utf8_lossy(&check.stderr).into_owned();
    let code = check
        .status
        .code()
        .unwrap_or_else(|| panic!("{what}: check ended by {}:\n{stderr}", check.status));
    assert!(
        !stderr.contains("panicked") && code != 101,
        "{what}: check panics:\n{stderr}"
    );
    let resume = on_state(&["resume"], state);
    if !resume.status.success() {
        let said = refused_in_order(&format!("{what}: resume"), &resume);
        assert!(code != 0, "{what}: check finds nothing, and resume says: {said}");
        return true;
    }
    let whole = killed.whole(&resume.stdout) == killed.stdout;
    assert!(
        whole || code != 0,
        "{what}: unnoticed, and the program printed something else"
    );
    code != 0
}

#[test]
fn a_store_that_is_cut() {
    let killed = Killed::midway();
    let seed = seed();
    let mut chance = chance(seed, "cut");
    let (mut cuts, mut noticed) = (0, 0);
    for (file, len) in files_of(&killed.path("state")) {
        let few = either(1, 200);
        let mut lengths: Vec<u64> = (0..few).map(|_| chance.u64(0..len.max(1))).collect();
        lengths.extend([0, 1, 8, 511, 512, 4095, 4096, 8192, len.saturating_sub(1)].map(|n: u64| n.min(len)));
        for length in lengths {
            let copy = killed.copy("cut");
            let opened = fs::OpenOptions::new()
                .write(true)
                .open(copy.join(&file))
                .expect("a file of the state");
            opened.set_len(length).expect("cut the file");
            cuts += 1;
            noticed += u32::from(noticed_or_harmless(
                &format!("{file} cut to {length}"),
                &killed,
                &copy,
            ));
        }
    }
    say(&format!(
        "{cuts} cuts of a state: {noticed} noticed, the others where nothing is kept; TWINPAGE_SEED={seed}"
    ));
    assert!(noticed > cuts / 4, "cutting a state should be noticed more often");
}

/// It would be waited for without end.
#[test]
fn a_named_pipe_in_the_place_of_a_file() {
    let make = |path: &Path| {
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).expect("a named pipe");
    };
    let killed = Killed::midway();
    for (file, _) in files_of(&killed.path("state")) {
        let copy = killed.copy("piped");
        if copy.join(&file).parent() != Some(&copy) {
            continue;
        }
        fs::remove_file(copy.join(&file)).expect("a file of the state");
        make(&copy.join(&file));
        for reader in [["resume"], ["info"]] {
            let said = refused_in_order(&format!("{reader:?} {file}"), &on_state(&reader, &copy));
            assert!(said.contains(&file), "it is not named: {said}");
        }
        let check = on_state(&["check"], &copy);
        let said = String::from_utf8_lossy(&check.stdout);
        assert!(check.status.code() == Some(1) && said.contains(&file), "{said}");
    }
    // One that a killed resume left is no reason.
    make(&killed.path("state").join("gone.fifo"));
    let resumed = on_state(&["resume"], &killed.path("state"));
    assert!(
        resumed.status.success(),
        "{}",
        String::from_utf8_lossy(&resumed.stderr)
    );
}

#[test]
fn a_store_with_flipped_bytes() {
    let killed = Killed::midway();
    let seed = seed();
    let mut chance = chance(seed, "flip");
    let (mut flips, mut noticed) = (0, 0);
    for (file, len) in files_of(&killed.path("state")) {
        let few = either(6, 400);
        // Half of them near the beginning, where the tables are.
        let places: Vec<u64> = (0..few)
            .map(|i| {
                if i % 2 == 0 {
                    chance.u64(0..len.clamp(1, 16 << 10))
                } else {
                    chance.u64(0..len.max(1))
                }
            })
            .filter(|at| *at < len)
            .collect();
        for at in places {
            let copy = killed.copy("flipped");
            let opened = fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open(copy.join(&file))
                .expect("a file");
            let mut byte = [0];
            opened.read_exact_at(&mut byte, at).expect("read a byte");
            byte[0] ^= 1 << chance.u8(0..8);
            opened.write_all_at(&byte, at).expect("flip a bit");
            flips += 1;
            noticed += u32::from(noticed_or_harmless(
                &format!("byte {at} of {file} flipped"),
                &killed,
                &copy,
            ));
        }
    }
    say(&format!(
        "{flips} flipped bits: {noticed} noticed, the others where nothing is kept; TWINPAGE_SEED={seed}"
    ));
}

// ---- a full disk ----

/// The directory of a script that mounted a small disk there, with the files that it left.
struct SmallDisk(TempDir);

impl SmallDisk {
    /// A file that is not there is empty.
    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }
}

/// For scripts: waits until a file has a line with a word, for 30 seconds at most.
const UNTIL_SEEN: &str =
    "until_seen() { for ((i = 0; i < 3000; i++)); do grep -qs \"$1\" \"$2\" && break; sleep 0.01; done; }";

/// The script runs in a directory where it may mount file systems; its arguments are the program. `None`, which is said,
/// where nothing can be mounted.
fn on_a_small_disk(script: &str, program: &[&str]) -> Option<SmallDisk> {
    let script = format!("{UNTIL_SEEN}\n{script}");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let done = Command::new("unshare")
        .args(["-rm", "bash", "-c", &script, "bash"])
        .args(program)
        .current_dir(scratch.path())
        .env("TWINPAGE", env!("CARGO_BIN_EXE_twinpage"))
        .output()
        .expect("unshare");
    if !done.status.success() {
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        say(&format!(
            "SKIPPED: a full disk: no mount namespaces on this machine: {words}"
        ));
        return None;
    }
    Some(SmallDisk(scratch))
}

#[test]
fn a_disk_that_fills_up() {
    // A small file system in a mount namespace: the program grows until a checkpoint has no room, the last
    // checkpoint stays whole, and with more room the program goes on from it to the right end.
    let script = r#"
        set -u
        mkdir disk && mount -t tmpfs -o size=24m tmpfs disk || exit 90
        "$TWINPAGE" run --every 10ms --state disk/state -- "$@" >out 2>err; first=$?
        "$TWINPAGE" check disk/state >check 2>&1; checked=$?
        mount -o remount,size=1g disk || exit 91
        "$TWINPAGE" resume disk/state >>out 2>>err; second=$?
        echo "$first $checked $second" >codes
    "#;
    let growing = "a=(); x=x; for ((i = 0; i < 16; i++)); do x=$x$x; done; \
                   for ((i = 1; i <= 500; i++)); do a+=(\"$x$i\"); ((i % 25)) || echo $i ${#a[*]}; done; n=0; \
                   for y in \"${a[@]}\"; do n=$((n + ${#y})); done; echo $n";
    let alone = Command::new("bash").args(["-c", growing]).output().expect("bash");
    let Some(disk) = on_a_small_disk(script, &["bash", "-c", growing]) else {
        return;
    };
    let (codes, err) = (disk.read("codes"), disk.read("err"));
    let codes: Vec<i32> = codes
        .split_whitespace()
        .map(|code| code.parse().expect("a code"))
        .collect();
    assert!(
        codes[0] != 0 && !err.contains("panicked"),
        "a full disk went unnoticed: {codes:?}\n{err}"
    );
    assert!(
        err.contains("full") || err.contains("No space"),
        "the full disk is not named:\n{err}"
    );
    assert_eq!(
        codes[1],
        0,
        "the last checkpoint is not whole: {}",
        disk.read("check")
    );
    assert_eq!(codes[2], 0, "it does not go on with more room:\n{err}");
    assert_eq!(
        disk.read("out"),
        String::from_utf8_lossy(&alone.stdout),
        "it went on to another end"
    );
}

/// Pages that a lost checkpoint would have given back are given back by the next.
#[test]
fn memory_that_was_freed_while_a_disk_was_full() {
    let Some(python) = python_with("mmap") else {
        return skip("memory freed on a full disk", "python3", "python3");
    };
    let script = r#"
        mkdir disk && mount -t tmpfs -o size=128m tmpfs disk || exit 90
        "$TWINPAGE" run --every 100ms --on-full continue --state disk/state -- "$@" 2>err > >(cat >out) &
        until_seen full out
        head -c 128M /dev/zero >disk/ballast 2>/dev/null
        touch filled; until_seen "is full" err
        rm disk/ballast
        touch end; until_seen freed out
        "$TWINPAGE" info --json disk/state >info; kill -KILL $!; true
    "#;
    let program = "import mmap, os, time
def wait(name):
    while not os.path.exists(name): time.sleep(0.01)
content = os.urandom(16 << 20)
first = mmap.mmap(-1, 40 << 20)
for _ in range(40): first.write(os.urandom(1 << 20))
print('full', flush=True); wait('filled')
first.close(); second = mmap.mmap(-1, 16 << 20); second.write(content)
wait('end'); print('freed', flush=True); time.sleep(600)";
    let Some(disk) = on_a_small_disk(script, &[&python, "-c", program]) else {
        return;
    };
    let info: serde_json::Value = serde_json::from_str(&disk.read("info")).expect("info --json");
    let mebibytes = info["pages"].as_u64().expect("pages") >> 8;
    // 16 twice, and Python's own.
    assert!(
        mebibytes < 56,
        "{mebibytes} MiB: the first 40 are kept: {}",
        disk.read("err")
    );
}

/// What a program prints and what it destroys of its files find no place in a state whose disk is full. The program waits
/// for room, or ends and can be resumed, as was chosen; it never sees that its own disk were full.
#[test]
fn a_full_disk_is_not_the_programs() {
    let Some(python) = python_with("mmap") else {
        return skip("a program beside a full disk", "python3", "python3");
    };
    let script = r#"
        mkdir disk && mount -t tmpfs -o size=64m tmpfs disk || exit 90
        head -c 8M /dev/zero >data
        "$TWINPAGE" run --every 20ms --on-full "$1" --state disk/state -- "${@:3}" "$2" 2>err > >(cat >out) &
        until_seen full out
        head -c 64M /dev/zero >disk/ballast 2>/dev/null
        touch filled; until_seen "is full\|No space" err
        if [ "$1" = stop ]; then wait $!; first=$?; fi
        rm disk/ballast
        if [ "$1" = stop ]; then "$TWINPAGE" resume disk/state 2>>err > >(cat >>out) & fi
        wait $!; echo ${first-0} $? >codes
        until_seen end out
    "#;
    let program = "import os, sys, time
data = open('data', 'r+b', buffering=0)
print('full', flush=True)
while not os.path.exists('filled'): time.sleep(0.01)
if sys.argv[1] == 'prints':
    for n in range(100): print(n, 'x' * 5000, flush=True)
for n in range(50):
    data.seek(n * 100000)
    data.write(b'y' * 50000)
os.rename('data', 'moved'); open('new', 'w').write('new')
print('end', flush=True)";
    for (on_full, way) in [
        ("continue", "prints"),
        ("continue", "changes"),
        ("stop", "prints"),
        ("stop", "changes"),
    ] {
        let Some(disk) = on_a_small_disk(script, &[on_full, way, &python, "-c", program]) else {
            return;
        };
        let err = disk.read("err");
        let first = if on_full == "stop" { 125 } else { 0 };
        assert_eq!(
            disk.read("codes"),
            format!("{first} 0\n"),
            "{on_full}, {way}: {err}"
        );
        let printed = (0..100)
            .filter(|_| way == "prints")
            .map(|n| format!("{n} {}\n", "x".repeat(5000)));
        assert!(
            disk.read("out") == format!("full\n{}end\n", printed.collect::<String>()),
            "{on_full}, {way}: {err}"
        );
        let mut data = vec![0; 8 << 20];
        (0..50).for_each(|n| data[n * 100_000..][..50_000].fill(b'y'));
        assert!(
            fs::read(disk.0.path().join("moved")).expect("a file") == data,
            "{on_full}, {way}: {err}"
        );
        assert_eq!(disk.read("new"), "new", "{on_full}, {way}: {err}");
    }
}

#[test]
fn a_kill_between_run_and_first_checkpoint_is_said() {
    let seed = seed();
    let mut chance = chance(seed, "first");
    for victim in [Victim::Tree, Victim::Tool].repeat(8) {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        let state = scratch.path().join("state");
        let mut command = twinpage();
        command
            .args(["run", "--state"])
            .arg(&state)
            .args(["--", "sleep", "1000"])
            .stderr(Stdio::null());
        let mut child = command.spawn().expect("twinpage starts");
        std::thread::sleep(std::time::Duration::from_micros(chance.u64(0..30_000)));
        kill(&mut child, victim, &mut chance);
        let name = state.display().to_string();
        wait_until("nothing runs on unwatched", || with_argument(&name).is_empty());
        let check = on_state(&["check"], &state);
        let stderr = String::from_utf8_lossy(&check.stderr).into_owned();
        assert!(!stderr.contains("panicked"), "TWINPAGE_SEED={seed}: {stderr}");
        assert!(
            check.status.success() || !stderr.trim().is_empty(),
            "TWINPAGE_SEED={seed}: nothing is said"
        );
    }
}
