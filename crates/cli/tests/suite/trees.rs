//! Programs that make processes: killed at random instants and resumed, and what is told of processes that stay.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use twinpage_campaign::{either, seed};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::campaign::{Campaign, oracle};
use crate::support::process::{Victim, ended_before, family, kill, name_of, twinpage};
use crate::support::program::{compile, named, package_of, python_with, which};
use crate::support::state::{info, wait_until};
use crate::support::{chance, may_change_users, say, sink, skip};

/// `twinpage prove` finds that the script comes to the same end, however often it is killed.
pub(super) fn survives(what: &str, needs: &[&str], words: &[&str]) {
    if let Some(missing) = needs.iter().find(|tool| which(tool).is_none()) {
        return skip(what, missing, package_of(missing));
    }
    let seed = seed();
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let kills = either("3", "20");
    let mut command = twinpage();
    command.args(["prove", "--durability", "memory", "--every", "16ms", "--json"]);
    command.args(["--kills", kills, "--seed", &seed.to_string(), "--scratch"]);
    // Without them, shells do not ask the name service by a socket.
    command.env_remove("HOME").env_remove("SHELL");
    let out = command.arg(scratch.path()).arg("--").args(words).output();
    let out = out.expect("twinpage starts");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert!(
        out.status.success(),
        "{what}: {}, TWINPAGE_SEED={seed}:\n{stdout}\n{stderr}",
        out.status
    );
    say(&format!(
        "{what}: the same after {kills} kills; TWINPAGE_SEED={seed}"
    ));
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whatever twinpage does for a call of theirs just then, the program goes on.
#[test]
fn children_are_killed_at_any_instant_by_their_parent() {
    let Some(binary) = compile("killed_children.c", &["-pthread"]) else {
        return;
    };
    let (seed, times) = (seed(), either(60, 3000));
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let work = scratch.path().join("work");
    fs::create_dir(&work).expect("a directory");
    let mut command = twinpage();
    command.args(["run", "--every", "5ms", "--state"]);
    command.arg(scratch.path().join("state")).arg("--");
    command.args([binary, times.to_string(), seed.to_string()]);
    let out = command.current_dir(work).output().expect("twinpage starts");
    let told = (out.status.code(), text(&out.stdout), text(&out.stderr));
    let expected = format!("{} children were killed\n", 3 * times);
    assert_eq!(told, (Some(0), expected, String::new()), "TWINPAGE_SEED={seed}");
}

/// The threads of a process that ends or executes a program die wherever they are, also where twinpage answers their
/// calls; and twinpage's code comes into a process whose other threads run.
#[test]
fn a_program_of_threads_executes_and_ends_at_any_instant() {
    let Some(binary) = compile("leaves.c", &["-pthread"]) else {
        return;
    };
    let mut chance = chance(seed(), "leaves.c");
    let scratch = tempfile::tempdir().expect("a scratch directory");
    for turn in 0..either(5, 100) {
        let seed = chance.u64(..);
        let mut command = twinpage();
        command.args(["run", "--every", "5ms", "--state"]);
        command.arg(scratch.path().join(turn.to_string())).arg("--");
        command.args([&binary, "8", &seed.to_string()]);
        let out = command.current_dir(&scratch).output().expect("twinpage starts");
        let told = (out.status.code(), text(&out.stderr));
        assert_eq!(told, (Some(7), String::new()), "turn {turn}: leaves 8 {seed}");
    }
}

/// The kernel tells of the newest thread first. The older ones of many that make calls without end are answered as well.
#[test]
fn each_of_many_threads_that_call_gets_its_turn() {
    let Some(binary) = compile("turns.c", &["-pthread"]) else {
        return;
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut command = twinpage();
    command.args(["run", "--state"]);
    command.arg(scratch.path().join("state")).arg("--").arg(binary);
    let out = command.output().expect("twinpage starts");
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let fewest: u32 = text(&out.stdout)
        .lines()
        .next()
        .expect("a line")
        .parse()
        .expect("a number");
    assert!(fewest > 20, "a thread was answered {fewest}% as often as another");
}

/// What processes set in `/proc` about themselves, and those that they make inherit.
#[test]
fn settings_of_descendants() {
    let script = "told() { cat /proc/self/oom_score_adj /proc/self/coredump_filter; }
        work() { i=0; while [ $i -lt 30 ]; do i=$((i + 1)); seq 1 4000 | sort -rn | tail -1; told; done; }
        work > before & echo 100 > /proc/self/oom_score_adj
        (echo 300 > /proc/self/oom_score_adj; echo 0x31 > /proc/self/coredump_filter; work) > own &
        (sh -c 'sleep 0.1; cat /proc/self/oom_score_adj'; work) > inherited & wait; told; cat before own inherited | cksum";
    survives(
        "settings of descendants",
        &["cat", "seq", "sort", "tail", "cksum"],
        &["sh", "-c", script],
    );
}

#[test]
fn a_script_with_pipelines_subshells_waits_and_traps() {
    let script = "trap 'echo left; cat log | wc -l' EXIT; i=0
        while [ $i -lt 10 ]; do
            n=$(seq 1 300 | grep -c 7); (umask 077; mkdir -p sub; cd sub && echo $i $n >> deep) >> log
            sleep 0.01 & wait $!; echo waited $?
            sh -c 'kill -9 $$'; echo killed $?; (exit 3); echo ended $?
            echo line $i | tee -a log | sed s/line/said/; i=$((i + 1))
        done; ls -l sub | cut -c1-10; sort -r log | cksum; exit 5";
    survives(
        "a shell script",
        &["seq", "grep", "sed", "tee"],
        &["sh", "-c", script],
    );
}

/// Outside twinpage process ids wrap around; in the tree's own namespace there are too few for that.
#[test]
fn no_process_gets_an_id_that_another_had() {
    let script = "last=0; i=0; while [ $i -lt 400 ]; do now=$(sh -c 'echo $$')
        [ $now -gt $last ] || [ $last -gt 30000 ] || echo \"$now after $last\"
        last=$now; i=$((i + 1)); done; echo end";
    survives("ids", &["sh"], &["sh", "-c", script]);
}

/// A script that starts this number of sleeping processes, and loops while the condition `working` holds.
fn with_sleepers(processes: u32, working: &str) -> String {
    format!(
        "i=0; while [ $i -lt {processes} ]; do sleep 1000 & all=\"$all $!\"; i=$((i + 1)); done
        i=0; while {working}; do i=$((i + 1)); done; kill $all; wait; echo end"
    )
}

/// Each has descriptors of its own.
#[test]
fn a_tree_of_500_processes() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    if limit.is_some_and(|limit| limit < 4096) {
        return skip("500 processes", "4096 open files", "a higher limit (ulimit -Hn)");
    }
    let script = with_sleepers(500, &format!("[ $i -lt {} ]", either(700_000, 2_000_000)));
    survives("500 processes", &["sh", "sleep"], &["sh", "-c", &script]);
}

/// It goes on without checkpoints, and says how it gets some: where that is seen beforehand, and where a file cannot be
/// opened.
#[test]
fn a_tree_for_which_too_few_files_may_be_opened() {
    too_few_files(200, 0);
    too_few_files(40, 300);
}

fn too_few_files(processes: u32, inherited: u32) {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let at = |name: &str| scratch.path().join(name);
    let file = |name: &str| fs::File::create(at(name)).expect("a file");
    let read = |name: &str| fs::read_to_string(at(name)).unwrap_or_default();
    let tool = twinpage();
    let mut limited = Command::new("bash");
    limited
        .arg("-c")
        .arg(format!(
            "for ((i = 0; i < {inherited}; i++)); do exec {{fd}}</dev/null; done; ulimit -n 600 && exec \"$@\""
        ))
        .arg("bash")
        .arg(tool.get_program())
        .args(tool.get_args())
        .args(["run", "--every", "16ms", "--state", "state", "--", "sh", "-c"])
        .arg(with_sleepers(processes, "[ ! -e go ]"))
        .current_dir(scratch.path())
        .stdout(file("out"))
        .stderr(file("err"));
    let mut child = limited.spawn().expect("twinpage starts");
    let is_told = || read("err").contains("raise the limit (ulimit -Hn)");
    wait_until("it is told", || {
        is_told() || child.try_wait().is_ok_and(|ended| ended.is_some())
    });
    file("go");
    let status = child.wait().expect("it ends");
    assert!(
        is_told() && status.success() && read("out") == "end\n",
        "{status}: {}",
        read("err")
    );
}

#[test]
fn an_archive_and_checksums_beside_each_other() {
    // A rollback makes `in` again, with its times but for the one of its last change, which tar compares.
    let script = "mkdir in; for i in 1 2 3 4 5 6; do seq 1 ${i}000 > in/$i; done; tar --warning=no-file-changed -cf - in | gzip -n > all.tgz
        rm -r in; gzip -dc all.tgz | tar xf -; mv in out; ls out | sed s,^,out/, | xargs -P2 -n 1 cksum | sort; rm all.tgz
        find out -type f | sort | xargs cat | tail -n 1";
    survives(
        "an archive",
        &["tar", "gzip", "xargs", "find", "cksum"],
        &["sh", "-c", script],
    );
}

#[test]
fn a_build_of_two_jobs() {
    let script = "for i in 1 2 3; do echo \"int f$i(int x) { return x * $i; }\" > f$i.c; done
        printf '#include <stdio.h>\\nint f1(int), f2(int), f3(int);\\nint main(void) { printf(\"%%d\\\\n\", f1(f2(f3(7)))); }\\n' > main.c
        printf 'run: prog\\n\\t@./prog\\nprog: main.o f1.o f2.o f3.o\\n\\t@cc -o $@ $^\\n%%.o: %%.c\\n\\t@cc -c -o $@ $<\\n' > Makefile
        make -j2 && make && ls";
    survives("a build", &["make", "cc"], &["sh", "-c", script]);
}

#[test]
fn python_with_children() {
    let Some(python) = python_with("subprocess") else {
        return;
    };
    let program = "import os, subprocess as s
for i in range(8):
    print(i, s.run(['sh', '-c', f'echo {i} | tr 0-9 a-j; exit {i}'], capture_output=True, text=True), flush=True)
    child = s.Popen(['cat'], stdin=s.PIPE, stdout=s.PIPE)
    print(len(child.communicate(b'x' * 100000)[0]))
    child = os.fork()
    if child == 0: os.chdir('/'); os.umask(0o77); os._exit(7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), os.getcwd() == '/')
    with open('log', 'a') as log: s.run(['echo', str(i)], stdout=log)
print(open('log').read())";
    survives("python's children", &["cat", "tr"], &[&python, "-c", program]);
}

