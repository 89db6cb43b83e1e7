//! A disk that is really full: a tiny tmpfs, mounted where only a child of this test sees it, and a
//! limit of file sizes. Where mounting is refused (no user namespaces), the test says so and passes.

use std::path::Path;
use std::process::Command;
use twinpage_core::dual_page::{DualPage, Options};
use twinpage_core::{Error, Geometry, Medium, PageId, PageLines, Scheme};
use twinpage_os::{Access, AnyMedium, Durability};

const BOTH: [Durability; 2] = [Durability::Disk, Durability::Memory];
const DISK_BYTES: u64 = 8 << 20;
/// Tells the child which folder to work in.
const FOLDER: &str = "TWINPAGE_TEST_FOLDER";

/// Runs test `name` of this binary again, under `shell`, which gets the binary and its arguments as `"$@"`
/// and the folder as `$TWINPAGE_TEST_FOLDER`.
fn again_under(shell: &[&str], name: &str) {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(shell[0])
        .args(&shell[1..])
        .arg("sh")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(FOLDER, folder.path())
        .output();
    let output = match output {
        Ok(output) if output.status.code() != Some(77) => output,
        refused => {
            eprintln!("SKIPPED {name}: this system refuses {shell:?}: {refused:?}");
            return;
        }
    };
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("1 passed"), "the child ran no test: {said}");
}

