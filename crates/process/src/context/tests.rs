use super::reader::check_tree;
use super::writer::encode;
use super::*;
use twinpage_os::trace::Rseq;

const BESIDE: Beside<'_> = Beside {
    pages: b"table",
    streams: b"streams",
    members: &[],
    foreground: 0,
};

fn sample() -> (Writer, Vec<ThreadRegisters>, VolatileState) {
    let mut registers = twinpage_os::trace::from_words(&[0; WORDS_IN_REGISTERS]);
    registers.rip = 0x1234;
    let thread = ThreadRegisters {
        tid: 300,
        registers,
        mask: 5,
        robust: (6, 24),
        rseq: Rseq::new(7, 32, 8),
        extended: vec![9; 832],
    };
    let mut writer = Writer::default();
    let fixed = StableState {
        machine: Machine::this().unwrap(),
        pid: 300,
        command: vec!["true".into()],
        mappings: Vec::new(),
        marks: Vec::new(),
        kernel: Kernel::default(),
        descriptors: Vec::new(),
        threads: Vec::new(),
        ended: Some(Ending::Exit(3)),
        fifos: Vec::new(),
        main_thread_ended: None,
        apart: vec![(301, 1)],
        segments: segments::Saved::default(),
        ipc: ipc::Saved::default(),
        last_id: 0,
    };
    writer.set_fixed(&fixed).unwrap();
    (writer, vec![thread], VolatileState::default())
}

/// What versions 7 and 8 have behind the steady part comes back to its place.
#[test]
fn what_was_added_reads_back() {
    let status = "Uid:\t7\t8\t9\t8\nGid:\t1\t2\t3\t2\nGroups:\t4\nCapInh:\t1\nCapPrm:\tf\nCapEff:\t3\n";
    let mut fixed = StableState::of_descendant(Machine::this().unwrap());
    fixed.threads = vec![ThreadState {
        tid: 300,
        credentials: Credentials::parse(status),
        keeps_capabilities: true,
        ..ThreadState::default()
    }];
    let descriptor = |fd, notice| Descriptor {
        fd,
        flags: 0,
        cloexec: false,
        kind: crate::descriptors::DescriptorKind::Event,
        shares: 4,
        locks: Vec::new(),
        notice,
    };
    let notice: Notice = postcard::from_bytes(&[2, 20, 0, 1]).unwrap();
    fixed.descriptors = vec![descriptor(4, Some(notice)), descriptor(5, Some(notice))];
    fixed.segments =
        postcard::from_bytes(&[8, 1, 6, 10, 2, 1, 9, 99, 0xa0, 3, 1, 2, 3, 4, 0, 0, 0, 0, 0]).unwrap();
    let mut writer = Writer::default();
    writer.set_fixed(&fixed).unwrap();
    let mut bytes = Vec::new();
    let (clocks, live) = (Clocks::default(), VolatileState::default());
    writer
        .write(&mut bytes, clocks, Threads::default(), &live, BESIDE)
        .unwrap();
    let read = read(&bytes).unwrap().fixed;
    assert!(read.threads[0].credentials.is_some() && read.threads == fixed.threads);
    // Kept once for each open file.
    let notices: Vec<_> = read.descriptors.iter().map(|one| one.notice).collect();
    assert_eq!(notices, [Some(notice), None]);
    assert_eq!(read.segments, fixed.segments);
    let segment = &read.segments.list[0];
    assert_eq!(
        (segment.number, segment.key, segment.bytes, segment.mode),
        (3, 5, 99, 0o640)
    );
}

/// Version 6 counted tables of descriptors from another bit on.
#[test]
fn descriptors_of_version_6_read_back() {
    let mut fixed = StableState::of_descendant(Machine::this().unwrap());
    let descriptor = |fd, shares| Descriptor {
        fd,
        flags: 0,
        cloexec: false,
        kind: crate::descriptors::DescriptorKind::Event,
        shares,
        locks: Vec::new(),
        notice: None,
    };
    fixed.descriptors = vec![descriptor(4, 4), descriptor(3 << 24 | 5, 4)];
    let mut writer = Writer::default();
    writer.set_fixed(&fixed).unwrap();
    let mut bytes = Vec::new();
    let threads = Threads::default();
    writer
        .write(
            &mut bytes,
            Clocks::now(),
            threads,
            &VolatileState::default(),
            BESIDE,
        )
        .unwrap();
    let this = read(&bytes).unwrap().fixed.descriptors;
    bytes[4..8].copy_from_slice(&6u32.to_le_bytes());
    let earlier = read(&bytes).unwrap().fixed.descriptors;
    assert_eq!(this, fixed.descriptors);
    assert_eq!(earlier, [descriptor(4, 4), descriptor(3 << 20 | 5, 4)]);
}