#[test]
fn many_processes_at_once() {
    let script = "all() { if [ $1 -gt 0 ]; then all $(($1 - 1)) & all $(($1 - 1)) & wait; fi; echo $1; }; all 5 | sort | uniq -c";
    survives("63 processes", &["sort", "uniq"], &["sh", "-c", script]);
}

/// Each process makes two others, until 126 are there that wait for each other. They end, and it begins again.
#[test]
fn a_fork_bomb_within_the_limits() {
    let script =
        "bomb() { if [ $1 -gt 0 ]; then bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; fi; echo $1 >> log; }
        for i in 1 2 3; do bomb 6; sort log | uniq -c; rm log; done";
    survives("a fork bomb", &["sort", "uniq"], &["sh", "-c", script]);
}

/// One life of a script.
pub(super) struct Life {
    scratch: tempfile::TempDir,
    child: Option<Child>,
}

/// A test that fails leaves nothing running.
impl Drop for Life {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Life {
    pub(super) fn begin(script: &str) -> Life {
        Life::begin_with("20ms", script)
    }

    fn begin_with(every: &str, script: &str) -> Life {
        let scratch = tempfile::tempdir().expect("a scratch directory");
        fs::create_dir(scratch.path().join("work")).expect("a working directory");
        let mut life = Life { scratch, child: None };
        life.start(&["run", "--every", every, "--state"], &["--", "sh", "-c", script]);
        life
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub(super) fn read(&self, name: &str) -> String {
        text(&fs::read(self.path(name)).unwrap_or_default())
    }

    pub(super) fn start(&mut self, words: &[&str], program: &[&str]) {
        let append = |name| {
            let file = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(self.path(name));
            Stdio::from(file.expect("a file for what is printed"))
        };
        let mut command = twinpage();
        command.args(words).arg(self.path("state")).args(program);
        command
            .current_dir(self.path("work"))
            .stdout(append("out"))
            .stderr(append("err"));
        self.child = Some(command.spawn().expect("twinpage starts"));
    }

    pub(super) fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was started")
    }

