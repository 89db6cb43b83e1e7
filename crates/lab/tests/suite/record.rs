//! Recording: does the trace of a real program say what the program did?

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use twinpage_lab::trace::{Event, RecordError, Recorded, Trace, Window, can_record, record};

/// False, loudly, where nothing can be recorded; in CI that is a failure.
pub(crate) fn ready() -> bool {
    let ready = can_record();
    if !ready {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI needs qemu-user: apt install qemu-user"
        );
        eprintln!("SKIPPED: qemu-user is not installed (apt install qemu-user)");
    }
    ready
}

fn run(command: &Command, skip: u64, limit: u64) -> Result<(Recorded, Vec<u8>), RecordError> {
    let mut bytes = Vec::new();
    let quiet = [Stdio::null(), Stdio::null()];
    let recorded = record(command, quiet, &Window { skip, limit }, &mut bytes, |_| {})?;
    Ok((recorded, bytes))
}

/// A program with known accesses: an array of known size at a known place is written, page after page.
const STRIDES: &str = r#"
static char array[64 << 20] __attribute__((aligned(4096)));
int main(void) {
    volatile char *at = array;
    for (int page = 0; page < 16384; page++) at[page * 4096l] = 1;
    return 7;
}
"#;

/// Builds a program.
fn build(folder: &Path, source: &str, flags: &[&str]) -> PathBuf {
    let (file, program) = (folder.join("a.c"), folder.join("a"));
    std::fs::write(&file, source).unwrap();
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &file])
        .args(flags)
        .status();
    assert!(built.unwrap().success());
    program
}

#[test]
fn a_program_is_recorded() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = build(scratch.path(), STRIDES, &[]);

    let (recorded, bytes) = run(&Command::new(&program), 0, u64::MAX).unwrap();
    assert_eq!(recorded.status.and_then(|status| status.code()), Some(7));
    let mut trace = Trace::from_bytes("a", bytes, None).unwrap();
    assert!(trace.header().origin.contains(&program.display().to_string()));
    let (mut instructions, mut records, mut stores) = (0, 0, Vec::new());
    while let Some(record) = trace.next_record().unwrap() {
        instructions += u64::from(record.after);
        records += 1;
        if let Event::Store { at, size: 1, .. } = record.event {
            stores.push(at);
        }
    }
    assert_eq!((recorded.instructions, recorded.records), (instructions, records));
    let longest = stores
        .chunk_by(|one, next| next.wrapping_sub(*one) == 4096)
        .map(<[u64]>::len)
        .max();
    assert_eq!(longest, Some(16384));

    // A window of it: that many instructions, after that many.
    let (window, bytes) = run(&Command::new(&program), 100_000, 5000).unwrap();
    assert!(
        window.status.is_none() && (4900..=5000).contains(&window.instructions),
        "{window:?}"
    );
    assert_eq!(
        Trace::from_bytes("a", bytes, None).unwrap().count() as u64,
        window.records
    );
}

/// Accesses whose size and number are known: 16 bytes at once 1000 times, 2000 bytes by a string instruction,
/// 500 bytes by each of two threads; a child process touches what no other does. Then a loop that touches
/// nothing, for ever.
const KINDS: &str = r#"
#include <emmintrin.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
static char wide[16000] __attribute__((aligned(4096))), string[4096] __attribute__((aligned(4096)));
static char threads[8192] __attribute__((aligned(4096))), child[4096] __attribute__((aligned(4096)));
static void *thread(void *at) {
    for (volatile char *byte = at; byte < (char *)at + 500; byte++) *byte = 1;
    return 0;
}
int main(void) {
    for (int i = 0; i < 1000; i++) _mm_store_si128((__m128i *)wide + i, _mm_set1_epi8((char)i));
    __asm__ volatile("rep stosb" : : "D"(string), "c"(2000), "a"(1) : "memory");
    pthread_t both[2];
    for (int i = 0; i < 2; i++) pthread_create(both + i, 0, thread, threads + 4096 * i);
    for (int i = 0; i < 2; i++) pthread_join(both[i], 0);
    if (fork() == 0) {
        for (int i = 0; i < 4096; i++) ((volatile char *)child)[i] = 1;
        _exit(0);
    }
    wait(0);
    char said[200], *end = said;
    void *places[] = {wide, string, threads, child};
    for (int place = 0; place < 4; place++, *end++ = '\n')
        for (int digit = 60; digit >= 0; digit -= 4) *end++ = "0123456789abcdef"[(unsigned long)places[place] >> digit & 15];
    write(1, said, end - said);
    for (;;) __asm__ volatile("");
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn accesses_of_every_kind_are_told_once() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = build(scratch.path(), KINDS, &["-pthread"]);
    let (said, mut bytes) = (tempfile::tempfile().unwrap(), Vec::new());
    let window = Window {
        skip: 0,
        limit: 20_000_000,
    };
    let stdio = [Stdio::null(), said.try_clone().unwrap().into()];
    let recorded = record(&Command::new(program), stdio, &window, &mut bytes, |_| {}).unwrap();
    assert!(recorded.status.is_none(), "{recorded:?}: it never ends");

    let mut text = String::new();
    let mut said = said;
    said.seek(SeekFrom::Start(0)).unwrap();
    said.read_to_string(&mut text).unwrap();
    let places: Vec<u64> = text
        .lines()
        .map(|line| u64::from_str_radix(line, 16).unwrap())
        .collect();
    let mut stores = vec![Vec::new(); 4];
    for record in Trace::from_bytes("a", bytes, None).unwrap() {
        if let Event::Store { at, size, .. } = record.unwrap().event {
            let lengths = [16000, 4096, 8192, 4096];
            let inside = |place: &usize| (places[*place]..places[*place] + lengths[*place]).contains(&at);
            if let Some(place) = (0..4).find(inside) {
                stores[place].push((at - places[place], size));
            }
        }
    }
    assert!(
        stores[0].iter().copied().eq((0..1000).map(|i| (16 * i, 16))),
        "16 bytes are one access"
    );
    assert!(
        stores[1].iter().copied().eq((0..2000).map(|i| (i, 1))),
        "each round of a string instruction"
    );
    stores[2].sort_unstable();
    assert!(
        stores[2]
            .iter()
            .copied()
            .eq((0..500).chain(4096..4596).map(|i| (i, 1))),
        "of both threads"
    );
    assert!(stores[3].is_empty(), "a child process is not followed");
}

