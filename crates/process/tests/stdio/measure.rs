//! What holding output costs: `cargo test --release -p twinpage-process --test stdio -- --ignored --nocapture measure`.

use crate::support::pipe;
use rustix::fd::OwnedFd;
use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::time::{Duration, Instant};
use twinpage_process::stdio::{Options, RealStreams, Stdio};

fn sink(read: OwnedFd) -> std::thread::JoinHandle<u64> {
    std::thread::spawn(move || {
        let (mut file, mut bytes, mut all) = (File::from(read), vec![0; 1 << 20], 0);
        while let Ok(n @ 1..) = file.read(&mut bytes) {
            all += n as u64;
        }
        all
    })
}

/// Stops a program that prints `bytes` an epoch, every 4 ms, and prints how long the stops took.
fn stops(name: &str, dir: &Path, disk: bool, bytes: usize, terminal: bool) {
    let (read, out) = pipe();
    let sink = sink(read);
    let (master, slave) = crate::live::terminal();
    let fds = if terminal {
        drop(out);
        [
            Some(slave.try_clone().unwrap()),
            Some(slave.try_clone().unwrap()),
            Some(slave),
        ]
    } else {
        [None, Some(out), None]
    };
    let shown = terminal.then(|| self::sink(master));
    let stdio = Stdio::run(RealStreams::new(fds), Options::new(dir, disk)).unwrap();
    let [_, Some(end), _] = stdio.program_ends() else {
        panic!("stdout is relayed")
    };
    stdio.begin();
    let mut end = File::from(end);
    let (line, mut stop_us, mut sync_us) = (vec![b'x'; bytes], vec![], vec![]);
    for epoch in 1..=300 {
        end.write_all(&line).unwrap();
        std::thread::sleep(Duration::from_millis(4));
        let began = Instant::now();
        stdio.stop_point(epoch).unwrap();
        stop_us.push(began.elapsed().as_nanos() as f64 / 1e3);
        let began = Instant::now();
        stdio.before_commit(epoch).unwrap();
        sync_us.push(began.elapsed().as_nanos() as f64 / 1e3);
        stdio.durable(epoch).unwrap();
    }
    stdio.finish().unwrap();
    drop(stdio);
    drop(end);
    sink.join().unwrap();
    drop(shown);
    for of in [&mut stop_us, &mut sync_us] {
        of.sort_by(f64::total_cmp);
    }
    println!(
        "{name}: stop_us p50 {:.1} p99 {:.1} max {:.1}; before_commit_us p50 {:.1} p99 {:.1}",
        stop_us[150], stop_us[296], stop_us[299], sync_us[150], sync_us[296]
    );
}

#[test]
#[ignore = "a measurement"]
fn measure_stops() {
    let disk = tempfile::tempdir().unwrap();
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    for (what, bytes) in [
        ("silent", 0),
        ("100 bytes", 100),
        ("64 KiB", 65536),
        ("1 MiB", 1 << 20),
    ] {
        stops(
            &format!("{what} an epoch, memory"),
            memory.path(),
            false,
            bytes,
            false,
        );
        stops(&format!("{what} an epoch, disk"), disk.path(), true, bytes, false);
    }
    stops("silent on a terminal, memory", memory.path(), false, 0, true);
    stops("100 bytes on a terminal, memory", memory.path(), false, 100, true);
}

#[test]
#[ignore = "a measurement"]
fn measure_throughput() {
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let total: u64 = 2 << 30;
    for held in [false, true] {
        let (read, out) = pipe();
        let sink = sink(read);
        let began = Instant::now();
        let (stdio, end) = if held {
            let mut options = Options::new(memory.path(), false);
            options.limit_bytes = 256 << 20;
            let stdio = Stdio::run(RealStreams::new([None, Some(out), None]), options).unwrap();
            let [_, end, _] = stdio.program_ends();
            (Some(stdio), end.unwrap())
        } else {
            (None, out)
        };
        let prints = std::thread::spawn(move || {
            let (line, mut end) = ([b'x'; 65536], File::from(end));
            for _ in 0..total >> 16 {
                end.write_all(&line).unwrap();
            }
        });
        let mut epoch = 0;
        if let Some(stdio) = stdio {
            loop {
                let ended = prints.is_finished();
                epoch += 1;
                stdio.stop_point(epoch).unwrap();
                stdio.durable(epoch).unwrap();
                if ended {
                    break;
                }
                std::thread::sleep(Duration::from_millis(16));
            }
            stdio.finish().unwrap();
        }
        prints.join().unwrap();
        assert_eq!(sink.join().unwrap(), total);
        let mb_s = total as f64 / 1e6 / began.elapsed().as_secs_f64();
        println!(
            "{} MB through a pipe, held {held}: {mb_s:.0} MB/s, {epoch} epochs",
            total / 1_000_000
        );
    }
}
