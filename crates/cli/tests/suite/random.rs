//! Random sequences of system calls from the supported ones: `random_calls.c` draws them from a seed and says
//! what each came to; alone and under kills it must say the same and leave the same.

use crate::support::campaign::{Campaign, oracle};
use crate::support::program::compile;
use crate::support::{chance, say, sink};
use twinpage_campaign::{either, seed};

/// Calls of one sequence: a second or so of work, with pauses for the checkpoints.
const CALLS: u32 = 6000;

#[test]
fn random_calls_come_to_the_same() {
    let Some(binary) = compile("random_calls.c", &["-pthread"]) else {
        return;
    };
    let seed = seed();
    let mut chance = chance(seed, "random calls");
    let sequences = either(4, 60);
    let (mut kills, mut resumes) = (0, 0);
    for _ in 0..sequences {
        let drawn = chance.u32(..);
        let line = [binary.clone(), drawn.to_string(), CALLS.to_string()];
        let alone = oracle(&line, None);
        assert!(
            alone.status.success(),
            "sequence {drawn} fails alone: {}",
            alone.status
        );
        let name = format!("the calls of sequence {drawn}");
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
        "{sequences} sequences of {CALLS} calls: {kills} kills, {resumes} resumes, identical; TWINPAGE_SEED={seed}"
    ));
}