    pub(super) fn until_told(&self, words: &str) {
        wait_until(words, || self.read("err").contains(words));
    }

    pub(super) fn info(&self) -> serde_json::Value {
        let info = info(&self.path("state"));
        assert!(info.is_object(), "no document: {}", self.read("err"));
        info
    }

    /// How many processes the last checkpoint has; 0 when there is none yet.
    pub(super) fn processes(&self) -> u64 {
        info(&self.path("state"))["program"]["processes"]
            .as_u64()
            .unwrap_or(0)
    }

    /// Waits for a checkpoint from now on with at least that many processes.
    pub(super) fn until_checkpoint_of(&self, processes: u64) {
        let seen = format!("a checkpoint with {processes} processes");
        let now = now_ns() / 1_000_000;
        wait_until(&seen, || {
            let info = info(&self.path("state"));
            let number = |name: &str| info["program"][name].as_u64().unwrap_or(0);
            number("processes") >= processes && u128::from(number("checkpoint_unix_ms")) > now
        });
    }

    /// Kills twinpage once there was a checkpoint from now on with at least that many processes, and goes on with it.
    pub(super) fn kill_and_resume(&mut self, processes: u64, chance: &mut fastrand::Rng) {
        self.until_checkpoint_of(processes);
        kill(self.child(), Victim::Tool, chance);
        self.start(&["resume"], &[]);
    }

    pub(super) fn end(mut self) -> (Option<i32>, Life) {
        let status = self.child().wait().expect("wait for twinpage");
        (status.code(), self)
    }

    /// Makes the file it waits for, and checks that it ends well and printed this, and that no checkpoint waited.
    fn ends_when_told(self, expected: &str, seed: u64) {
        fs::write(self.path("go"), "").expect("a file");
        let (code, life) = self.end();
        let (out, err) = (life.read("out"), life.read("err"));
        assert_eq!(
            (code, out.as_str()),
            (Some(0), expected),
            "TWINPAGE_SEED={seed}: {err}"
        );
        assert!(!err.contains("no checkpoint"), "nothing is waited for: {err}");
    }
}

/// A program that keeps its child from being captured until a file is there.
fn unseen() -> Option<String> {
    compile("unseen.c", &[])
}

fn now_ns() -> u128 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.expect("a clock").as_nanos()
}

/// They do not begin again: one tells at its end when it began.
#[test]
fn children_go_on_where_they_were() {
    let seed = seed();
    let mut chance = chance(seed, "children go on");
    let mut life = Life::begin(
        "(t=$(date +%s%N); echo > dated; until [ -e ../go ]; do sleep 0.02; done; echo $t) | sed s/^/began:/ &
         (sh -c 'until [ -e ../go ]; do sleep 0.02; done; exit 3'; echo ended $?) | cat; wait; echo end",
    );
    wait_until("a child knows when it began", || life.path("work/dated").exists());
    // The shell; two subshells, a shell in one of them, sed and cat.
    life.kill_and_resume(6, &mut chance);
    let killed_at = now_ns();
    life.kill_and_resume(6, &mut chance);
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let (out, err) = (life.read("out"), life.read("err"));
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let began = lines
        .first()
        .and_then(|line| line.strip_prefix("began:")?.parse().ok());
    assert!(
        began.is_some_and(|began: u128| began < killed_at),
        "it began again after it was killed: TWINPAGE_SEED={seed}: {out}\n{err}"
    );
    let rest = (code, &lines[1..]);
    assert_eq!(
        rest,
        (Some(0), &["end", "ended 3"][..]),
        "TWINPAGE_SEED={seed}: {err}"
    );
    assert!(!err.contains("no checkpoint"), "nothing is waited for: {err}");
}

/// Each kill comes after a checkpoint that has all of them.
#[test]
fn processes_that_share_memory_go_on_where_they_were() {
    let program = named("c_shared.c");
    let Some(line) = program.command(400) else { return };
    let seed = seed();
    let mut chance = chance(seed, "shared memory goes on");
    let alone = oracle(&line, None);
    let mut life = Life::begin(&format!("exec {}", line.join(" ")));
    for _ in 0..4 {
        life.kill_and_resume(5, &mut chance);
    }
    let (code, life) = life.end();
    let err = life.read("err");
    assert_eq!(code, Some(0), "TWINPAGE_SEED={seed}: {err}");
    assert_eq!(
        life.read("out"),
        text(&alone.stdout),
        "TWINPAGE_SEED={seed}: {err}"
    );
    assert!(!err.contains("no checkpoint"), "nothing is waited for: {err}");
}

