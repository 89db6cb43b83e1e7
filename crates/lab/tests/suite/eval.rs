//! A paper's evaluation, repeated small.

use crate::record::ready;
use std::process::{Command, Stdio};
use twinpage_campaign::{either, is_long};
use twinpage_lab::eval::{ARTIFACTS, Document, Evaluation, Paper, Request, Verdict, do_only, evaluate};
use twinpage_lab::provenance::Provenance;
use twinpage_lab::schemes::SchemeName;
use twinpage_lab::sweep::Sweep;
use twinpage_lab::trace::{Addresses, Clock, Event, Header, NativeWriter, Record, Window, record};

fn request(paper: Paper, artifacts: &[&str]) -> Request {
    Request {
        paper,
        artifacts: artifacts.iter().map(|&name| name.into()).collect(),
        smaller: 64,
        quick: true,
        instructions: None,
        traces: None,
        sweep: Vec::new(),
        seed: 1,
        precision: None,
        runs: None,
        with: Vec::new(),
        set: Vec::new(),
        jobs: Some(2),
        provenance: Provenance::default(),
    }
}

fn on_threads(count: usize, request: &Request) -> Evaluation {
    let request = Request {
        jobs: Some(count),
        ..request.clone()
    };
    evaluate(&request, &|_, _, _| ()).unwrap()
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let request = request(Paper::Dpc, &["fig12"]);
    let one = on_threads(1, &request);
    assert_eq!(one.rows, on_threads(3, &request).rows);
    assert_eq!(one.runs, 14);
    let all = |series: &str| {
        one.rows
            .iter()
            .find(|row| row.series == series && row.workload == "average")
            .unwrap()
            .ours
    };
    assert!((all("all in the controller") - 1.0).abs() < 1e-9);
    // The text gives three numbers: TATP's and TPC-C's with all of the table in DRAM, and the optimized worst.
    assert_eq!(one.rows.iter().filter(|row| row.paper.is_some()).count(), 3);
}

#[test]
fn every_row_is_whole_and_the_report_shows_it() {
    let evaluation = on_threads(2, &request(Paper::Dpc, &["table3", "table5", "fig1"]));
    for row in &evaluation.rows {
        println!(
            "{} {} {}: {:?} {}",
            row.artifact, row.series, row.workload, row.paper, row.ours
        );
        assert!(row.ours.is_finite() && !row.unit.is_empty());
        let far = row
            .paper
            .is_some_and(|paper| (row.ours / paper - 1.0).abs() > 0.15);
        assert_eq!(row.note.is_some(), far, "{row:?}");
    }
    let html = evaluation.html().unwrap();
    for artifact in ["table3", "table5", "fig1"] {
        assert!(evaluation.figure(artifact).unwrap().starts_with("<svg"));
        assert!(html.contains(&format!("<h2 id={artifact}>")));
    }
    let metadata: Vec<_> = evaluation
        .rows
        .iter()
        .filter(|row| row.artifact == "table3")
        .collect();
    assert!(metadata.len() == 3 && metadata.iter().all(|row| row.paper == Some(row.ours)));
}

/// Each open choice is made by itself, and moves what it should.
#[test]
fn what_is_open_is_varied() {
    let mut request = request(Paper::Twins, &["sensitivity"]);
    request.instructions = Some(120_000);
    request.sweep = vec!["echo".into()];
    let evaluation = on_threads(2, &request);
    let time = |setting: &str| {
        let of = |row: &&twinpage_lab::eval::Row| row.series == setting && row.workload == "dual page";
        evaluation.rows.iter().find(of).unwrap().ours
    };
    assert!((time("as it is") - 1.0).abs() < 1e-9);
    assert!(time("NVM of 4 channels") < time("NVM of 2 channels"));
    assert!(time("NVM of 2 channels") < 1.0 && time("NVM reads half as fast") > 1.0);
    assert_eq!(evaluation.runs, 4 * 25);
    let notes = evaluation.rows.iter().filter(|row| row.note.is_some());
    assert_eq!(notes.count(), 4 * 24);
    let unknown = Request {
        sweep: vec!["ekko".into()],
        ..request
    };
    assert!(evaluate(&unknown, &|_, _, _| ()).unwrap_err().contains("nstore"));
}

