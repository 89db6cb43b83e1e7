//! A user without privileges, and a process that may have no page faults at all.

use crate::support::name;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use twinpage::{Error, Region, control_socket};

const CHILD: &str = "TWINPAGE_TEST_UNPRIVILEGED";
const BYTES: usize = 1 << 20;

/// A temporary directory for any user.
fn folder_of_all() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

/// Reruns one test as user `nobody`, in a temporary directory.
fn child(test: &str) {
    child_in(folder_of_all().path(), test);
}

fn child_in(folder: &Path, test: &str) {
    // Where any user may run it. By a process of its own: a child of another test would hold what this one
    // writes, and a program that is open for writing cannot be run.
    let program = folder.join("test");
    let copied = Command::new("cp")
        .args([&std::env::current_exe().unwrap(), &program])
        .status();
    assert!(copied.is_ok_and(|status| status.success()), "a copy of the test");
    let mut command = match rustix::process::geteuid().is_root() {
        true => Command::new("setpriv"),
        false => Command::new("env"),
    };
    if rustix::process::geteuid().is_root() {
        command.args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ]);
    }
    let done = command
        .arg(&program)
        .args(["--exact", &name(module_path!(), test), "--nocapture"])
        .env(CHILD, folder)
        .current_dir(folder)
        .output()
        .expect("setpriv, of util-linux");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stdout)
    );
}

fn make(path: &Path) {
    let region = Region::open(path).unwrap();
    region.update(|update| {
        update.place().grow(BYTES).unwrap();
        let at = update.place().base();
        // SAFETY: these bytes are usable, and have no other user.
        unsafe {
            update.place().touch(0..BYTES);
            at.write_bytes(7, BYTES);
        }
    });
    region.close().unwrap();
}

/// What a system call says that is given bytes of the region.
fn write_to_a_file(region: &Region, bytes: std::ops::Range<usize>) -> std::io::Result<()> {
    let at = region.place().base().wrapping_add(bytes.start);
    // SAFETY: the bytes are usable, and do not change meanwhile.
    let memory = unsafe { std::slice::from_raw_parts(at, bytes.len()) };
    tempfile::tempfile_in(".")?.write_all(memory)
}

#[test]
fn without_privileges_the_kernel_does_not_wait_for_pages() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let path = Path::new(&folder).join("region");
        make(&path);
        let region = Region::open(&path).unwrap();
        println!("the kernel waits: {}", region.kernel_loads_pages());
        let first = write_to_a_file(&region, 0..BYTES / 2);
        assert_eq!(first.is_ok(), region.kernel_loads_pages(), "{first:?}");
        // What is loaded before is there.
        region.load(0..BYTES).unwrap();
        write_to_a_file(&region, 0..BYTES).unwrap();
        // The program itself waits for pages.
        drop(region);
        for options in [Region::options(), Region::options().memory_budget(256 << 10)] {
            let region = options.open(&path).unwrap();
            let at = region.place().base();
            // SAFETY: as above.
            assert!((0..BYTES).all(|byte| unsafe { at.add(byte).read() } == 7));
            assert!(!region.statistics().paging.loaded_at_open);
        }
        return;
    }
    let name = "without_privileges_the_kernel_does_not_wait_for_pages";
    child(name);
}

#[test]
fn without_page_faults_all_is_loaded_at_once() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let path = Path::new(&folder).join("region");
        make(&path);
        let bare = Region::open(&path).unwrap();
        assert!(!bare.statistics().paging.loaded_at_open);
        drop(bare);
        forbid_userfaultfd();
        let region = Region::open(&path).unwrap();
        let paging = region.statistics().paging;
        assert!(paging.loaded_at_open && region.kernel_loads_pages());
        assert_eq!(paging.loaded_pages as usize, BYTES / 4096);
        write_to_a_file(&region, 0..BYTES).unwrap();
        region.update(|update| {
            update.place().grow(2 * BYTES).unwrap();
            // SAFETY: nothing lives there.
            unsafe { update.place().discard(0..8192) }.unwrap();
        });
        region.close().unwrap();
        let region = Region::open(&path).unwrap();
        let byte = |at: usize| {
            // SAFETY: the byte is usable.
            unsafe { region.place().base().add(at).read() }
        };
        assert_eq!([0, 8191, 8192, BYTES - 1, BYTES].map(byte), [0, 0, 7, 7, 0]);
        drop(region);
        let error = Region::options().memory_budget(1 << 20).open(&path).unwrap_err();
        assert!(
            matches!(&error, Error::Invalid(why) if why.contains("without a budget")),
            "{error}"
        );
        return;
    }
    child("without_page_faults_all_is_loaded_at_once");
}

#[test]
fn a_file_that_may_only_be_read_is_refused_with_the_way_to_read_it() {
    if let Some(folder) = std::env::var_os(CHILD) {
        let path = Path::new(&folder).join("region");
        make(&path);
        let mut rights = std::fs::metadata(&path).unwrap().permissions();
        rights.set_readonly(true);
        std::fs::set_permissions(&path, rights).unwrap();
        let refused = Region::open(&path).unwrap_err().to_string();
        for part in ["region to write", "`Reader::open`", "Permission denied"] {
            assert!(refused.contains(part), "{refused}");
        }
        assert!(!refused.contains("at byte"), "{refused}");
        return;
    }
    child("a_file_that_may_only_be_read_is_refused_with_the_way_to_read_it");
}

/// Any process can take the name of a region's socket before the one that opens the region.
#[test]
fn what_another_user_answers_for_a_region_is_not_believed() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::{fs::MetadataExt, net};
    let at = |folder: &Path| folder.join("region");
    if let Some(folder) = std::env::var_os(CHILD) {
        let found = std::fs::metadata(at(Path::new(&folder))).unwrap();
        let name = format!("twinpage-region-{:x}-{:x}", found.dev(), found.ino());
        let address = net::SocketAddr::from_abstract_name(name.as_bytes()).unwrap();
        let (mut stream, _) = net::UnixListener::bind_addr(&address).unwrap().accept().unwrap();
        let _ = stream.write_all(b"{\"epoch\": 17}\n");
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: another user that takes a socket: it takes root to be one");
        return;
    }
    let folder = folder_of_all();
    let (path, to) = (at(folder.path()), folder.path().join("copy"));
    make(&path);
    let name = "what_another_user_answers_for_a_region_is_not_believed";
    std::thread::scope(|scope| {
        let child = scope.spawn(|| child_in(folder.path(), name));
        let why = loop {
            match control_socket::backup(&path, &to).unwrap_err().to_string() {
                why if why.contains("no program") && !child.is_finished() => std::thread::yield_now(),
                why => break why,
            }
        };
        assert!(why.contains("65534") && why.contains("not believed"), "{why}");
    });
    assert!(!to.exists());
}

/// As container engines do by default; and no process may open the device node.
fn forbid_userfaultfd() {
    let load = |word: u16, k: u32| libc::sock_filter {
        code: word,
        jt: 0,
        jf: 0,
        k,
    };
    let call = libc::SYS_userfaultfd as u32;
    let program = [
        load((libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16, 0),
        libc::sock_filter {
            code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
            jt: 0,
            jf: 1,
            k: call,
        },
        load(
            (libc::BPF_RET | libc::BPF_K) as u16,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        load((libc::BPF_RET | libc::BPF_K) as u16, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the program outlives the call, which copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let flags = libc::SECCOMP_FILTER_FLAG_TSYNC;
        assert_eq!(
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                flags,
                &raw const program
            ),
            0
        );
    }
}