#[test]
fn a_context_reads_back() {
    let (writer, threads, live) = sample();
    let clocks = Clocks {
        monotonic_ns: 1,
        realtime_ns: 2,
    };
    let unfinished = [Unfinished {
        tid: 300,
        number: libc::SYS_poll,
        until_ns: Some(7),
        done: 0,
        wanted: 0,
        tells: true,
    }];
    let threads = Threads {
        moving: &threads,
        unfinished: &unfinished,
    };
    let mut bytes = Vec::new();
    writer.write(&mut bytes, clocks, threads, &live, BESIDE).unwrap();
    let context = read(&bytes).unwrap();
    assert_eq!(context.unfinished, unfinished);
    assert_eq!(context.clocks, clocks);
    assert_eq!(context.threads[0].registers.rip, 0x1234);
    assert_eq!(context.threads[0].extended, [9; 832]);
    assert_eq!(
        (&context.pages[..], &context.streams[..]),
        (&b"table"[..], &b"streams"[..])
    );
    assert_eq!(context.fixed.ended, Some(Ending::Exit(3)));
    assert_eq!(context.fixed.apart, [(301, 1)]);
}

fn member(pid: i32, state: MemberState) -> Member {
    Member {
        pid,
        parent: 300,
        group: 300,
        session: 300,
        exit_signal: libc::SIGCHLD,
        state,
    }
}

/// A program with one child that lives and one that ended.
fn sample_tree() -> Vec<u8> {
    let (writer, threads, live) = sample();
    let threads = Threads {
        moving: &threads,
        unfinished: &[],
    };
    let lives = MemberState::Lives {
        context_bytes: 0,
        stop_untold: true,
    };
    let mut child = Writer::default();
    let mut own = StableState::of_descendant(Machine::this().unwrap());
    own.pid = 302;
    child.set_fixed(&own).unwrap();
    let mut context = Vec::new();
    let clocks = Clocks::default();
    child
        .write(&mut context, clocks, Threads::default(), &live, Beside::default())
        .unwrap();
    let members = [
        (member(302, lives), context.into()),
        (member(301, MemberState::Ended(Ending::Exit(3))), Arc::default()),
    ];
    let beside = Beside {
        members: &members,
        foreground: 302,
        ..BESIDE
    };
    let mut bytes = Vec::new();
    writer.write(&mut bytes, clocks, threads, &live, beside).unwrap();
    bytes
}

#[test]
fn a_tree_reads_back() {
    let context = read(&sample_tree()).unwrap();
    let pids: Vec<i32> = context.tree.members.iter().map(|member| member.pid).collect();
    assert_eq!((pids, context.tree.foreground), (vec![302, 301], 302));
    assert_eq!(context.tree.members[1].state, MemberState::Ended(Ending::Exit(3)));
    assert_eq!((context.members.len(), context.members[0].fixed.pid), (1, 302));
}

#[test]
fn a_tree_that_cannot_be_is_refused() {
    let refused = |edit: fn(&mut Context)| {
        let mut context = read(&sample_tree()).unwrap();
        edit(&mut context);
        check_tree(&context).unwrap_err();
    };
    refused(|context| context.tree.members[0].pid = 300);
    refused(|context| context.tree.members[0].pid = 301);
    refused(|context| context.tree.members[0].pid = 1);
    refused(|context| context.tree.members[0].parent = 301); // it ended
    refused(|context| context.tree.members[1].parent = 303);
}

/// As in docs/format.md.
#[test]
fn a_tree_is_written_as_it_is_drawn() {
    let tree = Tree {
        members: vec![member(301, MemberState::Ended(Ending::Exit(3)))],
        foreground: 0,
    };
    let drawn = [1, 0xda, 4, 0xd8, 4, 0xd8, 4, 0xd8, 4, 0x22, 1, 0, 6, 0];
    assert_eq!(encode(&tree).unwrap(), drawn);
}

/// As in docs/format.md.
#[test]
fn calls_are_written_as_they_are_drawn() {
    let call = Unfinished {
        tid: 300,
        number: libc::SYS_poll,
        until_ns: Some(5_000_000),
        done: 0,
        wanted: 0,
        tells: false,
    };
    let drawn = [1, 0xd8, 4, 0x0e, 1, 0xc0, 0x96, 0xb1, 2, 0, 0, 0];
    assert_eq!(encode(&[call].as_slice()).unwrap(), drawn);
}

#[test]
fn the_first_version_is_still_read() {
    let context = read(include_bytes!("../../tests/fixtures/context-1.bin")).unwrap();
    let fixed = &context.fixed;
    assert_eq!(fixed.command, ["../p/c_kernel", "1000"]);
    assert_eq!(fixed.kernel.directory, std::path::Path::new("/tmp/program/w"));
    assert_eq!(
        (
            fixed.kernel.actions.len(),
            fixed.kernel.limits.len(),
            fixed.kernel.timers.len()
        ),
        (64, 16, 3)
    );
    assert_eq!(fixed.descriptors.len(), context.live.held.len());
    assert_eq!(fixed.threads.len(), context.threads.len());
    assert_eq!((fixed.ended, fixed.main_thread_ended), (None, None));
    assert!(!context.live.stopped && !context.pages.is_empty() && !context.streams.is_empty());
}

#[test]
fn no_cut_and_no_flip_panics() {
    let bytes = sample_tree();
    for length in 0..bytes.len() {
        let _ = read(&bytes[..length]);
    }
    for at in 0..bytes.len() {
        for bit in [0x80, 0x01] {
            let mut flipped = bytes.clone();
            flipped[at] ^= bit;
            let _ = read(&flipped);
        }
    }
}