/// What stands in for `gamess`, `h264ref` and `povray`, and so for a whole mix: a program of the system, recorded here.
#[test]
fn a_mix_of_recorded_programs_is_played_and_the_others_are_named() {
    if !ready() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(Paper::Twins, &["fig7a", "table2"]);
    request.instructions = Some(300_000);
    let without = evaluate(&request, &|_, _, _| ()).unwrap();
    assert_eq!(without.left_out.len(), 9, "{:?}", without.left_out);
    assert!(without.workloads.contains(&"echo".into()));

    let window = Window {
        skip: 0,
        limit: 700_000,
    };
    let mut trace = Vec::new();
    let mut program = Command::new("sort");
    program.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/workload/tpcc.rs"));
    let quiet = [Stdio::null(), Stdio::null()];
    record(&program, quiet, &window, &mut trace, |_| {}).unwrap();
    for name in ["ergo", "povray", "x264"] {
        std::fs::write(folder.path().join(format!("{name}.trace")), &trace).unwrap();
    }
    request.traces = Some(folder.path().to_owned());
    let with = evaluate(&request, &|_, _, _| ()).unwrap();
    assert_eq!(with.workloads, ["WD1", "gamess", "h264ref", "povray"]);
    assert_eq!(with.left_out.len(), 7);
    assert!(with.left_out[0].contains("bzip2.trace"), "{:?}", with.left_out);
    let mine = with
        .rows
        .iter()
        .filter(|row| row.workload == "WD1" && row.ours > 0.1);
    assert_eq!(mine.count(), 4 + 2);
    let mut said = with.rows.iter().filter(|row| row.artifact == "table2");
    let said = said.find(|row| row.series == "footprint").unwrap().paper;
    assert_eq!(said, Some(34.0 / request.smaller as f64));
    assert!(with.html().unwrap().contains("Left out"));

    std::fs::write(folder.path().join("x264.trace"), &trace[..trace.len() / 2]).unwrap();
    let damaged = evaluate(&request, &|_, _, _| ()).unwrap_err();
    assert!(damaged.contains("WD1") && damaged.contains("x264"), "{damaged}");
}

/// A program of that many instructions that stores all over its memory, in the lab's own form.
fn program(instructions: u32) -> Vec<u8> {
    let header = Header {
        cores: 1,
        clock: Clock::Instructions,
        addresses: Addresses::Virtual,
        origin: "a test".into(),
    };
    let mut bytes = Vec::new();
    let mut writer = NativeWriter::new(&mut bytes, &header).unwrap();
    for number in 0..instructions / 10 {
        let at = 0x10_0000 + u64::from(number) * 4160 % (2 << 20);
        let value = Some(number.into());
        let event = match number % 2 {
            0 => Event::Load { at, size: 8 },
            _ => Event::Store { at, size: 8, value },
        };
        let (core, after) = (0, 10);
        writer.write(&Record { core, after, event }).unwrap();
    }
    writer.finish().unwrap();
    bytes
}