#[test]
fn a_script_is_recorded_as_its_interpreter() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let script = scratch.path().join("script");
    std::fs::write(&script, "#! /bin/sh -e\nexit 9\n").unwrap();
    let (recorded, _) = run(&Command::new(script), 0, u64::MAX).unwrap();
    assert_eq!(recorded.status.and_then(|status| status.code()), Some(9));
}

#[test]
fn what_does_not_run_is_told() {
    if !ready() {
        return;
    }
    let missing = run(&Command::new("/nonexistent/program"), 0, 10)
        .unwrap_err()
        .to_string();
    assert!(
        missing.contains("/nonexistent/program: No such file"),
        "{missing}"
    );
    let unknown = run(&Command::new("no-such-program"), 0, 10)
        .unwrap_err()
        .to_string();
    assert!(
        unknown.contains("there is no program no-such-program"),
        "{unknown}"
    );
    let short = run(&Command::new("true"), 1 << 40, 10).unwrap_err().to_string();
    assert!(short.contains("ended after"), "{short}");
}

/// A list in random order is walked, then an array read, each at a known place.
const CHASE: &str = r#"
#include <sys/mman.h>
struct node { struct node *next; long pad[7]; };
static void *at(unsigned long place) { return mmap((void *)place, 1 << 20, 3, 0x32, -1, 0); }
int main(void) {
    struct node *nodes = at(0x200000000), *now = nodes;
    volatile long *array = at(0x300000000);
    for (int i = 0; i < 4096; i++) nodes[i].next = &nodes[(i * 1103 + 331) & 4095];
    for (int i = 0; i < 10000; i++) now = now->next;
    long sum = 0;
    for (int i = 0; i < 100000; i++) sum += array[i];
    for (int i = 0; i < 10000; i++) sum += nodes[array[i] + (i & 4095)].pad[1];
    return now == nodes ? 1 : sum;
}
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn loads_that_follow_pointers_are_told() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let program = build(scratch.path(), CHASE, &[]);
    let (_, bytes) = run(&Command::new(program), 0, u64::MAX).unwrap();
    let (mut pointers, mut indexed, mut array) = ([0; 2], [0; 2], [0; 2]);
    for record in Trace::from_bytes("a", bytes, None).unwrap() {
        let (at, follows) = match record.unwrap().event {
            Event::Load { at, .. } => (at, 0),
            Event::Follow { at, behind, .. } => (at, usize::from(behind == 1)),
            _ => continue,
        };
        match at {
            0x2_0000_0000..0x2_0010_0000 if at.is_multiple_of(64) => pointers[follows] += 1,
            0x2_0000_0000..0x2_0010_0000 => indexed[follows] += 1,
            0x3_0000_0000..0x3_0010_0000 => array[follows] += 1,
            _ => {}
        }
    }
    // None is told across the records that are written together: one of 256.
    for [without, with] in [pointers, indexed] {
        assert_eq!(without + with, 10_000);
        assert!(with > 9_800, "{with} of 10000 follow");
    }
    assert_eq!(array, [110_000, 0]);
}
