//! Real programs killed at random instants and resumed, each compared with its undisturbed run.

use std::fs;
use std::path::Path;
use std::time::Instant;
use twinpage_campaign::{either, seed};

use crate::support::campaign::{Campaign, oracle};
use crate::support::ordinary::OrdinaryUser;
use crate::support::process::twinpage;
use crate::support::program::{Kind, PROGRAMS, Program, named};
use crate::support::{chance, may_change_users, say, sink};

fn survives(file: &str) {
    survives_with(file, &["--every", "16ms"]);
}

fn survives_with(file: &str, run_options: &[&str]) {
    let program = named(file);
    if let Some(line) = program.command(program.rounds) {
        survives_as(file, &line, run_options, seed());
    }
}

fn survives_as(file: &str, line: &[String], run_options: &[&str], seed: u64) {
    survives_in(file, line, run_options, seed, None, false);
}

/// The same, as the child of a shell.
fn survives_as_a_child(program: &Program, seed: u64) {
    if let Some(line) = program.command(program.rounds) {
        let shell = ["sh", "-c", "\"$@\"; echo ended $?", "sh"].map(String::from);
        let line = [&shell, &line[..]].concat();
        survives_as(program.file, &line, &["--every", "16ms"], seed);
    }
}

/// The same, run by a user without rights.
fn survives_without_rights(file: &str) {
    let program = named(file);
    let Some(mut line) = program.command(program.rounds) else {
        return;
    };
    let Some(user) = OrdinaryUser::of(file) else {
        return;
    };
    line[0] = user.copy(Path::new(&line[0])).display().to_string();
    survives_in(file, &line, &["--every", "16ms"], seed(), Some(&user), false);
}

fn survives_in(
    file: &str,
    line: &[String],
    run_options: &[&str],
    seed: u64,
    user: Option<&OrdinaryUser>,
    earlier_form: bool,
) {
    let mut chance = chance(seed, file);
    let kinds = [sink::Kind::File, sink::Kind::Pipe, sink::Kind::Terminal];
    let sink = kinds[chance.usize(0..kinds.len())];
    let kills = either(10, 100);
    let oracle = oracle(line, None);
    let campaign = Campaign {
        name: file,
        line,
        kills,
        run_options,
        sink,
        seed,
        stdin: None,
        earlier_form,
        user,
    };
    let from = Instant::now();
    let tally = campaign.survive(&oracle, &mut chance);
    say(&format!(
        "{file}: {} kills ({} of twinpage alone, {} of the program alone, {} before its first checkpoint), {} resumes in {} rounds, identical: \
         {} bytes to a {sink:?}, {} files; {:.1} s, alone {:.1} s; TWINPAGE_SEED={seed}",
        tally.kills,
        tally.of_the_tool,
        tally.of_the_program,
        tally.before_first_checkpoint,
        tally.resumes,
        tally.rounds,
        oracle.stdout.len(),
        oracle.files.len(),
        from.elapsed().as_secs_f64(),
        oracle.took.as_secs_f64(),
    ));
}