/// A mix is over with its first program, and what comes of it is refused, not shown; Twins' Figure 2 is of
/// programs by themselves.
#[test]
fn a_mix_that_a_trace_cuts_short_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let put = |name: &str, instructions: u32| {
        let path = folder.path().join(format!("{name}.trace"));
        std::fs::write(path, program(instructions)).unwrap();
    };
    for name in ["ergo", "povray", "x264"] {
        put(name, 700_000);
    }
    let mut request = request(Paper::Twins, &["fig2", "fig7b"]);
    request.instructions = Some(300_000);
    request.traces = Some(folder.path().to_owned());
    let whole = evaluate(&request, &|_, _, _| ()).unwrap();
    let of = |artifact: &str| -> Vec<&str> {
        let series = |row: &&twinpage_lab::eval::Row| {
            row.artifact == artifact && row.series == "copy-on-write" && !row.is_summary()
        };
        whole
            .rows
            .iter()
            .filter(series)
            .map(|row| &row.workload[..])
            .collect()
    };
    assert_eq!(of("fig2"), ["gamess", "h264ref", "povray"]);
    assert_eq!(of("fig7b"), ["WD1"]);
    assert_eq!(whole.traces.len(), 3);
    put("povray", 60_000);
    request.artifacts = vec!["fig7b".into()];
    let refused = evaluate(&request, &|_, _, _| ()).unwrap_err();
    assert!(
        refused.contains("WD1: the run ended by its programs"),
        "{refused}"
    );
}

/// The same of a table of runs.
#[test]
fn a_sweep_that_a_trace_cuts_short_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("short.trace");
    std::fs::write(&path, program(60_000)).unwrap();
    let sweep = |instructions| Sweep {
        machine: "dpc".into(),
        set: Vec::new(),
        axes: vec!["nvm.channels=1,2".parse().unwrap()],
        schemes: vec![SchemeName::DUAL_PAGE],
        workloads: vec![format!("trace:{}", path.display())],
        smaller: 64,
        overlap: false,
        instructions: Some(instructions),
        warm_up: Some(1000),
        seed: 1,
        jobs: Some(2),
    };
    let run = |instructions| sweep(instructions).run(Provenance::default(), &|_, _| ());
    let whole = run(20_000).unwrap();
    assert_eq!((whole.points.len(), whole.traces.len()), (2, 1));
    let refused = run(1_000_000).unwrap_err();
    assert!(
        refused.contains("ended by its programs") && refused.contains("--instructions"),
        "{refused}"
    );
}

/// Ratios with their intervals, in three means, and a range over what is open instead of one number.
#[test]
fn ratios_have_intervals_and_ranges() {
    let mut request = request(Paper::Twins, &["fig7a", "range"]);
    request.instructions = Some(60_000);
    let evaluation = on_threads(2, &request);
    let row = |artifact: &str, series: &str, workload: &str| {
        let of = |row: &&twinpage_lab::eval::Row| {
            (row.artifact, &row.series[..], &row.workload[..]) == (artifact, series, workload)
        };
        evaluation.rows.iter().find(of).unwrap()
    };
    for name in ["average", "geometric mean", "ratio of sums"] {
        assert!(row("fig7a", "logging", name).ours > 0.5);
        assert_eq!(row("fig7a", "dual page", name).ours, 1.0);
    }
    let [least, most] = ["least", "most"].map(|end| row("range", "copy-on-write", end).ours);
    let one = row("range", "copy-on-write", "1 channel, whole table").ours;
    assert!(least < most && (least..=most).contains(&one));
    assert!(evaluation.figure("fig7a").unwrap().starts_with("<svg"));
    assert_eq!(evaluation.machine["name"], "twins");

    // With epochs enough every ratio has its interval, in all artifacts. Of those that vary, one takes most of the time.
    let varied = if is_long() {
        &["sensitivity", "fig8a", "fig8b"][..]
    } else {
        &["fig8a", "fig8b"]
    };
    request.artifacts = varied.iter().map(|&name| name.into()).collect();
    request.instructions = Some(either(1_000_000, 1_500_000));
    request.sweep = vec!["echo".into()];
    let evaluation = on_threads(2, &request);
    assert!(evaluation.rows.len() >= if is_long() { 100 } else { 20 });
    for row in &evaluation.rows {
        assert!(row.plus_minus.is_some_and(|width| width >= 0.0), "{row:?}");
    }
}