/// As from a service manager, or a system that shuts down: the signal reaches every process, in an order drawn by chance.
/// None notices it, also one that would end of it, or handle it.
#[test]
fn a_tree_of_which_every_process_is_asked_to_end_is_suspended() {
    for signal in [Signal::TERM, Signal::HUP] {
        let mut chance = chance(seed(), "all are asked to end");
        let mut life = Life::begin(
            "until_go() { until [ -e ../go ]; do sleep 0.02; done; }
             (until_go; echo first) & (trap 'echo handled' TERM HUP; until_go; echo second) | cat &
             setsid sleep 1000 & until_go; kill $!; wait; echo end",
        );
        for _ in 0..3 {
            life.until_checkpoint_of(6);
            let mut family = family(life.child().id() as i32);
            chance.shuffle(&mut family);
            for pid in family {
                // One that is not there any more ended with twinpage.
                let _ = kill_process(Pid::from_raw(pid).expect("an id"), signal);
            }
            let (code, now) = life.end();
            let err = now.read("err");
            assert!(
                code.is_none() && err.contains("suspended; go on with"),
                "{code:?}: {err}"
            );
            life = now;
            life.start(&["resume", "--every", "20ms"], &[]);
        }
        fs::write(life.path("go"), "").expect("a file");
        let (code, life) = life.end();
        let out = life.read("out");
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        let expected = (Some(0), vec!["end", "first", "second"]);
        assert_eq!((code, lines), expected, "{}", life.read("err"));
    }
}

/// A suspension has the children in it, too.
#[test]
fn a_suspended_tree_goes_on() {
    let mut life = Life::begin(
        "until_go() { until [ -e ../go ]; do sleep 0.02; done; }
         (until_go; echo first) & (until_go; echo second) | cat; wait; echo end",
    );
    wait_until("its processes", || life.processes() >= 4);
    let pid = Pid::from_child(life.child());
    kill_process(pid, Signal::TERM).expect("twinpage runs");
    let (_, mut life) = life.end();
    assert!(life.read("err").contains("suspended"), "{}", life.read("err"));
    life.start(&["resume"], &[]);
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let out = life.read("out");
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let expected = vec!["end", "first", "second"];
    assert_eq!((code, lines), (Some(0), expected), "{}", life.read("err"));
}

/// Random trees of processes, alone and under kills.
#[test]
fn random_trees_come_to_the_same() {
    let Some(binary) = compile("random_tree.c", &[]) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, "random trees");
    let trees = either(4, 60);
    let (mut kills, mut resumes) = (0, 0);
    for _ in 0..trees {
        let drawn = chance.u32(..);
        let line = [binary.clone(), drawn.to_string(), "120".to_owned()];
        let alone = oracle(&line, None);
        assert!(
            alone.status.success(),
            "tree {drawn} fails alone: {}",
            alone.status
        );
        let name = format!("tree {drawn}");
        let campaign = Campaign {
            kills: 6,
            sink: sink::Kind::File,
            ..Campaign::new(&name, &line, &["--every", "8ms"], seed)
        };
        let tally = campaign.survive(&alone, &mut chance);
        kills += tally.kills;
        resumes += tally.resumes;
    }
    say(&format!(
        "{trees} random trees: {kills} kills, {resumes} resumes, identical; TWINPAGE_SEED={seed}"
    ));
}

#[test]
fn pipelines_with_sleepers_and_workers_beside_each_other() {
    let script = "work() { sleep 0.1; seq 1 $1 | cksum; }
        for i in 1 2 3; do for j in 1 2 3; do work $i$j00 > out$j & done; wait; cat out1 out2 out3; done
        seq 1 12 | xargs -P2 -n 1 sh -c 'sleep 0.05; echo $1 | cksum' sh | sort
        (trap 'echo told' TERM; echo ready; sleep 0.4 & wait; wait; echo over) | while read line; do echo saw $line; done
        sleep 0.5 | cat & child=$!; kill -STOP $child; sleep 0.2; kill -CONT $child; wait $child; echo $?";
    survives("pipelines", &["seq", "cksum", "xargs"], &["sh", "-c", script]);
}

#[test]
fn python_with_workers() {
    let Some(python) = python_with("multiprocessing") else {
        return;
    };
    let program = "import multiprocessing as m, hashlib
def work(n, out):
    h = hashlib.sha256()
    for i in range(n): h.update(bytes(20000)); h.update(str(i).encode())
    out.send((n, h.hexdigest()))
    out.close()
if __name__ == '__main__':
    m.set_start_method('fork')
    for turn in range(4):
        running = []
        for n in (300, 500, 700):
            mine, theirs = m.Pipe(duplex=False)
            child = m.Process(target=work, args=(n + turn, theirs))
            child.start(); theirs.close(); running.append((child, mine))
        for child, mine in running:
            print(mine.recv(), flush=True); child.join(); print(child.exitcode)";
    survives("python's workers", &[], &[&python, "-c", program]);
}

/// Python's two-way pipes are socket pairs, and so are those that asyncio hears of ended children by.
#[test]
fn python_with_two_way_pipes_and_asyncio() {
    let Some(python) = python_with("asyncio") else {
        return;
    };
    let program = "import asyncio, hashlib, multiprocessing as m
def work(n, tie):
    while (word := tie.recv()) is not None:
        tie.send((n, word, hashlib.sha256(bytes(20000 + len(word))).hexdigest()))
async def talk():
    pipe = asyncio.subprocess.PIPE
    children = [await asyncio.create_subprocess_exec('cat', stdin=pipe, stdout=pipe) for _ in range(3)]
    for turn in range(60):
        for n, child in enumerate(children): child.stdin.write(f'{turn} {n}\\n'.encode())
        print([(await child.stdout.readline()).decode() for child in children], sum(range(40000)), flush=True)
    for child in children: child.stdin.close(); print(await child.wait())
if __name__ == '__main__':
    m.set_start_method('fork')
    running = []
    for n in range(3):
        mine, theirs = m.Pipe(duplex=True)
        child = m.Process(target=work, args=(n, theirs))
        child.start(); theirs.close(); running.append((child, mine))
    for turn in range(60):
        for child, tie in running: tie.send('x' * turn)
        print([tie.recv() for child, tie in running], flush=True)
    asyncio.run(talk())
    for child, tie in running: tie.send(None); child.join(); print(child.exitcode)";
    survives("python's two-way pipes", &["cat"], &[&python, "-c", program]);
}

