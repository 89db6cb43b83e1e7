//! What every medium promises, asked of the file and of the memory medium alike.

use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use twinpage_core::dual_page::{DualPage, Options, PoolLimit};
use twinpage_core::{Error, Geometry, Medium, PageId, PageLines, Scheme};
use twinpage_os::{Access, AnyMedium, DirectFile, Durability};

const BOTH: [Durability; 2] = [Durability::Disk, Durability::Memory];

/// A place for a medium of this kind: memory files belong on tmpfs where there is one.
fn folder(durability: Durability) -> tempfile::TempDir {
    match durability {
        Durability::Memory if Path::new("/dev/shm").is_dir() => tempfile::tempdir_in("/dev/shm"),
        _ => tempfile::tempdir(),
    }
    .unwrap()
}

fn fresh(durability: Durability) -> (tempfile::TempDir, PathBuf, AnyMedium) {
    let folder = folder(durability);
    let path = folder.path().join("store");
    let medium = AnyMedium::create(&path, durability).unwrap();
    (folder, path, medium)
}

fn bytes(medium: &impl Medium, at: u64, len: usize) -> Vec<u8> {
    let mut into = vec![0xee; len];
    medium.read(at, &mut into).unwrap();
    if let Some(view) = medium.view(at, len) {
        assert_eq!(into, view);
    }
    into
}

#[test]
fn a_new_medium_is_empty_private_and_alone() {
    for durability in BOTH {
        let (_folder, path, medium) = fresh(durability);
        assert!(medium.is_empty());
        let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        let again = AnyMedium::create(&path, durability).unwrap_err();
        assert!(again.to_string().contains("store"), "{again}");
    }
}

#[test]
fn what_was_written_is_there_after_reopening() {
    for durability in BOTH {
        let (_folder, path, mut medium) = fresh(durability);
        medium.grow(1 << 20).unwrap();
        medium.write(12345, b"stays").unwrap();
        medium.fence().unwrap();
        drop(medium);
        let medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
        assert_eq!(medium.len(), 1 << 20);
        assert_eq!(bytes(&medium, 12344, 7), b"\0stays\0");
    }
}

#[test]
fn a_memory_file_outgrows_the_addresses_kept_for_it() {
    let (_folder, path, mut medium) = fresh(Durability::Memory);
    medium.grow(1 << 20).unwrap();
    medium.write(4095, b"first").unwrap();
    for len in [100 << 30, 300 << 30_u64] {
        medium.grow(len).unwrap(); // holes: no space
        assert_eq!(bytes(&medium, 4094, 7), b"\0first\0");
        medium.write(len - 4, b"last").unwrap();
        assert_eq!(bytes(&medium, len - 5, 5), b"\0last");
    }
    drop(medium);
    let medium = AnyMedium::open(&path, Durability::Memory, Access::ReadWrite).unwrap();
    assert_eq!(bytes(&medium, 4094, 7), b"\0first\0");
    assert_eq!(bytes(&medium, (100 << 30) - 5, 5), b"\0last");
}