/// Every sentence gets a verdict from the runs, and the numbers that made it.
#[test]
fn sentences_hold_or_not_by_their_numbers() {
    let mut request = request(Paper::Dpc, &["claims"]);
    request.instructions = Some(60_000);
    let evaluation = on_threads(2, &request);
    for claim in &evaluation.claims {
        println!(
            "{:15} {}: {}",
            claim.verdict.to_string(),
            claim.sentence,
            claim.numbers
        );
    }
    assert!(evaluation.claims.len() > 30 && evaluation.rows.is_empty());
    assert!(evaluation.claims.iter().all(|claim| !claim.numbers.is_empty()));
    let verdict = |sentence: &str| {
        let of = |claim: &&twinpage_lab::eval::Claim| claim.sentence.contains(sentence);
        evaluation.claims.iter().find(of).unwrap()
    };
    assert_eq!(verdict("947 KB").verdict, Verdict::Arithmetic);
    // Sentences about sweeps: their runs are done for them. Without SPEC's mixes none of them holds for all.
    for sentence in [
        "A pool of 100 MB costs",
        "300 MB incurs",
        "All metadata in DRAM",
        "better than 40K",
        "Performance rises",
        "A look-up of 32 cycles",
    ] {
        let claim = verdict(sentence);
        assert!(claim.verdict != Verdict::Holds, "{claim:?}");
        assert!(!claim.numbers.contains("no workload has the runs"), "{claim:?}");
    }
    for sentence in ["times slower on average", "14% more than the baseline"] {
        let claim = verdict(sentence);
        assert_eq!(claim.verdict, Verdict::CannotBeSaid, "{claim:?}");
        assert!(claim.numbers.contains("of 11 workloads were run"), "{claim:?}");
    }
    for sentence in ["faster than DudeTM", "latency on DudeTM", "latency on NVML"] {
        assert!(
            !verdict(sentence).numbers.contains("NaN"),
            "{:?}",
            verdict(sentence)
        );
    }
    for sentence in ["writes more to NVM than DudeTM", "NVML writes most"] {
        assert!(
            !verdict(sentence).numbers.contains("not run"),
            "{:?}",
            verdict(sentence)
        );
    }
    // SPEC's mixes need traces: seven workloads cannot all agree when one was not run.
    let logging = verdict("Logging is faster than CoW");
    assert!(logging.verdict != Verdict::Holds && logging.numbers.contains("not run"));
    assert!(evaluation.html().unwrap().contains("Logging is faster than CoW"));
    assert!(
        serde_json::to_string(&evaluation)
            .unwrap()
            .contains("\"cannot be said\"")
    );
}

/// Software systems by transaction. A run this short has some hundred transactions, and says nothing of their order.
#[test]
fn software_stands_beside_the_dual_page() {
    let mut request = request(Paper::Dpc, &["fig10"]);
    request.instructions = Some(100_000);
    let evaluation = on_threads(2, &request);
    let said = evaluation.rows.iter().filter(|row| row.paper.is_some());
    assert_eq!(
        said.count(),
        6,
        "two systems, each with three numbers of instructions"
    );
    assert!(evaluation.rows.iter().all(|row| row.ours.is_finite()));
    let durable = evaluation.rows.iter().filter(|row| row.unit == "us");
    assert_eq!(durable.count(), 2 * 7);
}

/// Ann writes so little that no pool is short and no checkpoint falls: what these cost cannot be said.
#[test]
fn what_no_run_did_cannot_be_said() {
    let mut request = request(Paper::Dpc, &["claims"]);
    request.instructions = Some(20_000);
    request.sweep = vec!["ann".into()];
    let evaluation = on_threads(2, &request);
    for sentence in ["A pool of 100 MB costs", "300 MB incurs", "Performance rises"] {
        let of = |claim: &&twinpage_lab::eval::Claim| claim.sentence.contains(sentence);
        let claim = evaluation.claims.iter().find(of).unwrap();
        assert_eq!(claim.verdict, Verdict::CannotBeSaid, "{claim:?}");
        assert!(claim.numbers.contains("no run did what is varied"), "{claim:?}");
    }
}

