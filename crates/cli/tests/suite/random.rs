//! Random programs: each draws what it does from a seed and says what that came to; alone and under kills it must say the
//! same and leave the same.

use crate::support::campaign::{Campaign, oracle};
use crate::support::program::compile;
use crate::support::{chance, say, sink};
use twinpage_campaign::{either, seed};

/// Sequences of system calls from the supported ones: a second or so of work, with pauses for the checkpoints.
#[test]
fn random_calls_come_to_the_same() {
    survive_all("random_calls.c", 6000);
}

/// Files to which a program only adds, without a stop at its writes, until it does something else to one.
#[test]
fn files_that_only_grow_come_to_the_same() {
    survive_all("random_growth.c", 300);
}

/// `length` is the second argument of the program of that file, for a second of work; the first is what it draws from.
fn survive_all(file: &str, length: u32) {
    let Some(binary) = compile(file, &["-pthread"]) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, file);
    let sequences = either(4, 60);
    let (mut kills, mut resumes) = (0, 0);
    for number in 0..sequences {
        let drawn = (chance.u32(..) & !1) | (number % 2); // of both kinds, where there are two
        let line = [binary.clone(), drawn.to_string(), length.to_string()];
        let alone = oracle(&line, None);
        assert!(
            alone.status.success(),
            "sequence {drawn} fails alone: {}",
            alone.status
        );
        let name = format!("{file}, sequence {drawn}");
        let campaign = Campaign {
            kills: 6,
            sink: sink::Kind::File,
            ..Campaign::new(&name, &line, &["--every", "4ms"], seed)
        };
        let tally = campaign.survive(&alone, &mut chance);
        kills += tally.kills;
        resumes += tally.resumes;
    }
    say(&format!(
        "{sequences} sequences of {file}: {kills} kills, {resumes} resumes, identical; TWINPAGE_SEED={seed}"
    ));
}