/// Node's children have socket pairs as their standard streams.
const NODE: &str = r"
const { spawn } = require('child_process'), fs = require('fs');
const child = () => {
    const one = spawn('sh', ['-c', 'while read x; do echo $((x * 7 + 1)); done; exit 3']);
    one.waits = []; one.heard = '';
    one.stdout.on('data', bytes => {
        const lines = (one.heard + bytes).split('\n');
        one.heard = lines.pop();
        for (const line of lines) one.waits.shift()(Number(line));
    });
    return one;
};
const ask = (one, x) => new Promise(answer => { one.waits.push(answer); one.stdin.write(x + '\n'); });
(async () => {
    const children = [child(), child(), child()];
    for (let turn = 0; TURNS; turn++) {
        const got = await Promise.all(children.map((one, n) => ask(one, turn * 3 + n)));
        got.forEach((answer, n) => { if (answer !== (turn * 3 + n) * 7 + 1) throw new Error(`${turn}: ${got}`); });
        for (let i = 0, sum = 0; i < 100000; i++) sum += i % 7;
        SAY
    }
    for (const one of children) { one.stdin.end(); console.log(await new Promise(ends => one.on('close', ends))); }
})();";

#[test]
fn node_with_children() {
    let script = NODE.replace("TURNS", "turn < 200");
    let script = script.replace("SAY", "if (turn % 10 === 0) console.log(turn, got.join(' '));");
    survives("node's children", &["node"], &["node", "-e", &script]);
}

/// No checkpoint waits for the end of a process that asked for a memory protection key, as node does, or whether it has
/// an ambient capability, as libraries do.
#[test]
fn a_child_that_asked_for_a_key_or_of_a_capability_goes_on_where_it_was() {
    const SCRIPT: &str = "import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
child = os.fork()
if child == 0:
    key, why = libc.syscall(330, 0, 0), ctypes.get_errno()  # pkey_alloc
    ambient = [libc.prctl(47, what, 0, 0, 0) for what in (1, 4)]  # PR_CAP_AMBIENT: is it set, drop all
    while not os.path.exists('../go'): time.sleep(0.001)
    print(key, os.strerror(why), *ambient, flush=True)
    os._exit(0)
os.waitpid(child, 0)";
    let Some(python) = python_with("ctypes") else {
        return skip("a child that asks", "python3", "python3");
    };
    let seed = seed();
    let mut chance = chance(seed, "a child that asks");
    let scratch = tempfile::NamedTempFile::new().expect("a file for the script");
    fs::write(scratch.path(), SCRIPT).expect("the script");
    let mut life = Life::begin(&format!("exec {python} {}", scratch.path().display()));
    for _ in 0..4 {
        life.kill_and_resume(2, &mut chance);
    }
    life.ends_when_told("-1 Function not implemented 0 0\n", seed);
}

/// As programs do that watch their workers (psutil).
#[test]
fn a_file_about_a_child_is_read_on_from_where_it_was() {
    const SCRIPT: &str = "import os, time
wait, tell = os.pipe()
child = os.fork()
if child == 0:
    os.read(wait, 1)
    os._exit(0)
about, tasks = os.open(f'/proc/{child}/limits', os.O_RDONLY), os.open(f'/proc/{child}/task', os.O_RDONLY)
said = os.read(about, 5)
while not os.path.exists('../go'): time.sleep(0.001)
print(said, os.read(about, 80).split()[:2], os.listdir(tasks) == [str(child)], flush=True)
os.write(tell, b'x')
os.waitpid(child, 0)";
    let Some(python) = python_with("os") else {
        return skip("a file about a child", "python3", "python3");
    };
    let seed = seed();
    let mut chance = chance(seed, "a file about a child");
    let scratch = tempfile::NamedTempFile::new().expect("a file for the script");
    fs::write(scratch.path(), SCRIPT).expect("the script");
    let mut life = Life::begin(&format!("exec {python} {}", scratch.path().display()));
    for _ in 0..4 {
        life.kill_and_resume(2, &mut chance);
    }
    life.ends_when_told("b'Limit' [b'Soft', b'Limit'] True\n", seed);
}

/// V8 keeps the lowest 4 GiB from use in the processes of Chromium: where calls are planted, too.
#[test]
fn a_child_that_keeps_low_memory_from_use_goes_on_where_it_was() {
    let Some(keeps) = compile("c_keeps.c", &["-static-pie", "-fPIE"]) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, "low memory");
    let mut life = Life::begin(&format!("{keeps} ../go; echo $?"));
    wait_until("the memory is kept", || life.read("out") == "kept\n");
    for _ in 0..4 {
        life.kill_and_resume(2, &mut chance);
    }
    life.ends_when_told("kept\nstill kept\n3\n", seed);
}

/// Checkpoints are made while the children live: a resume starts none of them again, and no checkpoint waits.
#[test]
fn node_and_its_children_go_on_where_they_were() {
    if which("node").is_none() {
        return skip("node's children", "node", "nodejs");
    }
    let seed = seed();
    let mut chance = chance(seed, "node's children go on");
    let script = NODE
        .replace("TURNS", "!fs.existsSync('../go')")
        .replace("SAY", "");
    let scratch = tempfile::NamedTempFile::new().expect("a file for the script");
    fs::write(scratch.path(), script).expect("the script");
    let mut life = Life::begin(&format!("exec node {}", scratch.path().display()));
    for _ in 0..10 {
        life.kill_and_resume(4, &mut chance);
    }
    life.ends_when_told("3\n3\n3\n", seed);
}