/// Runs done apart and put together are those done together; none is done twice.
#[test]
fn runs_of_several_processes_become_one_evaluation() {
    let folder = tempfile::tempdir().unwrap();
    let mut request = request(Paper::Twins, &["fig7a"]);
    request.instructions = Some(50_000);
    let together = on_threads(2, &request);
    request.runs = Some(folder.path().to_owned());
    let part = |only: &str| do_only(&request, &[only.to_owned()], &|_, _, _| ());
    assert_eq!(part("undo-log/*").unwrap(), (9, 36));
    assert_eq!(part("*/tatp").unwrap(), (4, 36));
    assert!(part("undo-log/tapt").unwrap_err().contains("no such run"));
    let before = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(before, 9 + 3);
    let merged = evaluate(&request, &|_, _, _| ()).unwrap();
    assert_eq!(merged.rows, together.rows);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 36);
    // A damaged file is not a run, nor is another run's.
    let mut files = std::fs::read_dir(folder.path()).unwrap();
    let [one, other] = [(); 2].map(|()| files.next().unwrap().unwrap().path());
    let (whole, foreign) = (std::fs::read(&one).unwrap(), std::fs::read(&other).unwrap());
    let mut changed = whole.clone();
    let digit = changed.iter().position(u8::is_ascii_digit).unwrap();
    changed[digit] ^= 1;
    let cut = &whole[..whole.len() - 1];
    for bytes in [&b"{}"[..], &foreign, &changed, cut, &[]] {
        std::fs::write(&one, bytes).unwrap();
        let why = evaluate(&request, &|_, _, _| ()).unwrap_err();
        assert!(
            why.contains("remove it") && why.contains(one.to_str().unwrap()),
            "{why}"
        );
    }
    std::fs::write(&one, whole).unwrap();
    assert_eq!(evaluate(&request, &|_, _, _| ()).unwrap().rows, together.rows);
}

/// With a precision runs are as long as they must be, and no longer.
#[test]
fn a_run_ends_when_it_is_known_well_enough() {
    let mut request = request(Paper::Twins, &["fig7a"]);
    request.instructions = Some(1_000_000);
    request.precision = Some(0.2);
    let evaluation = on_threads(2, &request);
    println!("{:?}", evaluation.lengths);
    assert!(evaluation.lengths.values().all(|&length| length <= 1_000_000));
    assert!(evaluation.lengths["tatp"] < 1_000_000);
    for row in evaluation.rows.iter().filter(|row| !row.is_summary()) {
        if evaluation.lengths[&row.workload] < 1_000_000 {
            assert!(row.plus_minus.unwrap() / row.ours <= 0.2, "{row:?}");
        }
    }
}

/// The run with the longest interval between checkpoints has fewest epochs, and must have enough as well.
#[test]
fn every_run_has_the_epochs_that_a_precision_needs() {
    let mut request = request(Paper::Dpc, &["fig13"]);
    request.instructions = Some(2_000_000);
    request.precision = Some(0.5);
    request.sweep = vec!["echo".into()];
    let evaluation = on_threads(2, &request);
    assert!(evaluation.lengths["echo"] < 2_000_000, "{:?}", evaluation.lengths);
    for row in evaluation.rows.iter().filter(|row| !row.is_summary()) {
        assert!(row.plus_minus.unwrap() / row.ours <= 0.5, "{row:?}");
    }
}

#[test]
fn an_unknown_artifact_is_refused_with_those_there_are() {
    let refused = evaluate(&request(Paper::Dpc, &["fig7a"]), &|_, _, _| ()).unwrap_err();
    assert!(
        refused.contains("fig9a") && refused.contains("fig7a"),
        "{refused}"
    );
    assert_eq!(
        ARTIFACTS
            .iter()
            .filter(|artifact| artifact.1 == Paper::Twins)
            .count(),
        11
    );
    assert!("dcp".parse::<Paper>().is_err());
}
