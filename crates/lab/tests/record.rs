//! Recording: does the trace of a real program say what the program did?

use std::process::{Command, Stdio};
use twinpage_lab::trace::{Event, RecordError, Recorded, Trace, Window, can_record, record};

/// False, loudly, where nothing can be recorded; in CI that is a failure.
fn ready() -> bool {
    let ready = can_record();
    if !ready {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI needs valgrind: apt install valgrind"
        );
        eprintln!("SKIPPED: valgrind is not installed (apt install valgrind)");
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

#[test]
fn a_program_is_recorded() {
    if !ready() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let (source, program) = (scratch.path().join("a.c"), scratch.path().join("a"));
    std::fs::write(&source, STRIDES).unwrap();
    let built = Command::new("cc")
        .args(["-O1", "-o"])
        .args([&program, &source])
        .status();
    assert!(built.unwrap().success());

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
        .chunk_by(|one, next| next - one == 4096)
        .map(<[u64]>::len)
        .max();
    assert_eq!(longest, Some(16384));

    // A window of it: so many instructions, after so many.
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

#[test]
fn what_does_not_run_is_told() {
    if !ready() {
        return;
    }
    let missing = run(&Command::new("/nonexistent/program"), 0, 10)
        .unwrap_err()
        .to_string();
    assert!(missing.contains("/nonexistent/program did not run"), "{missing}");
    let short = run(&Command::new("true"), 1 << 40, 10).unwrap_err().to_string();
    assert!(short.contains("ended after"), "{short}");
}
