//! The reader of programs' contexts against damaged bytes: trees of processes, and of one alone.

use fastrand::Rng;
use std::sync::Arc;
use twinpage_fuzz::campaign::campaign;
use twinpage_fuzz::edit::damage;
use twinpage_fuzz::meter::Counting;
use twinpage_process::clocks::Clocks;
use twinpage_process::context::{
    Beside, Ending, Member, MemberState, StableState, Threads, VolatileState, Writer, read,
};
use twinpage_process::ipc;
use twinpage_process::kernel::Kernel;
use twinpage_process::machine::Machine;
use twinpage_process::segments;

#[global_allocator]
static COUNTING: Counting = Counting;

/// Contexts made, in a short run and in a long one.
const RUNS: [u64; 2] = [60, 6_000];
/// Pieces of damage tried on each.
const EDITS: usize = 60;
/// Bytes of memory for each byte of a context, and some to begin with.
const MEMORY_TIMES: usize = 256;
const MEMORY_FIRST: usize = 1 << 20;

const FIRST: i32 = 300;

fn stable(pid: i32, rng: &mut Rng) -> StableState {
    StableState {
        machine: Machine::this().expect("this machine"),
        pid,
        command: (0..rng.usize(..4)).map(|word| format!("word {word}")).collect(),
        mappings: Vec::new(),
        marks: Vec::new(),
        kernel: Kernel::default(),
        descriptors: Vec::new(),
        threads: Vec::new(),
        ended: None,
        fifos: Vec::new(),
        main_thread_ended: None,
        apart: Vec::new(),
        segments: segments::Saved::default(),
        ipc: ipc::Saved::default(),
        last_id: 0,
    }
}

fn written(pid: i32, members: &[(Member, Arc<[u8]>)], rng: &mut Rng) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.set_fixed(&stable(pid, rng)).expect("it can be encoded");
    let pages: Vec<u8> = (0..rng.usize(..200)).map(|_| rng.u8(..)).collect();
    let beside = Beside {
        pages: &pages,
        members,
        foreground: if members.is_empty() { 0 } else { FIRST },
        ..Beside::default()
    };
    let mut bytes = Vec::new();
    let live = VolatileState::default();
    writer
        .write(&mut bytes, Clocks::default(), Threads::default(), &live, beside)
        .expect("it can be encoded");
    bytes
}

/// A context of a random tree: each process a child of the first, or of one that lives.
fn random_context(rng: &mut Rng) -> (Vec<Member>, Vec<u8>) {
    let mut members: Vec<(Member, Arc<[u8]>)> = Vec::new();
    for pid in FIRST + 1..FIRST + 1 + rng.i32(..6) {
        let living = members.iter().map(|(member, _)| member);
        let mut parents: Vec<i32> = living
            .filter(|member| member.lives())
            .map(|member| member.pid)
            .collect();
        parents.extend([FIRST, 1]);
        let (state, context) = if rng.bool() {
            let context = written(pid, &[], rng);
            let state = MemberState::Lives {
                context_bytes: context.len() as u32,
                stop_untold: rng.bool(),
            };
            (state, context)
        } else {
            (MemberState::Ended(Ending::Exit(rng.i32(..256))), Vec::new())
        };
        let member = Member {
            pid,
            parent: *rng.choice(&parents).unwrap_or(&FIRST),
            group: pid,
            session: FIRST,
            exit_signal: 17,
            state,
        };
        members.push((member, context.into()));
    }
    let bytes = written(FIRST, &members, rng);
    (members.into_iter().map(|(member, _)| member).collect(), bytes)
}

#[test]
fn an_undamaged_context_is_read() {
    campaign("an_undamaged_context_is_read", RUNS, |rng| {
        let (members, bytes) = random_context(rng);
        let context = read(&bytes).expect("it is whole");
        assert_eq!(context.tree.members, members);
        let living = members.iter().filter(|member| member.lives());
        assert!(
            living
                .map(|member| member.pid)
                .eq(context.members.iter().map(|own| own.fixed.pid))
        );
    });
}

/// It is read, or refused; it costs little, and what is read is a tree.
#[test]
fn a_damaged_context_is_a_tree_or_refused() {
    campaign("a_damaged_context_is_a_tree_or_refused", RUNS, |rng| {
        let (_, bytes) = random_context(rng);
        let (_, other) = random_context(rng);
        for _ in 0..EDITS {
            let mut damaged = bytes.clone();
            for _ in 0..rng.usize(1..4) {
                if !damaged.is_empty() {
                    damage(&mut damaged, &other, rng);
                }
            }
            let (read, peak) = Counting::peak(|| read(&damaged));
            assert!(
                peak <= MEMORY_FIRST + MEMORY_TIMES * damaged.len(),
                "{peak} bytes of memory for {}",
                damaged.len()
            );
            let Ok(context) = read else { continue };
            let living = |pid: i32| {
                let mut all = context.tree.members.iter();
                pid == context.fixed.pid || all.any(|member| member.pid == pid && member.lives())
            };
            for member in &context.tree.members {
                assert!(member.parent == 1 || living(member.parent), "{member:?}");
            }
        }
    });
}