/// A descriptor under way in a message is waited for; it is there when it has arrived, also after its sender's end.
#[test]
fn descriptors_sent_along_are_captured_when_they_have_arrived() {
    let Some(python) = python_with("socket") else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, "descriptors sent along");
    let program = "import os, socket, time
def until(name):
    while not os.path.exists(name): time.sleep(0.02)
mine, theirs = socket.socketpair()
if os.fork() == 0:
    r, w = os.pipe()
    os.write(w, b'in the pipe')
    socket.send_fds(theirs, [b'take it'], [r])
    open('../sent', 'w').close()
    until('../ended'); os._exit(0)
until('../receive')
word, (r,), *_ = socket.recv_fds(mine, 100, 1)
open('../received', 'w').close()
os.wait()
until('../go')
print(word.decode(), os.read(r, 100).decode())";
    let script = tempfile::NamedTempFile::new().expect("a file for the program");
    fs::write(script.path(), program).expect("the program");
    let mut life = Life::begin(&format!("exec {python} {}", script.path().display()));
    life.until_told("SCM_RIGHTS");
    fs::write(life.path("receive"), "").expect("a file");
    life.until_told("checkpoints are made again");
    life.kill_and_resume(2, &mut chance);
    fs::write(life.path("ended"), "").expect("a file");
    life.kill_and_resume(1, &mut chance);
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(0), "take it in the pipe\n"),
        "TWINPAGE_SEED={seed}: {}",
        life.read("err")
    );
}

/// A checkpoint never comes; it is told with the process, and a resume does everything again, on files as they were.
#[test]
fn a_child_that_cannot_be_captured_is_told_and_its_files_are_rolled_back() {
    let Some(unseen) = unseen() else { return };
    let mut life = Life::begin(&format!(
        "echo one >> log; (umask 077; mkdir sub; cd sub; echo two >> made; mv made moved; rm -f ../log; echo three >> ../log
         {unseen} ../../go); cat log sub/moved; echo four >> sub/moved",
    ));
    life.until_told("no checkpoint for ");
    let told = life.read("err");
    assert!(
        told.contains("unseen ../../go): descriptor 3 has news of watched files"),
        "{told}"
    );
    wait_until("the child wrote", || life.read("work/log") == "three\n");
    assert!(life.path("work/sub/moved").exists());
    let waits = life.info()["waits"]["process"].as_str().unwrap_or("").to_owned();
    assert!(waits.contains("unseen"), "{waits}");
    assert_eq!(life.read("out"), "", "nothing goes out before a checkpoint");
    kill(
        life.child(),
        Victim::Tool,
        &mut chance(seed(), "a child that does not end"),
    );
    fs::write(life.path("go"), "").expect("a file");
    life.start(&["resume"], &[]);
    let (code, life) = life.end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(0), "three\ntwo\n"),
        "{}",
        life.read("err")
    );
    assert_eq!(life.read("work/sub/moved"), "two\nfour\n");
}

#[test]
fn it_is_told_once_and_when_checkpoints_come_again() {
    let Some(unseen) = unseen() else { return };
    let life = Life::begin(&format!(
        "echo first; {unseen} ../go; i=0
         while [ $i -lt 200000 ]; do i=$((i + 1)); done; echo second",
    ));
    life.until_told("no checkpoint for ");
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    assert_eq!((code, life.read("out").as_str()), (Some(0), "first\nsecond\n"));
    let err = life.read("err");
    assert_eq!(err.lines().count(), 2, "{err}");
    assert!(err.contains("checkpoints are made again"), "{err}");
}

/// What a checkpoint needs of a removed file keeps its watch, and a checkpoint would wait for the end of that.
#[test]
fn watched_files_that_are_removed_keep_no_checkpoint_from_coming() {
    let Some(python) = python_with("ctypes") else {
        return;
    };
    let program = "import ctypes, os, struct
c = ctypes.CDLL(None)
os.mkdir('d'); os.mkdir('e'); open('d/file', 'w').close()
fd = c.inotify_init()
for name in (b'd/file', b'e'): assert c.inotify_add_watch(fd, name, 0x400) > 0
while not os.path.exists('../go'): pass
if os.fork() == 0: os.execvp('rm', ['rm', '-r', 'd', 'e'])
os.wait()
print('removed', flush=True)
ended = set()
while len(ended) < 2:
    told = os.read(fd, 4096)
    events = (struct.unpack_from('ii', told, at) for at in range(0, len(told), 16))
    ended |= {number for number, mask in events if mask == 0x400}
print(sorted(ended))";
    let script = tempfile::NamedTempFile::new().expect("a file for the program");
    fs::write(script.path(), program).expect("the program");
    let life = Life::begin(&format!("exec {python} {}", script.path().display()));
    wait_until("a checkpoint", || life.processes() == 1);
    fs::write(life.path("go"), "").expect("a file");
    wait_until("a checkpoint without the files", || {
        assert!(
            !life.read("err").contains("no checkpoint for "),
            "{}",
            life.read("err")
        );
        life.read("out").starts_with("removed\n")
    });
    let (code, life) = life.end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(0), "removed\n[1, 2]\n"),
        "{}",
        life.read("err")
    );
}

/// Where checkpoints come rarely, one that meets a child is not late yet: the child is told when it has waited itself.
#[test]
fn a_checkpoint_that_is_due_has_not_waited_since_the_one_before() {
    let Some(unseen) = unseen() else { return };
    let life = Life::begin_with("3s", &format!("{unseen} ../go"));
    life.until_told("no checkpoint for ");
    let told = life.read("err");
    let seconds = told.split_once("no checkpoint for ").and_then(|(_, rest)| {
        let (seconds, _) = rest.split_once('s')?;
        seconds.parse::<f64>().ok()
    });
    assert!(
        seconds.is_some_and(|seconds| seconds >= 5.0),
        "3 s until it is due, and 2: {told}"
    );
    fs::write(life.path("go"), "").expect("a file");
    assert_eq!(life.end().0, Some(0));
}