/// On a tmpfs of [`DISK_BYTES`] of its own. 77 says that there is none.
fn on_a_tiny_disk(name: &str) {
    let script =
        format!(r#"mount -t tmpfs -o size={DISK_BYTES} tmpfs "$TWINPAGE_TEST_FOLDER" || exit 77; exec "$@""#);
    let probe = Command::new("unshare").args(["-Urm", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED {name}: this system refuses `unshare -Urm`");
        return;
    }
    again_under(&["unshare", "-Urm", "sh", "-c", &script], name);
}

fn bytes(medium: &AnyMedium, at: u64, len: usize) -> Vec<u8> {
    let mut into = vec![0; len];
    medium.read(at, &mut into).unwrap();
    into
}

#[test]
fn a_full_disk_is_met_without_loss() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return on_a_tiny_disk("a_full_disk_is_met_without_loss");
    };
    for durability in BOTH {
        let path = Path::new(&folder).join("store");
        let ballast = Path::new(&folder).join("ballast");
        let mut medium = AnyMedium::create(&path, durability).unwrap();
        medium.grow(1 << 20).unwrap();
        medium.write(0, &[1; 1 << 20]).unwrap();
        medium.fence().unwrap();
        std::fs::write(&ballast, vec![0; (DISK_BYTES - (2 << 20)) as usize]).unwrap();

        let error = fill(&mut medium).unwrap_err();
        let Error::Full { what, needed } = &error else {
            panic!("{durability:?}: {error}")
        };
        assert!(what.contains("store") && *needed > 0, "{error}");
        assert!(matches!(fill(&mut medium), Err(Error::Full { .. })), "still full");
        medium.write(4096, b"what was there can be written").unwrap();
        medium.fence().unwrap();
        drop(medium);
        let mut medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
        assert_eq!(bytes(&medium, 0, 4096), [1; 4096]);
        assert_eq!(bytes(&medium, 4096, 9), b"what was ");

        std::fs::remove_file(&ballast).unwrap();
        fill(&mut medium).unwrap();
        assert_eq!(bytes(&medium, 0, 4096), [1; 4096]);
        assert_eq!(bytes(&medium, (4 << 20) - 3, 3), [2; 3]);
        drop(medium);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Fills the second to fourth MiB.
fn fill(medium: &mut AnyMedium) -> Result<(), Error> {
    medium.grow(4 << 20)?;
    for at in (1 << 20..4 << 20).step_by(65536) {
        medium.write(at, &[2; 65536])?;
    }
    medium.fence()
}

#[test]
fn a_hole_in_a_full_disk_raises_no_signal() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return on_a_tiny_disk("a_hole_in_a_full_disk_raises_no_signal");
    };
    for durability in BOTH {
        let path = Path::new(&folder).join("store");
        std::fs::File::create(&path).unwrap().set_len(4 << 20).unwrap();
        let ballast = Path::new(&folder).join("ballast");
        std::fs::write(&ballast, vec![0; 2 * DISK_BYTES as usize]).unwrap_err();
        let mut medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
        assert_eq!(bytes(&medium, 0, 4 << 20), vec![0; 4 << 20]);
        assert!(matches!(medium.write(1 << 20, b"x"), Err(Error::Full { .. })));
        assert_eq!(bytes(&medium, 1 << 20, 1), [0]);
        drop(medium);
        std::fs::remove_file(&ballast).unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_limit_of_file_sizes_is_a_full_disk() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        // 2048 blocks of 512 bytes; `trap` makes the child ignore SIGXFSZ.
        let script = r#"trap "" XFSZ; ulimit -f 2048 || exit 77; exec "$@""#;
        return again_under(&["sh", "-c", script], "a_limit_of_file_sizes_is_a_full_disk");
    };
    for durability in BOTH {
        let path = Path::new(&folder).join("store");
        let mut medium = AnyMedium::create(&path, durability).unwrap();
        medium.grow(1 << 19).unwrap();
        medium.write(0, b"before").unwrap();
        let error = medium.grow(2 << 20).unwrap_err();
        assert!(
            matches!(&error, Error::Full { what, .. } if what.contains("ulimit -f")),
            "{error}"
        );
        assert_eq!(medium.len(), 1 << 19);
        medium.fence().unwrap();
        drop(medium);
        let medium = AnyMedium::open(&path, durability, Access::ReadOnly).unwrap();
        assert_eq!(bytes(&medium, 0, 7), b"before\0");
        assert_eq!(medium.len(), 1 << 19);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_store_on_a_full_disk_goes_on_later() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return on_a_tiny_disk("a_store_on_a_full_disk_goes_on_later");
    };
    for durability in BOTH {
        let path = Path::new(&folder).join("store");
        let ballast = Path::new(&folder).join("ballast");
        std::fs::write(&ballast, vec![0; DISK_BYTES as usize / 2]).unwrap();
        let geometry = Geometry::new(64, 1 << 16).unwrap();
        let medium = AnyMedium::create(&path, durability).unwrap();
        let mut store = DualPage::create(medium, &Options::new(geometry).journal_bytes(1 << 16)).unwrap();
        let mut failures = 0;
        let mut epoch = 0;
        // Three MiB of pages, each written again in the next epoch: more than there is room for.
        while epoch < 32 {
            match write_epoch(&mut store, epoch + 1) {
                Ok(()) => epoch += 1,
                Err(Error::Full { what, .. }) if failures < 3 => {
                    assert!(what.contains("store"), "{what}");
                    store.abandon();
                    assert_holds(&store, epoch);
                    drop(store);
                    let medium = AnyMedium::open(&path, durability, Access::ReadWrite).unwrap();
                    store = DualPage::recover(medium).unwrap().0;
                    assert_holds(&store, epoch);
                    failures += 1;
                    if failures == 3 {
                        std::fs::remove_file(&ballast).unwrap();
                    }
                }
                Err(error) => panic!("{durability:?}: epoch {epoch}: {error}"),
            }
        }
        assert_eq!(failures, 3, "{durability:?}: the disk was never full");
        assert_holds(&store, epoch);
        assert_eq!(store.check().unwrap(), []);
        std::fs::remove_file(&path).unwrap();
    }
}

/// Pages written by an epoch: the last epoch's, and as many new ones.
fn pages(epoch: u64) -> std::ops::Range<u64> {
    (epoch - 1) * 24..(epoch + 1) * 24
}

fn write_epoch(store: &mut DualPage<AnyMedium>, epoch: u64) -> Result<(), Error> {
    for page in pages(epoch) {
        let bytes = [epoch as u8; 4096];
        let _ = store.write(PageLines::from(PageId(page), 0, &bytes, 64))?;
    }
    assert_eq!(store.commit(&epoch.to_le_bytes())?, epoch);
    Ok(())
}

fn assert_holds(store: &DualPage<AnyMedium>, epoch: u64) {
    assert_eq!(store.epoch(), epoch);
    for page in 0..pages(epoch + 2).end {
        let last_writer = (page / 24 + 1).min(epoch);
        let held = last_writer > 0 && pages(last_writer).contains(&page);
        let expected = if held { last_writer as u8 } else { 0 };
        let mut bytes = [0; 4096];
        store.read(PageId(page), 0, &mut bytes).unwrap();
        assert_eq!(bytes, [expected; 4096], "page {page} at epoch {epoch}");
        assert_eq!(store.is_present(PageId(page)), held);
    }
}