#[test]
fn looking_changes_nothing() {
    for durability in BOTH {
        let (_folder, path, mut medium) = fresh(durability);
        medium.grow(1 << 20).unwrap();
        medium.write(4096, b"seen").unwrap();
        medium.fence().unwrap();
        let before = std::fs::read(&path).unwrap();
        let mut looker = AnyMedium::open(&path, durability, Access::ReadOnly).unwrap();
        assert_eq!(bytes(&looker, 4096, 4), b"seen");
        looker.write(4097, b"AN").unwrap();
        looker.write(1 << 19, b"alone").unwrap();
        assert_eq!(bytes(&looker, 4096, 4), b"sANn");
        for refused in [looker.grow(2 << 20), looker.discard(0..4096), looker.fence()] {
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
        drop(looker);
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(bytes(&medium, 4096, 4), b"seen");
    }
}

/// A store killed while lines were in the fall-back: recovery copies them home, also when only looking.
#[test]
fn a_store_that_recovery_must_finish_can_be_looked_at() {
    for durability in BOTH {
        let (_folder, path, medium) = fresh(durability);
        let options = Options::new(Geometry::new(64, 16384).unwrap()).pool(PoolLimit::Pages(1));
        let mut store = DualPage::create(medium, &options).unwrap();
        for epoch in 1..=2 {
            for page in 0..9 {
                let bytes = [epoch; 4096];
                let _ = store.write(PageLines::from(PageId(page), 0, &bytes, 64)).unwrap();
            }
            store.commit(b"context").unwrap();
        }
        assert!(store.info().pool.failures > 0, "the fall-back was not used");
        // As if it were killed: what was posted since the last fence is not in a file.
        drop(store);
        let before = std::fs::read(&path).unwrap();
        let medium = AnyMedium::open(&path, durability, Access::ReadOnly).unwrap();
        let (store, recovered) = DualPage::recover(medium).unwrap();
        assert_eq!((recovered.epoch, &recovered.context[..]), (2, &b"context"[..]));
        assert_eq!(store.check().unwrap(), []);
        for page in 0..9 {
            let mut bytes = [0; 4096];
            store.read(PageId(page), 0, &mut bytes).unwrap();
            assert_eq!(bytes, [2; 4096], "page {page}");
        }
        drop(store);
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
}

#[test]
fn outside_the_length_is_an_error_and_no_poison() {
    for durability in BOTH {
        let (_folder, _path, mut medium) = fresh(durability);
        medium.grow(4096).unwrap();
        let mut into = [0; 8];
        for at in [4089, 4096, 1 << 50, u64::MAX - 3, u64::MAX] {
            assert!(
                matches!(medium.read(at, &mut into), Err(Error::Io { .. })),
                "{at}"
            );
            assert!(medium.write(at, &into).is_err(), "{at}");
            assert!(medium.view(at, 8).is_none(), "{at}");
        }
        medium.write(4088, &into).unwrap();
        medium.write(4096, &[]).unwrap();
        medium.discard(0..u64::MAX).unwrap();
        medium.discard(u64::MAX - 1..u64::MAX).unwrap();
        medium.fence().unwrap();
    }
}

#[test]
fn a_torn_file_tells_its_true_length() {
    for durability in BOTH {
        for len in [0, 1, 511, 4095, 4097, (256 << 10) - 1, (256 << 10) + 1, 1_000_003] {
            let (_folder, path, mut medium) = fresh(durability);
            medium.grow(1 << 20).unwrap();
            for at in (0..1 << 20).step_by(4096) {
                medium.write(at, &[7; 4096]).unwrap();
            }
            medium.fence().unwrap();
            drop(medium);
            std::fs::OpenOptions::new()
                .write(true)
                .open(&path)
                .unwrap()
                .set_len(len)
                .unwrap();

            let mut medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
            assert_eq!(medium.len(), len);
            assert_eq!(bytes(&medium, 0, len as usize), vec![7; len as usize]);
            assert!(medium.read(len, &mut [0]).is_err());
            medium.grow(2 << 20).unwrap();
            assert_eq!(bytes(&medium, len, 10), [0; 10], "bytes gained read as zero");
            medium.write(len, &[9; 5000]).unwrap();
            medium.fence().unwrap();
            assert_eq!(bytes(&medium, len, 5001)[4999..], [9, 0]);
        }
    }
}

#[test]
fn grows_to_thousands_of_extents_without_moving() {
    const EXTENT: u64 = 2 << 20;
    for durability in BOTH {
        let (_folder, path, mut medium) = fresh(durability);
        medium.grow(EXTENT).unwrap();
        medium.write(0, b"first").unwrap();
        let place = medium.view(0, 5).map(<[u8]>::as_ptr);
        // A disk reserves what it grows by, so it stays small; memory takes only addresses.
        let extents = if durability == Durability::Memory {
            5000
        } else {
            40
        };
        for k in 1..extents {
            medium.grow((k + 1) * EXTENT).unwrap();
            if k % 500 == 7 || k + 1 == extents {
                medium.write((k + 1) * EXTENT - 8, &k.to_le_bytes()).unwrap();
            }
        }
        assert_eq!(medium.view(0, 5).map(<[u8]>::as_ptr), place);
        medium.fence().unwrap();
        drop(medium);
        let medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
        assert_eq!(medium.len(), extents * EXTENT);
        assert_eq!(bytes(&medium, 0, 5), b"first");
        for k in (1..extents).filter(|k| k % 500 == 7 || k + 1 == extents) {
            assert_eq!(bytes(&medium, (k + 1) * EXTENT - 8, 8), k.to_le_bytes());
        }
    }
}

#[test]
fn a_file_too_long_for_the_addresses_is_refused() {
    let (_folder, path, mut medium) = fresh(Durability::Memory);
    let error = medium.grow(1 << 60).unwrap_err();
    assert!(matches!(error, Error::Full { .. }), "{error}");
    assert!(medium.is_empty());
    drop(medium);
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(200 << 40) // of 128 TiB of addresses
        .unwrap();
    let error = AnyMedium::open(&path, Durability::Memory, Access::ReadWrite).unwrap_err();
    assert!(error.to_string().contains("store"), "{error}");
}

#[test]
fn discarded_space_goes_back_and_comes_again() {
    use std::os::unix::fs::MetadataExt;
    for durability in BOTH {
        let (_folder, path, mut medium) = fresh(durability);
        medium.grow(4 << 20).unwrap();
        for at in (0..4 << 20).step_by(1 << 16) {
            medium.write(at, &[1; 1 << 16]).unwrap();
        }
        medium.fence().unwrap();
        let full = path.metadata().unwrap().blocks();
        medium.discard(1 << 20..3 << 20).unwrap();
        medium.fence().unwrap();
        let less = path.metadata().unwrap().blocks();
        // The file system's own blocks count too: a hole may need one more for the map of the file's extents.
        const MAP_BLOCKS: u64 = 4096 / 512;
        assert!(
            less <= full - (2 << 20) / 512 + MAP_BLOCKS,
            "{durability:?}: {full} blocks, then {less}"
        );
        assert_eq!(bytes(&medium, (1 << 20) - 1, 2), [1, 0]);
        assert_eq!(bytes(&medium, (3 << 20) - 1, 2), [0, 1]);
        medium.write(2 << 20, b"again").unwrap();
        assert_eq!(bytes(&medium, (2 << 20) - 1, 7), b"\0again\0");
        medium.fence().unwrap();
        drop(medium);
        let medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
        assert_eq!(bytes(&medium, (2 << 20) - 1, 7), b"\0again\0");
        assert_eq!(bytes(&medium, 0, 1), [1]);
    }
}

#[test]
fn what_is_no_regular_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for durability in BOTH {
        for path in [folder.path(), Path::new("/dev/null"), Path::new("/nowhere/store")] {
            let error = AnyMedium::open(path, durability, Access::ReadWrite).unwrap_err();
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}

/// Where files are on persistent memory (see `tests/power`), `Disk` finds it by itself and `Dax` works.
#[test]
fn persistent_memory_is_found_by_looking() {
    for folder in [tempfile::tempdir(), tempfile::tempdir_in("/dev/shm")] {
        let Ok(folder) = folder else { continue };
        let (dax, disk) = (folder.path().join("dax"), folder.path().join("disk"));
        let found = AnyMedium::create(&disk, Durability::Disk).unwrap();
        match AnyMedium::create(&dax, Durability::Dax) {
            Ok(medium) => {
                assert!(matches!((medium, found), (AnyMedium::Dax(_), AnyMedium::Dax(_))));
            }
            Err(error) => {
                assert!(matches!(found, AnyMedium::File(_)));
                let text = error.to_string();
                for part in [dax.parent().unwrap().to_str().unwrap(), "DAX", "-o dax", "disk"] {
                    assert!(text.contains(part), "{text}");
                }
                assert!(!dax.exists(), "nothing is left behind");
                assert!(AnyMedium::open(&disk, Durability::Dax, Access::ReadWrite).is_err());
            }
        }
    }
}

#[test]
fn memory_is_in_the_file_at_once() {
    let (_folder, path, mut medium) = fresh(Durability::Memory);
    medium.grow(4096).unwrap();
    for len in [8, 24, 64, 72, 4000] {
        medium.write(0, &vec![len as u8; len]).unwrap();
        let mut into = vec![0; len];
        std::fs::File::open(&path)
            .unwrap()
            .read_exact_at(&mut into, 0)
            .unwrap();
        assert_eq!(into, vec![len as u8; len]);
    }
}

/// One step of a random run; places and lengths are cut to what the medium holds.
#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize, u8),
    Read(u64, usize),
    Grow(u64),
    Discard(u64, u64),
    Fence,
    Reopen,
}

const SPAN: u64 = 3 << 20;

fn op() -> impl Strategy<Value = Op> {
    let short = prop_oneof![1..200usize, Just(4096), Just(64), 1..300_000usize];
    prop_oneof![
        8 => (0..SPAN, short.clone(), any::<u8>()).prop_map(|(at, len, byte)| Op::Write(at, len, byte)),
        2 => (0..SPAN / 64, any::<u8>()).prop_map(|(line, byte)| Op::Write(line * 64, 64, byte)),
        4 => (0..SPAN, short).prop_map(|(at, len)| Op::Read(at, len)),
        2 => (0..SPAN).prop_map(Op::Grow),
        1 => (0..SPAN, 0..SPAN).prop_map(|(a, b)| Op::Discard(a.min(b), a.max(b))),
        2 => Just(Op::Fence),
        1 => Just(Op::Reopen),
    ]
}

/// Runs `ops` on a medium and on a plain vector. What is discarded may read as zero or as it was, so
/// the model takes over what the medium answers there.
fn run(durability: Durability, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (_folder, path, mut medium) = fresh(durability);
    let mut model: Vec<u8> = Vec::new();
    for op in ops {
        match op {
            Op::Write(at, len, byte) => {
                let at = at.min(model.len() as u64);
                let len = len.min(model.len() - at as usize);
                let data: Vec<u8> = (0..len).map(|k| byte.wrapping_add(k as u8)).collect();
                medium.write(at, &data).unwrap();
                model[at as usize..][..len].copy_from_slice(&data);
            }
            Op::Read(at, len) => {
                let at = at.min(model.len() as u64);
                let len = len.min(model.len() - at as usize);
                prop_assert!(
                    bytes(&medium, at, len) == model[at as usize..][..len],
                    "{len} bytes at {at}"
                );
            }
            Op::Grow(len) => {
                medium.grow(len).unwrap();
                model.resize(model.len().max(len as usize), 0);
            }
            Op::Discard(from, to) => {
                let (from, to) = (from.min(model.len() as u64), to.min(model.len() as u64));
                medium.discard(from..to).unwrap();
                let now = bytes(&medium, from, (to - from) as usize);
                let was = &mut model[from as usize..to as usize];
                prop_assert!(
                    now.iter()
                        .zip(was.iter())
                        .all(|(now, was)| now == was || *now == 0)
                );
                was.copy_from_slice(&now);
            }
            Op::Fence => medium.fence().unwrap(),
            Op::Reopen => {
                medium.fence().unwrap();
                drop(medium);
                medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
            }
        }
        prop_assert_eq!(medium.len(), model.len() as u64);
    }
    prop_assert!(
        bytes(&medium, 0, model.len()) == model,
        "the whole medium at the end"
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_a_vector(ops in prop::collection::vec(op(), 0..60)) {
        run(Durability::Disk, ops)?;
    }

    #[test]
    fn memory_is_a_vector(ops in prop::collection::vec(op(), 0..60)) {
        run(Durability::Memory, ops)?;
    }
}

/// Pages of a file that the page cache has and the disk has not: cachestat(2). None where the system cannot tell.
#[allow(unsafe_code)]
fn unwritten_pages(file: &std::fs::File) -> Option<u64> {
    use std::os::fd::AsRawFd;
    const CACHESTAT: libc::c_long = 451;
    let (all, mut found) = ([0u64; 2], [0u64; 5]);
    // SAFETY: the kernel reads the range, and writes five numbers.
    let done = unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), all.as_ptr(), found.as_mut_ptr(), 0) };
    let [_, dirty, under_way, ..] = found;
    (done == 0).then_some(dirty + under_way)
}

#[test]
fn what_a_killed_process_wrote_is_durable_once_the_file_is_open() {
    // Not where temporary files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
    let path = folder.path().join("store");
    let file = std::fs::File::create(&path).unwrap();
    let disk = Durability::Disk;
    let open: [(&str, &dyn Fn()); 2] = [
        ("medium", &|| {
            drop(AnyMedium::open(&path, disk, Access::ReadWrite).unwrap())
        }),
        ("direct", &|| {
            drop(DirectFile::open(&path, disk, None, Access::ReadWrite).unwrap())
        }),
    ];
    for (name, open) in open {
        file.write_all_at(&[7; 1 << 16], 0).unwrap();
        match unwritten_pages(&file) {
            None | Some(0) => return println!("SKIPPED: this file system does not tell what is on the disk"),
            Some(_) => open(),
        }
        assert_eq!(unwritten_pages(&file), Some(0), "{name}");
    }
}