/// The addresses that twinpage needs in a process are not those that it may have (RLIMIT_AS). Where the limit cannot be
/// lifted for them, its checkpoint is waited for.
#[test]
fn a_child_that_may_have_no_more_addresses_goes_on() {
    let life = Life::begin(
        "size='while read -r name kib _; do [ $name != VmSize: ] || echo $kib; done < /proc/self/status'
         kib=$(sh -c \"$size\")
         (ulimit -v $((kib + 300)); exec sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo $i $(ulimit -v)')
         echo $((kib + 300))",
    );
    let (code, life) = life.end();
    let (out, err) = (life.read("out"), life.read("err"));
    let limit = out.lines().last().unwrap_or_default();
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(out, format!("300000 {limit}\n{limit}\n"), "{err}");
}

/// It is asked to end in the midst of that: it goes on from its last checkpoint.
#[test]
fn a_suspension_does_not_wait_for_ever() {
    let Some(unseen) = unseen() else { return };
    let mut life = Life::begin(&format!(
        "echo before; until [ -e ../begin ]; do :; done; {unseen} ../go; echo after"
    ));
    wait_until("a checkpoint", || life.read("out") == "before\n");
    fs::write(life.path("begin"), "").expect("a file");
    life.until_told("no checkpoint for ");
    let pid = Pid::from_child(life.child());
    kill_process(pid, Signal::TERM).expect("twinpage runs");
    let (code, mut life) = life.end();
    let err = life.read("err");
    assert_eq!(code, None, "it dies of the signal: {err}");
    assert!(
        err.contains("so no checkpoint could be made") && err.contains("suspended"),
        "{err}"
    );
    fs::write(life.path("go"), "").expect("a file");
    life.start(&["resume"], &[]);
    let (code, life) = life.end();
    assert_eq!(
        (code, life.read("out").as_str()),
        (Some(0), "before\nafter\n"),
        "{}",
        life.read("err")
    );
}

/// A child that is another user's, and may not kill the program, has not: when others kill that later, it goes on.
#[test]
fn a_kill_that_the_kernel_refuses_is_none() {
    let Some(python) = python_with("os") else {
        return;
    };
    if !may_change_users() {
        return say("SKIPPED: a kill that is refused: it takes another user");
    }
    let program = "import os, time
first = os.getpid()
if os.fork() == 0:
    os.setuid(65534)
    for target in (first, -1):
        try: os.kill(target, 9)
        except OSError: pass
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
while not os.path.exists('../go'): time.sleep(0.01)
print('end')";
    let mut life = Life::begin(&format!("exec {python} -c \"{program}\""));
    wait_until("its child was refused", || life.read("out") == "3\n");
    kill(
        life.child(),
        Victim::Program,
        &mut chance(seed(), "a kill that is refused"),
    );
    fs::write(life.path("go"), "").expect("a file");
    life.start(&["resume"], &[]);
    let (code, life) = life.end();
    let end = (code, life.read("out"));
    assert_eq!(end, (Some(0), "3\nend\n".into()), "{}", life.read("err"));
}

/// A child that is linked to the addresses where calls are planted goes on to its end. Checkpoints wait, and come again.
#[test]
fn a_child_linked_to_low_addresses_is_waited_for() {
    let Some(low) = compile("c_low.c", &["-static", "-no-pie", "-Wl,-Ttext-segment=0x10000"]) else {
        return;
    };
    let life = Life::begin(&format!("{low} ../go; echo $?; sleep 0.3"));
    life.until_told("programs linked to so low addresses");
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let (out, err) = (life.read("out"), life.read("err"));
    assert_eq!((code, out.as_str()), (Some(0), "end\n3\n"), "{err}");
    assert!(err.contains("checkpoints are made again"), "{err}");
}

/// A child that stays in the session which its parent has left cannot be made again so. Checkpoints wait, and come again.
#[test]
fn a_child_in_the_session_that_its_parent_left_is_waited_for() {
    if which("setsid").is_none() {
        return skip("a session that was left", "setsid", "util-linux");
    }
    let life = Life::begin(
        // They start nothing meanwhile: that would be waited for as well, and told instead.
        "(sh -c 'until [ -e ../go ]; do :; done' & exec setsid sh -c 'until [ -e ../go ]; do :; done; sleep 0.3; echo left'); echo end",
    );
    life.until_told("which began one later");
    fs::write(life.path("go"), "").expect("a file");
    let (code, life) = life.end();
    let end = (code, life.read("out"));
    assert_eq!(end, (Some(0), "left\nend\n".into()), "{}", life.read("err"));
    assert!(
        life.read("err").contains("checkpoints are made again"),
        "{}",
        life.read("err")
    );
}

/// Its children are killed from outside, at any instant: it sees that, and goes on.
#[test]
fn children_are_killed_at_any_instant() {
    let seed = seed();
    let mut chance = chance(seed, "children");
    let mut life = Life::begin(
        "i=0; while [ $i -lt 40 ]; do (sleep 0.02; cat /dev/null) | cat 2>/dev/null; i=$((i + 1)); done; echo end",
    );
    let tool = life.child().id() as i32;
    let soon = || std::time::Instant::now() + std::time::Duration::from_millis(3);
    while ended_before(life.child(), soon()).is_none() {
        let mut family = family(tool);
        family.retain(|pid| ["sleep", "cat"].contains(&name_of(*pid).as_str()));
        if let Some(pid) = chance.choice(&family) {
            let _ = kill_process(Pid::from_raw(*pid).expect("a process"), Signal::KILL);
        }
    }
    let (code, life) = life.end();
    let read = life.read("out");
    assert_eq!(
        (code, read.as_str()),
        (Some(0), "end\n"),
        "TWINPAGE_SEED={seed}: {}",
        life.read("err")
    );
}

/// Of another user: it runs as the one who started twinpage.
#[test]
fn a_set_id_program_runs_without_its_bit() {
    const OTHER: u32 = 65_534;
    let Some(id) = which("id") else {
        return skip("set-id programs", "id", "coreutils");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let copy = scratch.path().join("id");
    fs::copy(&id, &copy).expect("a copy");
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).expect("its mode");
    let own = fs::metadata(&copy).expect("the copy").uid();
    if chown(&copy, Some(OTHER), None).is_err() {
        return skip(
            "set-id programs",
            "the right to give files away",
            "nothing, but run it as root",
        );
    }
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let alone = Command::new(&copy).arg("-u").output().expect("it starts");
    if text(&alone.stdout) != format!("{OTHER}\n") {
        return skip(
            "set-id programs",
            "a file system with set-id",
            "nothing, but set TMPDIR",
        );
    }
    let (code, life) = Life::begin(&format!("{} -u; echo $?", copy.display())).end();
    assert_eq!(
        (code, life.read("out")),
        (Some(0), format!("{own}\n0\n")),
        "{}",
        life.read("err")
    );
}

/// Types at a shell with job control, kills twinpage when what it printed was seen, resumes it and types on: at a prompt,
/// in a pipeline that runs, and beside a stopped job.
const TYPIST: &str = r#"
import json, os, pty, re, select, signal, subprocess, sys, time
twinpage, bash = sys.argv[1:]
def start(*words):
    global shown
    shown = b''
    pid, terminal = pty.fork()
    if pid == 0: os.execv(twinpage, [twinpage, *words])
    return pid, terminal
def until(pid, terminal, holds):
    global shown
    while not holds():
        ended, status = os.waitpid(pid, os.WNOHANG)
        assert ended == 0, (status, shown)
        if select.select([terminal], [], [], 0.01)[0]: shown += os.read(terminal, 65536)
def types(pid, terminal, line, text):
    os.write(terminal, line.encode() + b'\n')
    until(pid, terminal, lambda: text in shown)
def sleeps(pid, terminal, name, key):
    os.write(terminal, b'touch ' + name + b'; sleep 1000\n')
    until(pid, terminal, lambda: os.path.exists(name))
    time.sleep(0.1)
    os.write(terminal, key)
def interrupts(pid, terminal, name):
    sleeps(pid, terminal, name, b'\x03')
    types(pid, terminal, 'echo ended$?', b'ended130')
def killed(pid, terminal, processes):
    def held():
        info = subprocess.run([twinpage, 'info', '--json', 'state'], capture_output=True).stdout
        return json.loads(info)['program']['processes'] == processes
    until(pid, terminal, held)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return start('resume', 'state')
one = start('run', '--every', '20ms', '--state', 'state', '--', bash, '--norc', '-i')
types(*one, 'seq 3 | wc -l; echo lines$((1 + 1))', b'lines2')
types(*one, 'sleep 0.1 & wait; echo wai$((1 + 1))ted', b'wai2ted')
interrupts(*one, b'before')
types(*one, 'x=keep; cd ..; echo set$((40 + 2))', b'set42')
os.kill(one[0], signal.SIGKILL)
os.waitpid(one[0], 0)
two = start('resume', 'state')
types(*two, 'echo $x$((6 * 7)) | cat; cd $OLDPWD', b'keep42')
interrupts(*two, b'after')
# Not in bash itself: it sends itself SIGINT for ever when one comes as it sets its handler.
loop = b'while sleep 0.02; do echo tick; done'
os.write(two[1], b"sh -c '" + loop + b"' 3</dev/tty | cat 3</dev/tty\n")
until(*two, lambda: b'tick\r\n' in shown)
two = killed(*two, 4)
until(*two, lambda: b'tick\r\n' in shown)
os.write(two[1], b'\x03')
types(*two, 'echo interrup$((1 + 1))ted', b'interrup2ted')
sleeps(*two, b'third', b'\x1a')
types(*two, 'echo stop$((1 + 1))ped', b'stop2ped')
two = killed(*two, 2)
types(*two, 'jobs | grep -c Stopped; echo stil$((1 + 1))l', b'stil2l')
assert re.search(rb'[\r\n]1\r\n', shown), shown
os.write(two[1], b'fg\n')
until(*two, lambda: b'sleep 1000' in shown.partition(b'fg\r\n')[2])
time.sleep(0.1)
os.write(two[1], b'\x03')
types(*two, 'jobs | wc -l; echo go$((1 + 1))ne', b'go2ne')
assert re.search(rb'[\r\n]0\r\n', shown), shown
os.write(two[1], b'exit 4\n')
pid = 0
while not pid:
    if select.select([two[1]], [], [], 0.01)[0]:
        try: shown += os.read(two[1], 65536)
        except OSError: pass
    pid, status = os.waitpid(two[0], os.WNOHANG)
assert os.waitstatus_to_exitcode(status) == 4, (status, shown)
"#;

#[test]
fn a_shell_with_job_control_goes_on() {
    let (Some(python), Some(bash)) = (python_with("termios"), which("bash")) else {
        return skip("a session in a shell", "python3 or bash", "python3 and bash");
    };
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let mut typist = Command::new(python);
    typist.args(["-c", TYPIST, env!("CARGO_BIN_EXE_twinpage"), &bash]);
    typist.env("HISTFILE", "/dev/null").current_dir(scratch.path());
    let out = typist.output().expect("python starts");
    assert!(out.status.success(), "{}", text(&out.stderr));
}