/// What a program comes to that is not killed, with checkpoints in memory.
fn statistics_of(line: &[String]) -> serde_json::Value {
    let scratch = tempfile::tempdir().expect("a scratch directory");
    let stats = scratch.path().join("stats");
    let mut command = twinpage();
    command.args(["run", "--every", "16ms", "--durability", "memory", "--stats"]);
    command
        .arg(&stats)
        .arg("--state")
        .arg(scratch.path().join("state"));
    let out = command.arg("--").args(line).output().expect("twinpage starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&fs::read(stats).expect("statistics")).expect("JSON")
}

#[test]
fn c_with_eight_threads() {
    survives("c_threads.c");
}

/// Threads and processes come back with their ids though their user may give none, in memory that they share.
#[test]
fn c_of_a_user_without_rights() {
    for file in [
        "c_threads.c",
        "c_users.c",
        "c_own.c",
        "c_tables.c",
        "c_groups.c",
        "c_ipc.c",
    ] {
        survives_without_rights(file);
    }
}

#[test]
fn c_with_files() {
    survives("c_files.c");
}

#[test]
fn c_with_files_without_a_name_and_shared_mappings() {
    survives("c_objects.c");
}

#[test]
fn c_whose_memory_comes_back_while_it_runs() {
    survives("c_loading.c");
}

#[test]
fn c_with_every_kind_of_memory() {
    survives("c_memory.c");
}

/// States of version 1, with lines of 4 KiB, go on as they are.
#[test]
fn c_with_memory_in_states_of_earlier_builds() {
    for file in ["c_memory.c", "c_objects.c"] {
        let program = named(file);
        if let Some(line) = program.command(program.rounds) {
            survives_in(file, &line, &["--every", "8ms"], seed(), None, true);
        }
    }
}

#[test]
fn c_with_mappings_moved_at_random() {
    let program = named("c_mappings.c");
    let Some(mut line) = program.command(program.rounds) else {
        return;
    };
    let seed = seed();
    line.push(seed.to_string());
    for every in ["16ms", "3ms"] {
        survives_as(program.file, &line, &["--every", every], seed);
    }
}

/// Many of its pages are copied before a stop, and many of those are taken away between the two.
#[test]
fn c_whose_pages_are_copied_before_a_stop() {
    for every in either(&["5ms"][..], &["20ms", "5ms"]) {
        survives_with("c_precopy.c", &["--every", every]);
    }
    let stats = statistics_of(&named("c_precopy.c").command(30).expect("a compiler"));
    let [pages, early] = ["pages", "early_pages"].map(|name| stats[name].as_u64().expect("a number"));
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // How many depends on the load of the machine.
    assert!(
        processors == 1 || early > 1000,
        "{early} of {pages} pages were copied early"
    );
}

#[test]
fn c_in_calls_that_a_stop_could_cut() {
    for file in ["c_calls.c", "c_ttys.c", "c_held.c"] {
        survives_with(file, &["--every", "3ms"]);
    }
}

#[test]
fn c_with_events_signals_and_timers() {
    survives("c_kernel.c");
}

#[test]
fn c_with_descriptors() {
    survives("c_descriptors.c");
}

#[test]
fn c_whose_own_file_is_removed_or_replaced() {
    let program = named("c_own.c");
    let Some(line) = program.command(program.rounds) else {
        return;
    };
    for how in ["remove", "replace"] {
        let line = [&line[..], &[how.to_string()]].concat();
        survives_as(program.file, &line, &["--every", "8ms"], seed());
    }
}

#[test]
fn c_with_a_thousand_descriptors() {
    let program = named("c_many.c");
    let Some(mut line) = program.command(program.rounds) else {
        return;
    };
    let seed = seed();
    line.push(seed.to_string());
    survives_as(program.file, &line, &["--every", "4ms"], seed);
}

#[test]
fn c_with_pipes_polls_and_timers() {
    survives("c_ends.c");
}

#[test]
fn c_with_places_and_odd_names() {
    survives("c_places.c");
}

#[test]
fn c_whose_main_thread_ended() {
    survives("c_leaderless.c");
}

#[test]
fn c_whose_threads_execute_the_program() {
    survives("c_successors.c");
}

#[test]
fn c_whose_threads_have_descriptors_of_their_own() {
    survives("c_tables.c");
}

#[test]
fn c_with_limits_and_attributes() {
    survives("c_limits.c");
}

#[test]
fn c_with_socket_pairs_named_pipes_and_signals() {
    survives("c_pairs.c");
}

#[test]
fn c_with_children_that_ended() {
    survives("c_zombies.c");
}

#[test]
fn c_with_descriptors_of_processes() {
    survives("c_pidfds.c");
}

#[test]
fn c_with_workers() {
    survives("c_workers.c");
}

#[test]
fn c_with_workers_tied_by_sockets() {
    survives("c_ties.c");
}

#[test]
fn c_with_sessions_groups_orphans_and_stopped_children() {
    survives("c_groups.c");
}

#[test]
fn c_with_sleepers_that_others_change() {
    survives("c_sleepers.c");
}

#[test]
fn c_with_workers_of_other_users_and_signals_about_input() {
    if !may_change_users() {
        say("SKIPPED in part: users stay what they are, as this user may become no other");
    }
    survives("c_users.c");
}

#[test]
fn c_with_memory_that_processes_share() {
    let program = named("c_shared.c");
    let Some(mut line) = program.command(program.rounds) else {
        return;
    };
    let seed = seed();
    line.push(u32::try_from(seed % 1_000_000).expect("small").to_string());
    for every in ["16ms", "5ms"] {
        survives_as(program.file, &line, &["--every", every], seed);
    }
}

#[test]
fn c_with_files_that_are_watched() {
    survives("c_inotify.c");
    survives_as_a_child(&named("c_inotify.c"), seed());
}

#[test]
fn c_with_system_v_memory() {
    survives("c_segments.c");
}

/// What a process has from its maker is stored once, and each has its own.
#[test]
fn c_with_memory_that_children_inherit() {
    survives("c_inherits.c");
    let stats = statistics_of(&named("c_inherits.c").command(60).expect("a compiler"));
    let pages = stats["pages"].as_u64().expect("a number");
    // 40 processes of 1024 pages, of which each writes 7 in some 200 rounds at most.
    assert!(pages < 20 * 1024, "{pages} pages were captured");
}

#[test]
fn c_with_timers_of_children() {
    survives("c_timers.c");
}

#[test]
fn c_with_system_v_semaphores_and_messages() {
    survives("c_ipc.c");
}

#[test]
fn python_with_memory_that_processes_share() {
    survives("python_shared.py");
}

#[test]
fn python_with_unix_sockets_among_its_processes() {
    survives("python_sockets.py");
}

/// In a network of its own every user is told where the files lie.
#[test]
fn python_with_sockets_whose_files_were_moved() {
    survives_with("python_bound.py", &["--every", "16ms", "--network", "keep"]);
}

#[test]
fn python_with_tcp_connections_among_its_processes() {
    survives("python_tcp.py");
}

/// Where nothing may lead outside, it comes back as well.
#[test]
fn python_with_tcp_connections_and_no_others() {
    survives_with("python_tcp.py", &["--every", "50ms", "--replies", "none"]);
}

#[test]
fn python_with_terminals_that_it_makes() {
    survives("python_ptys.py");
}

#[test]
fn python_with_terminals_that_are_full() {
    survives("python_full_ptys.py");
}

#[test]
fn python_with_messages_among_its_processes() {
    survives("python_datagrams.py");
}

#[test]
fn python_with_messages_that_tell_who_sent_them() {
    survives("python_senders.py");
}

#[test]
fn python_with_questions_for_interfaces() {
    survives("python_netlink.py");
}

#[test]
fn sqlite_in_c() {
    survives("c_sqlite.c");
}

#[test]
fn python_with_threads() {
    survives("python_threads.py");
}

#[test]
fn python_with_numpy() {
    survives("python_numpy.py");
}

#[test]
fn sqlite_in_python() {
    survives("sqlite_memory.py");
}

#[test]
fn perl() {
    survives("churn.pl");
}

#[test]
fn bash_builtins() {
    survives("builtins.sh");
}

#[test]
fn go() {
    survives("goroutines.go");
}

#[test]
fn go_with_commands() {
    survives("commands.go");
}

#[test]
fn node() {
    survives("promises.js");
}

#[test]
fn java() {
    survives("Collections.java");
}

/// Programs of C as descendants of a shell: one drawn by chance, in a campaign all. Not `c_pairs.c`: after a resume
/// `SO_PEERCRED` of a descendant's socket pair names the first process (docs/guarantees.md).
#[test]
fn programs_that_a_shell_starts() {
    let seed = seed();
    let programs: Vec<_> = PROGRAMS
        .iter()
        .filter(|program| matches!(program.kind, Kind::C(_)) && program.file != "c_pairs.c")
        .collect();
    let drawn = either(1, programs.len());
    let mut chance = chance(seed, "programs that a shell starts");
    for program in chance.choose_multiple(programs, drawn) {
        survives_as_a_child(program, seed);
    }
}

#[test]
fn a_filter_between_pipes() {
    let name = "a filter between pipes";
    let text: String = (0..6000).map(|i| format!("{i} {}\n", i * 7919 % 10007)).collect();
    let script = "n=0; while read -r i word; do ((i == n++)) || exit 7; [[ $word == *3* ]] && echo $i $word; done; echo $n";
    let line = ["bash", "-c", script].map(String::from);
    let seed = seed();
    let mut chance = chance(seed, name);
    let oracle = oracle(&line, Some(&text));
    assert!(
        oracle.status.success() && oracle.stdout.ends_with(b"\n6000\n"),
        "the filter fails alone"
    );
    let campaign = Campaign {
        kills: 10,
        stdin: Some(&text),
        ..Campaign::new(name, &line, &["--every", "16ms"], seed)
    };
    let tally = campaign.survive(&oracle, &mut chance);
    say(&format!(
        "{name}: {} kills, {} resumes, identical; TWINPAGE_SEED={seed}",
        tally.kills, tally.resumes
    ));
}
