//! A campaign: one program killed again and again, resumed each time, compared with its undisturbed run.
//!
//! - The oracle is the program alone: its output, its exit code, the files it leaves.
//! - Kills are spread over the program's life by how much it has printed; some come while twinpage starts
//!   or resumes.
//! - A program that ends before it was killed often enough begins another round of the campaign; one that
//!   was killed often enough may end in peace.

use std::io::{PipeReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use twinpage_campaign::either;

use super::ordinary::OrdinaryUser;
use super::process::{Victim, ended_before, kill, twinpage};
use super::sink::{self, Sink};
use super::state::to_form_of_earlier_builds;
use super::tree::{Entry, Tree, bytes_difference, difference, snapshot};

/// What the program alone does.
pub(crate) struct Oracle {
    pub(crate) stdout: Vec<u8>,
    pub(crate) status: ExitStatus,
    pub(crate) files: Tree,
    pub(crate) took: Duration,
}

/// A pipe out of which `text` comes, not all at once.
fn input(text: Option<&str>) -> Option<PipeReader> {
    let lines: Vec<String> = text?.split_inclusive('\n').map(String::from).collect();
    let (from, mut to) = std::io::pipe().expect("a pipe");
    std::thread::spawn(move || {
        for some in lines.chunks(lines.len().div_ceil(200)) {
            // The reader may be gone: then the rest is not needed.
            let _ = to.write_all(some.concat().as_bytes());
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    Some(from)
}

/// Runs the program alone.
pub(crate) fn oracle(line: &[String], stdin: Option<&str>) -> Oracle {
    let dir = tempfile::tempdir().expect("a scratch directory");
    let from = Instant::now();
    let mut command = Command::new(&line[0]);
    command
        .args(&line[1..])
        .current_dir(dir.path())
        .stdin(input(stdin).map_or(Stdio::null(), Stdio::from));
    let out = command.output().unwrap_or_else(|e| panic!("{}: {e}", line[0]));
    let took = from.elapsed();
    assert!(
        out.status.signal() != Some(rustix::process::Signal::ABORT.as_raw()),
        "{}: alone it finds itself wrong: {}",
        line[0],
        String::from_utf8_lossy(&out.stderr)
    );
    Oracle {
        stdout: out.stdout,
        status: out.status,
        files: snapshot(dir.path()),
        took,
    }
}

/// What to do to a program.
pub(crate) struct Campaign<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: &'a [String],
    pub(crate) kills: u32,
    pub(crate) run_options: &'a [&'a str],
    pub(crate) sink: sink::Kind,
    pub(crate) seed: u64,
    /// What comes in on standard input, through one pipe that stays; nothing without it.
    pub(crate) stdin: Option<&'a str>,
    /// After its first kill the state gets the form that earlier builds gave it.
    pub(crate) earlier_form: bool,
    /// The user who runs it, if not the one who runs the tests.
    pub(crate) user: Option<&'a OrdinaryUser>,
}

/// What was done to it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u32,
    pub(crate) of_the_tool: u32,
    pub(crate) of_the_program: u32,
    pub(crate) resumes: u32,
    pub(crate) rounds: u32,
    pub(crate) before_first_checkpoint: u32,
}

/// What a resume says of a state that was killed before anything was durable.
const NOTHING_YET: [&str; 3] = [
    "before its first checkpoint",
    "holds no state of a program",
    "does not exist",
];

/// How one life of the program ended.
enum End {
    Killed,
    Finished(ExitStatus),
    /// Killed before anything was durable: the state says so, and there is nothing to resume.
    NothingYet,
}

/// One round of a campaign: a program from its first instruction to its end.
struct Round<'a> {
    campaign: &'a Campaign<'a>,
    oracle: &'a Oracle,
    dir: PathBuf,
    sink: Sink,
    stdin: Option<PipeReader>,
    lives: u32,
    kills: u32,
}

impl<'a> Campaign<'a> {
    /// A campaign of four kills, sixty in a long one, whose program prints into a pipe and reads nothing.
    pub(crate) fn new(
        name: &'a str,
        line: &'a [String],
        run_options: &'a [&'a str],
        seed: u64,
    ) -> Campaign<'a> {
        Campaign {
            name,
            line,
            kills: either(4, 60),
            run_options,
            sink: sink::Kind::Pipe,
            seed,
            stdin: None,
            earlier_form: false,
            user: None,
        }
    }

    /// Kills and resumes until there were enough kills; panics at the first difference.
    pub(crate) fn survive(&self, oracle: &Oracle, chance: &mut fastrand::Rng) -> Tally {
        let mut tally = Tally::default();
        while tally.kills < self.kills {
            let scratch = tempfile::tempdir().expect("a scratch directory");
            let sink = Sink::new(self.sink, scratch.path().join("stdout"));
            tally.rounds += 1;
            let round = Round {
                campaign: self,
                oracle,
                dir: scratch.path().to_path_buf(),
                sink,
                stdin: input(self.stdin),
                lives: 0,
                kills: 0,
            };
            round.live(&mut tally, chance);
        }
        tally
    }
}

