//! A record without a fence before it, whose lines come later: a commit that was never whole does not come to life by
//! the lines of another.

use twinpage_core::crash::{Image, Op, Recorder};
use twinpage_core::dual_page::{DualPage, Fault, Options};
use twinpage_core::*;

const LINE: usize = 64;

fn write<M: Medium>(store: &mut DualPage<M>, line: usize, value: u8) {
    let bytes = [value; LINE];
    let lines = PageLines::from(PageId(0), line, &bytes, LINE);
    let _ = store.write(lines).unwrap();
}

fn line<M: Medium>(store: &DualPage<M>, line: usize) -> u8 {
    let mut bytes = [0; LINE];
    store.read(PageId(0), line, &mut bytes).unwrap();
    bytes[0]
}

fn write_both<M: Medium>(store: &mut DualPage<M>, values: [u8; 2]) {
    write(store, 0, values[0]);
    write(store, 1, values[1]);
    store.commit(b"").unwrap();
}

fn copy(image: &Image) -> Image {
    Image::from_bytes(image.bytes().to_vec(), 8)
}

/// A commit of a store that has had some, on what the medium held before: one fence makes it.
fn unfenced_commit(values: [u8; 2]) -> (Image, Vec<Op>) {
    let geometry = Geometry::new(LINE as u32, 8192).unwrap();
    let options = Options::new(geometry).checksums(true);
    let recorder = Recorder::new(Image::new(8));
    let log = recorder.log();
    let mut store = DualPage::create(recorder, &options).unwrap();
    for value in 1..4 {
        write(&mut store, 5, value);
        store.commit(b"").unwrap();
    }
    let begun = copy(store.medium().image());
    log.take();
    write_both(&mut store, values);
    let ops = log.take();
    let fences = ops.iter().filter(|op| matches!(op, Op::Fence)).count();
    assert_eq!(fences, 1);
    (begun, ops)
}

/// The first commit after a recovery.
fn next_commit(image: &Image, values: [u8; 2], fault: Option<Fault>) -> Vec<Op> {
    let recorder = Recorder::new(copy(image));
    let log = recorder.log();
    let (mut store, _) = DualPage::recover_with(recorder, fault).unwrap();
    write_both(&mut store, values);
    log.take()
}

fn is_line(bytes: &[u8], value: u8) -> bool {
    bytes.len().is_multiple_of(LINE) && bytes.iter().all(|&byte| byte == value)
}

/// The images that a crash leaves at each fence if of all that is not fenced only what `is_there` says is there.
fn crashed(image: &Image, ops: &[Op], is_there: impl Fn(&[u8]) -> bool) -> Vec<Image> {
    let mut fenced = copy(image);
    let mut images = Vec::new();
    for ops in ops.split_inclusive(|op| matches!(op, Op::Fence)) {
        let mut left = copy(&fenced);
        for op in ops {
            match op {
                Op::Write { at, bytes } => {
                    fenced.write(*at, bytes).unwrap();
                    if is_there(bytes) {
                        left.write(*at, bytes).unwrap();
                    }
                }
                Op::Grow(_) | Op::Discard(..) => panic!("the store is steady"),
                _ => {}
            }
        }
        images.push(left);
    }
    images
}

/// What lines 0 and 1 hold after two crashes: in the first, the record of a commit of [1, 3] came without the line that
/// is 1; in the second, of the next commit only the line that is 1 came.
fn after_two_crashes(fault: Option<Fault>) -> Vec<[u8; 2]> {
    let (begun, first) = unfenced_commit([1, 3]);
    let lost = crashed(&begun, &first, |bytes| !is_line(bytes, 1)).swap_remove(0);
    let second = next_commit(&lost, [1, 2], fault);
    let images = crashed(&lost, &second, |bytes| is_line(bytes, 1)).into_iter();
    let found = images.map(|image| {
        let (store, _) = DualPage::recover(image).unwrap();
        [line(&store, 0), line(&store, 1)]
    });
    found.collect()
}

#[test]
fn a_commit_that_was_lost_stays_lost() {
    let found = after_two_crashes(None);
    assert!(
        found.len() > 1 && found.iter().all(|values| *values == [0, 0] || *values == [1, 2]),
        "{found:?}"
    );
    let found = after_two_crashes(Some(Fault::CompleteLater));
    assert!(found.contains(&[1, 3]), "the planted fault is found: {found:?}");
}
