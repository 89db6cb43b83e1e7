//! What is written is read back, what is damaged is refused.

use super::*;

fn dir() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn bytes(from: u64, len: usize) -> Vec<u8> {
    (from..from + len as u64)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect()
}

fn kept(floor: u64, end: u64, tail: &[u8]) -> Kept<'_> {
    let sums = [floor, end].map(|at| crc32c::crc32c(&bytes(0, at as usize)));
    Kept {
        floor,
        end,
        tail,
        sums: Some(sums),
    }
}

#[test]
fn reads_back_across_files_and_trims_whole_files_only() {
    let dir = dir();
    let mut log = Log::create(dir.path(), "output-0").unwrap();
    let chunk = 3 << 20;
    for i in 0..8 {
        log.append(&bytes(i * chunk as u64, chunk)).unwrap();
    }
    assert!(log.segments.len() > 2);
    let mut back = vec![0; 20 << 20];
    assert_eq!(log.read(1 << 20, &mut back).unwrap(), back.len());
    assert_eq!(back, bytes(1 << 20, 20 << 20));
    log.trim(10 << 20).unwrap();
    assert_eq!(list(dir.path(), "output-0").unwrap().len(), log.segments.len());
    let mut back = vec![0; 100];
    log.read(10 << 20, &mut back).unwrap();
    assert_eq!(back, bytes(10 << 20, 100));
    assert!(log.segments[0].start <= 10 << 20);
}

#[test]
fn opening_forgets_what_no_checkpoint_covers() {
    let dir = dir();
    let mut log = Log::create(dir.path(), "output-0").unwrap();
    log.append(&bytes(0, 20 << 20)).unwrap();
    log.append(b"late").unwrap();
    drop(log);
    let mut log = Log::open(dir.path(), "output-0", kept(5, 1000, &[]), false).unwrap();
    assert_eq!(log.end(), 1000);
    log.append(b"other").unwrap();
    let mut back = [0; 10];
    assert_eq!(log.read(995, &mut back).unwrap(), 10);
    assert_eq!(&back[5..], b"other");
    assert_eq!(back[..5], bytes(995, 5));
}

#[test]
fn opening_writes_the_contexts_tail_again_when_the_log_lost_it() {
    let dir = dir();
    for lost in [false, true] {
        let mut log = Log::create(dir.path(), "x").unwrap();
        log.append(&bytes(0, 500)).unwrap();
        let tail = bytes(400, 100);
        if lost {
            log.segments[0].file.set_len(400).unwrap();
        }
        drop(log);
        let log = Log::open(dir.path(), "x", kept(100, 500, &tail), false).unwrap();
        let mut back = vec![0; 400];
        assert_eq!(log.read(100, &mut back).unwrap(), 400);
        assert_eq!(back, bytes(100, 400));
    }
}

#[test]
fn a_log_that_lost_bytes_is_refused() {
    let dir = dir();
    let mut log = Log::create(dir.path(), "x").unwrap();
    log.append(&bytes(0, 500)).unwrap();
    log.segments[0].file.set_len(450).unwrap();
    drop(log);
    assert!(Log::look(dir.path(), "x", kept(100, 500, &[]), false).is_err());
    assert!(Log::look(dir.path(), "x", kept(460, 500, &bytes(460, 40)), false).is_ok());
    let error = Log::open(dir.path(), "x", kept(100, 500, &[]), false).unwrap_err();
    assert!(error.to_string().contains("450"), "{error}");
    assert!(Log::open(dir.path(), "x", kept(460, 500, &bytes(460, 40)), false).is_ok());
}

#[test]
fn the_rest_of_an_input_log_is_kept() {
    let dir = dir();
    let mut log = Log::create(dir.path(), "input").unwrap();
    log.append(&bytes(0, 9 << 20)).unwrap();
    log.append(&bytes(9 << 20, 100)).unwrap();
    let end = log.end();
    drop(log);
    let log = Log::open(dir.path(), "input", kept(10, 40, &[]), true).unwrap();
    assert_eq!(log.end(), end);
    let mut back = vec![0; 200];
    log.read(end - 200, &mut back).unwrap();
    assert_eq!(back, bytes(end - 200, 200));
}

#[test]
fn a_flipped_bit_in_what_is_needed_is_refused() {
    let dir = dir();
    let mut log = Log::create(dir.path(), "x").unwrap();
    log.append(&bytes(0, 300)).unwrap();
    let file = Arc::clone(&log.segments[0].file);
    drop(log);
    let tail = bytes(280, 20);
    let found = |kept| {
        let looked = Log::look(dir.path(), "x", kept, false);
        let opened = Log::open(dir.path(), "x", kept, false);
        assert_eq!(looked.is_ok(), opened.is_ok());
        opened.map(|mut log| {
            let mut back = vec![0; 200];
            log.read(100, &mut back).unwrap();
            assert_eq!(back, bytes(100, 200));
            assert_eq!(log.sums(100, 300).unwrap(), kept.sums.unwrap());
        })
    };
    for at in 0..300 {
        let byte = bytes(at, 1)[0];
        file.write_all_at(&[byte ^ 1 << (at % 8)], at).unwrap();
        // What is printed already, and what the context holds itself, is not read.
        let needed = (100..280).contains(&at);
        assert_eq!(found(kept(100, 300, &tail)).is_err(), needed, "byte {at}");
        file.write_all_at(&[byte], at).unwrap();
    }
    found(kept(100, 300, &tail)).unwrap();
}

#[test]
fn a_log_of_an_earlier_build_is_believed_and_summed_from_then_on() {
    let dir = dir();
    Log::create(dir.path(), "x")
        .unwrap()
        .append(&bytes(0, 300))
        .unwrap();
    let mut earlier = kept(100, 300, &[]);
    earlier.sums = None;
    let mut log = Log::open(dir.path(), "x", earlier, true).unwrap();
    log.append(&bytes(300, 100)).unwrap();
    let sums = log.sums(150, 350).unwrap();
    drop(log);
    let mut later = kept(150, 350, &[]);
    later.sums = Some(sums);
    assert_eq!(Log::open(dir.path(), "x", later, true).unwrap().end(), 400);
    later.floor = 151;
    assert!(Log::open(dir.path(), "x", later, true).is_err());
}