impl Round<'_> {
    fn live(mut self, tally: &mut Tally, chance: &mut fastrand::Rng) {
        let mut first = true;
        let status = loop {
            let child = self.start(first);
            match self.one_life(child, tally, chance) {
                End::Finished(status) => break status,
                End::Killed => {
                    first = false;
                    self.check(chance);
                    self.change_form();
                    self.leave_behind();
                }
                End::NothingYet => {
                    tally.before_first_checkpoint += 1;
                    first = true;
                }
            }
            tally.resumes += u32::from(!first);
        };
        self.compare(status);
    }

    /// Looks now and then whether all that the kill left is whole.
    fn check(&self, chance: &mut fastrand::Rng) {
        let state = self.dir.join("state");
        if chance.u8(0..3) > 0 || !state.join("kind").exists() {
            return;
        }
        let checked = twinpage()
            .arg("check")
            .arg(state)
            .output()
            .expect("twinpage starts");
        let found = String::from_utf8_lossy(&checked.stdout);
        let (name, seed) = (self.campaign.name, self.campaign.seed);
        assert!(
            checked.status.code() != Some(1),
            "{name}: a kill left damage; TWINPAGE_SEED={seed}: {found}"
        );
    }

    /// Gives the state the form of earlier builds, if that is wanted and there is a checkpoint.
    fn change_form(&self) {
        let state = self.dir.join("state");
        if self.campaign.earlier_form && state.join("kind").exists() {
            to_form_of_earlier_builds(&state);
        }
    }

    /// As a resume leaves the state that is killed while it makes a removed directory or a removed named pipe.
    fn leave_behind(&self) {
        use rustix::fs::{CWD, FileType, Mode};
        let at = |name: &str| self.dir.join("state").join(name);
        if at("kind").exists() {
            // They may be there from the kill before.
            let _ = rustix::fs::mkdir(at("gone"), Mode::RWXU);
            let _ = rustix::fs::mknodat(CWD, at("gone.fifo"), FileType::Fifo, Mode::RUSR, 0);
        }
    }

    /// Makes all as it was before the program was first started.
    fn prepare(&self) {
        assert!(
            self.sink.len() == 0,
            "{}: something was printed before the first checkpoint; TWINPAGE_SEED={}",
            self.campaign.name,
            self.campaign.seed
        );
        for name in ["state", "work"] {
            let _ = std::fs::remove_dir_all(self.dir.join(name)); // it may not be there yet
        }
        let work = self.dir.join("work");
        std::fs::create_dir(&work).expect("a working directory");
        if let Some(user) = self.campaign.user {
            user.give(&self.dir);
            user.give(&work);
        }
    }

    fn start(&mut self, first: bool) -> Child {
        let stderr = std::fs::File::create(self.dir.join(format!("stderr.{:03}", self.lives + 1)));
        let mut command = self.campaign.user.map_or_else(twinpage, OrdinaryUser::twinpage);
        let state = self.dir.join("state");
        self.lives += 1;
        if first {
            self.prepare();
            command
                .arg("run")
                .arg("--state")
                .arg(state)
                .args(self.campaign.run_options);
            if !self.campaign.run_options.contains(&"--every") {
                command.args(["--every", "16ms"]);
            }
            command
                .arg("--")
                .args(self.campaign.line)
                .current_dir(self.dir.join("work"));
        } else {
            // As often as in the first life.
            let options = self.campaign.run_options;
            let every = options.iter().position(|option| *option == "--every");
            let every = every.map_or("16ms", |at| options[at + 1]);
            command
                .args(["resume", "--every", every])
                .arg(state)
                .current_dir("/");
        }
        if let Some(stdin) = &self.stdin {
            command.stdin(stdin.try_clone().expect("another descriptor of the input"));
        }
        command
            .stdout(self.sink.open(first))
            .stderr(stderr.expect("the file of stderr"));
        command.spawn().expect("twinpage starts")
    }

    /// Lets it live for a while drawn by chance, then kills it, unless it ends before.
    fn one_life(&mut self, mut child: Child, tally: &mut Tally, chance: &mut fastrand::Rng) -> End {
        let victim = match chance.u8(0..5) {
            0 => Victim::Tool,
            1 => Victim::Program,
            _ => Victim::Tree,
        };
        let ended = if tally.kills < self.campaign.kills {
            self.a_while(&mut child, chance)
        } else {
            Some(child.wait().expect("wait for twinpage"))
        };
        if ended.is_none() {
            kill(&mut child, victim, chance);
            tally.kills += 1;
            self.kills += 1;
            tally.of_the_tool += u32::from(victim == Victim::Tool);
            tally.of_the_program += u32::from(victim == Victim::Program);
        }
        self.sink.life_ended();
        match ended {
            None => End::Killed,
            Some(_)
                if NOTHING_YET
                    .iter()
                    .any(|words| self.stderr_of(self.lives).contains(words)) =>
            {
                End::NothingYet
            }
            Some(status) => End::Finished(status),
        }
    }

    /// Until the program has printed as much as it should have by this kill, and some milliseconds more;
    /// or, now and then, only until twinpage is in the midst of starting.
    fn a_while(&self, child: &mut Child, chance: &mut fastrand::Rng) -> Option<ExitStatus> {
        // Input that was read before the first checkpoint is gone, as it is from any program that starts again.
        if chance.u8(0..6) == 0 && self.stdin.is_none() {
            return ended_before(
                child,
                Instant::now() + Duration::from_micros(chance.u64(0..60_000)),
            );
        }
        let share = (f64::from(self.kills) + chance.f64()) / f64::from(self.campaign.kills + 1);
        // What input is not to lose has a checkpoint, and so some output.
        let least = usize::from(self.stdin.is_some());
        let printed = ((share * self.oracle.stdout.len() as f64) as usize).max(least);
        while self.sink.len() < printed {
            if let Some(status) = ended_before(child, Instant::now() + Duration::from_millis(1)) {
                return Some(status);
            }
        }
        let some_ms = if chance.bool() { 12 } else { 80 };
        ended_before(
            child,
            Instant::now() + Duration::from_micros(chance.u64(0..some_ms * 1000)),
        )
    }

    fn stderr_of(&self, life: u32) -> String {
        let bytes = std::fs::read(self.dir.join(format!("stderr.{life:03}"))).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// What was said in the last lives.
    fn stderr(&self) -> String {
        let last = (self.lives.saturating_sub(2)..=self.lives).filter(|life| *life > 0);
        last.map(|life| format!("[life {life}]\n{}", self.stderr_of(life)))
            .collect()
    }

    /// What the program tells of its own end: its output from the first difference on, and each file that
    /// it does not leave when it ends well (a virtual machine's report, say).
    fn last_words(&self) -> String {
        let beginning = |bytes: &[u8]| {
            let part = &bytes[..bytes.len().min(12_000)];
            String::from_utf8_lossy(part).into_owned()
        };
        let (want, got) = (&self.oracle.stdout, self.sink.bytes());
        let same = want.iter().zip(&got).take_while(|(a, b)| a == b).count();
        let mut text = format!("; then it printed:\n{}", beginning(&got[same..]));
        for (name, entry) in snapshot(&self.dir.join("work")) {
            if let (false, Entry::File { bytes, .. }) = (self.oracle.files.contains_key(&name), entry) {
                text += &format!("\n{name} begins with:\n{}", beginning(&bytes));
            }
        }
        text
    }

    fn compare(&self, status: ExitStatus) {
        let fail = |what: String| -> ! {
            let (name, seed, stderr) = (self.campaign.name, self.campaign.seed, self.stderr());
            let sink = self.campaign.sink;
            keep(&self.dir);
            panic!("{name}: {what}\nstdout is a {sink:?}; TWINPAGE_SEED={seed}; stderr was:\n{stderr}");
        };
        if status != self.oracle.status {
            fail(format!(
                "it ended with {status}, not {}{}",
                self.oracle.status,
                self.last_words()
            ));
        }
        let stdout = self.sink.bytes();
        if stdout != self.oracle.stdout {
            fail(format!(
                "its output: {}",
                bytes_difference(&self.oracle.stdout, &stdout)
            ));
        }
        if let Some(what) = difference(&self.oracle.files, &snapshot(&self.dir.join("work"))) {
            fail(format!("its files: {what}"));
        }
    }
}

/// Keeps the directory of a failure where it can be looked at, when asked to.
fn keep(dir: &Path) {
    if let Some(to) = std::env::var_os("TWINPAGE_KEEP") {
        let done = Command::new("cp").arg("-a").arg(dir).arg(&to).status();
        super::say(&format!("the failure is kept in {}: {done:?}", to.display()));
    }
}
