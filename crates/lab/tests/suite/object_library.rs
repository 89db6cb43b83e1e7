//! Objects with functions of both classes: the library's structures, the four programs, and the threads that call them.

use crate::object_programs::structures::{self, Array, Graph, Heap, Queue, Stack, Tree};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use twinpage_campaign::is_long;
use twinpage_lab::bus::Machine;
use twinpage_lab::config::Described;
use twinpage_lab::objects::crash::{Crashed, Recoverable, Step as Crashing};
use twinpage_lab::objects::library::{
    Access, Application, Call, Class, Objects, Step, Stock, StockLevel, Structure, Structures,
};
use twinpage_lab::objects::{Config, Mixed, Variant};
use twinpage_lab::op::Kind;
use twinpage_lab::{Port, Space};

/// The source's structures, called by name; what they return is as the accesses have it.
#[derive(Default)]
struct Real {
    array: Array,
    numbers: Vec<u64>,
    queue: Queue,
    heap: Heap,
    stack: Stack,
    tree: Tree,
    graph: Graph,
}

const NOTHING: u64 = u64::MAX;

impl Real {
    fn call(&mut self, structure: Structure, name: &str, argument: u64) -> u64 {
        let value = argument as i64;
        let some = |found: Option<i64>| found.map_or(NOTHING, |found| found as u64);
        let (from, to) = ((argument & 0xffff) as usize, (argument >> 16 & 0xffff) as usize);
        match (structure, name) {
            (Structure::Array, "increase_all") => {
                self.array.increase_all(value);
                self.numbers.iter_mut().for_each(|number| *number += argument);
            }
            (Structure::Array, "zero") => {
                self.array.zero();
                self.numbers.fill(0);
            }
            (Structure::Queue, "clear_queue") => self.queue.clear_queue(),
            (Structure::Queue, "en_queue") => self.queue.en_queue(value),
            (Structure::Queue, "de_queue") => return some(self.queue.de_queue()),
            (Structure::Queue, "is_empty") => return u64::from(self.queue.is_empty()),
            (Structure::Queue, "is_full") => return u64::from(self.queue.is_full()),
            (Structure::Heap, "en_heap") => self.heap.en_heap(value),
            (Structure::Heap, "de_heap") => return some(self.heap.de_heap()),
            (Structure::Heap, "get_num_elements") => return self.heap.get_num_elements() as u64,
            (Structure::Stack, "push") => self.stack.push(value),
            (Structure::Stack, "pop") => return some(self.stack.pop()),
            (Structure::Stack, "peek") => return some(self.stack.peek()),
            (Structure::Stack, "is_empty") => return u64::from(self.stack.is_empty()),
            (Structure::Tree, "insert_element") => self.tree.insert_element(value),
            (Structure::Tree, "balance") => self.tree.balance(),
            (Structure::Tree, "delete_element") => self.tree.delete_element(value),
            (Structure::Tree, "search_element") => return u64::from(self.tree.search_element(value)),
            (Structure::Graph, "joinwt") => self.graph.joinwt(from, to, (argument >> 32) as u32 | 1),
            (Structure::Graph, "removewt") => self.graph.removewt(from, to),
            (Structure::Graph, "adjacent") => {
                return self.graph.adjacent(from, to).map_or(NOTHING, u64::from);
            }
            (_, "print_all") => {}
            (structure, name) => panic!("{structure:?} has no {name}"),
        }
        0
    }
}

#[test]
fn accesses_do_what_the_sources_do() {
    let seed = fastrand::u64(..);
    for structure in Structure::ALL {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut real = Real {
            numbers: vec![0; structures::ROOM],
            ..Real::default()
        };
        let (mut space, mut batch) = (Space::new(structure.bytes()), Vec::new());
        for number in 0..6000 {
            // Long runs of one function fill and empty it.
            let all = structure.functions();
            let function = match number / 600 % 3 {
                0 => random.usize(..all.len()),
                which => (which - 1).min(all.len() - 1) + random.usize(..2).min(all.len() - which),
            };
            let argument = match structure {
                Structure::Graph => random.u64(..),
                _ => random.u64(..600),
            };
            batch.clear();
            let mut port = Port::new(&mut space, &mut batch);
            let found = structure.run(function as u16, argument, 5, 0, &mut port);
            drop(port);
            let name = all[function].0;
            let expected = real.call(structure, name, argument);
            assert_eq!(found, expected, "{structure:?} {name} {argument}, seed {seed}");
            // A function that looks at nothing does nothing.
            let looks = name != "print_all" || structure == Structure::Array;
            assert!(!looks || !batch.is_empty(), "{structure:?} {name}");
        }
        if structure == Structure::Array {
            let numbers = space.at(64, structures::ROOM * 8).chunks_exact(8);
            let numbers: Vec<u64> = numbers
                .map(|number| u64::from_le_bytes(number.try_into().unwrap()))
                .collect();
            assert_eq!(numbers, real.numbers);
        }
    }
}

/// Short groups, and a small log.
fn small() -> Config {
    let mut config = Config::find("simpo").unwrap();
    config.sizes.group = 7;
    config.sizes.log_entries = 256;
    config
}

fn stock(access: Access, rows: u64, threads: usize) -> Box<dyn Objects> {
    Box::new(Stock::new(StockLevel { access, rows }, threads))
}

fn all_objects(threads: usize) -> Vec<Box<dyn Objects>> {
    let structures = Structure::ALL
        .map(|structure| -> Box<dyn Objects> { Box::new(Structures::new(structure, threads, 5)) });
    let programs = Application::ALL.map(|program| program.objects(threads, 5));
    let stock = [Access::Get, Access::Put].map(|access| stock(access, 70, threads));
    structures.into_iter().chain(programs).chain(stock).collect()
}

#[test]
fn every_object_is_what_its_functions_make() {
    let config = small();
    for name in ["native", "hybrid", "simpo"] {
        let variant = Variant::find(name).unwrap();
        for threads in [1, 3, 60] {
            if threads > 3 && name != "simpo" && !is_long() {
                continue;
            }
            for objects in all_objects(threads) {
                let what = format!("{name} {} {threads}", objects.name());
                // As many calls of each object that groups of it end, also where all threads wait for an end.
                let count = objects.count();
                let calls = (30.max(4 * threads / count) * count) as u64;
                let mut program = Mixed::new(variant, objects, threads, &config);
                let mut machine = Machine::new(config.hardware.clone(), Some(config.ssd), &mut program);
                let counts = machine
                    .run(5, calls)
                    .unwrap_or_else(|why| panic!("{what}: {why}"));
                machine.check().unwrap_or_else(|why| panic!("{what}: {why}"));
                drop(machine);
                assert_eq!(counts.transactions, calls, "{what}");
                assert_eq!(program.checkpoints() > 0, name != "native", "{what}");
                assert_eq!(counts.nvm_writes > 0, name != "native", "{what}");
            }
        }
    }
}

#[test]
fn results_are_those_of_the_log_from_its_first_entry_on() {
    let config = small();
    for name in ["hybrid", "simpo"] {
        for structure in Structure::ALL {
            let objects = Box::new(Structures::new(structure, 9, 5));
            let mut program = Mixed::new(Variant::find(name).unwrap(), objects, 9, &config);
            let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
            machine.run(0, 500).unwrap();
            drop(machine);
            let (mut space, mut batch) = (Space::new(structure.bytes()), Vec::new());
            let mut looked_at = 0;
            for (call, result) in program.results(0) {
                batch.clear();
                let mut port = Port::new(&mut space, &mut batch);
                let expected = structure.run(call.function, call.argument, 5, 0, &mut port);
                // What is deferred runs later, with the same result.
                looked_at += u64::from(result.is_some());
                assert!(
                    result.is_none_or(|found| found == expected),
                    "{name} {structure:?} {call:?}"
                );
            }
            assert!(looked_at > 450, "{name} {structure:?}: {looked_at}");
        }
    }
}

/// Each thread adds to a row of its own.
struct Rows {
    calls: Vec<u64>,
}

impl Rows {
    fn new(threads: usize) -> Rows {
        Rows {
            calls: vec![0; threads],
        }
    }
}

impl Objects for Rows {
    fn name(&self) -> &'static str {
        "rows"
    }

    fn bytes(&self) -> u64 {
        64 * self.calls.len() as u64
    }

    fn next(&mut self, thread: usize) -> Step {
        self.calls[thread] += 1;
        Step::Call(Call {
            object: 0,
            function: 0,
            argument: self.calls[thread] << 8 | thread as u64,
            class: Class::Instant,
            is_apart: true,
            before: 0,
        })
    }

    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        let row = at + (call.argument & 0xff) * 64;
        for place in (row..row + 64).step_by(8) {
            let old: u64 = port.load(place);
            port.store(place, old + call.argument);
        }
        0
    }
}

/// Runs objects with operations in any order, and crashes them after each of them. Says where what is recovered is wrong.
fn crash_everywhere(
    name: &str,
    objects: Box<dyn Objects>,
    threads: usize,
    seed: u64,
    fault: &mut dyn FnMut(&mut VecDeque<Crashing>),
) -> Result<u64, String> {
    let mut config = small();
    config.sizes.log_entries = 512;
    let program = Mixed::new(Variant::find(name).unwrap(), objects, threads, &config);
    let mut crashed = Crashed::new(program, threads, seed);
    let replayed = crashed.crash_everywhere(fault, |program| {
        program.checkpoints() >= 4 && program.numbered() >= 60
    });
    replayed.map_err(|why| format!("seed {seed}: {why}"))
}

#[test]
fn a_crash_anywhere_loses_nothing_that_was_acknowledged() {
    let seed = fastrand::u64(..);
    let short = [
        Structure::Queue,
        Structure::Heap,
        Structure::Stack,
        Structure::Graph,
    ];
    for name in ["hybrid", "simpo"] {
        for threads in [1, 4] {
            let structures = short
                .map(|structure| -> Box<dyn Objects> { Box::new(Structures::new(structure, threads, 5)) });
            let rows: Box<dyn Objects> = Box::new(Rows::new(threads));
            let stock = stock(Access::Put, 3, threads);
            for objects in structures.into_iter().chain([rows, stock]) {
                let what = format!("{name} {} {threads}, seed {seed}", objects.name());
                let replayed = crash_everywhere(name, objects, threads, seed, &mut |_| {}).unwrap();
                assert!(replayed > 0, "{what}");
            }
        }
    }
}

/// The crashes find a fault in one of some runs at least.
fn is_found(name: &str, mut fault: impl FnMut(&mut VecDeque<Crashing>)) {
    let mut is_wrong = |seed| {
        let objects = Box::new(Structures::new(Structure::Queue, 3, 5));
        crash_everywhere(name, objects, 3, seed, &mut fault).is_err()
    };
    assert!((0..20).any(&mut is_wrong), "{name}");
}

#[test]
fn faults_planted_in_logs_and_copies_are_found() {
    for name in ["hybrid", "simpo"] {
        // Entries are not flushed: their batches have nothing but flushes.
        is_found(name, |steps| {
            if steps.iter().all(|step| step.op.kind == Kind::FlushOpt) {
                steps.clear();
            }
        });
        // A copy, the one batch with many stores and a fence, is not waited for.
        is_found(name, |steps| {
            if steps.iter().filter(|step| step.op.kind == Kind::Store).count() > 8 {
                steps.retain(|step| !matches!(step.op.kind, Kind::Fence | Kind::FlushOpt));
            }
        });
    }
    // A commit mark is flushed, and not waited for.
    is_found("simpo", |steps| {
        if steps.len() == 1 && steps[0].op.kind == Kind::Fence {
            steps.clear();
        }
    });
}

/// What an addition adds is not in its log.
struct Liar(AtomicU64);

impl Objects for Liar {
    fn name(&self) -> &'static str {
        "a liar"
    }

    fn bytes(&self) -> u64 {
        64
    }

    fn next(&mut self, _: usize) -> Step {
        Step::Call(Call {
            object: 0,
            function: 0,
            argument: 0,
            class: Class::Deferrable,
            is_apart: false,
            before: 0,
        })
    }

    fn run(&self, _: &Call, at: u64, port: &mut Port<'_>) -> u64 {
        let old: u64 = port.load(at);
        port.store(at, old + self.0.fetch_add(1, Ordering::Relaxed));
        0
    }
}

#[test]
fn a_function_that_does_other_things_when_it_is_run_again_is_found() {
    let config = small();
    for name in ["native", "hybrid", "simpo"] {
        let liar = Box::new(Liar(AtomicU64::new(1)));
        let mut program = Mixed::new(Variant::find(name).unwrap(), liar, 2, &config);
        let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
        machine.run(0, 50).unwrap();
        let why = machine.check().unwrap_err();
        assert!(why.contains("is not what its functions make"), "{why}");
    }
}

#[test]
fn shortest_paths_are_the_shortest() {
    const VERTICES: usize = 512;
    let mut objects = Application::Floyd.objects(1, 5);
    let mut space = Space::new(objects.bytes());
    objects.fill(&mut space.bytes_mut()[..VERTICES * VERTICES * 4]);
    let weights = |space: &Space| -> Vec<u32> {
        let all = space.at(0, VERTICES * VERTICES * 4).chunks_exact(4);
        all.map(|weight| u32::from_le_bytes(weight.try_into().unwrap()))
            .collect()
    };
    let mut expected = weights(&space);
    for through in 0..VERTICES {
        for from in 0..VERTICES {
            for to in 0..VERTICES {
                let long = expected[from * VERTICES + through] + expected[through * VERTICES + to];
                let weight = &mut expected[from * VERTICES + to];
                *weight = long.min(*weight);
            }
        }
    }
    let mut batch = Vec::new();
    let mut calls = 0;
    while calls < VERTICES {
        if let Step::Call(call) = objects.next(0) {
            batch.clear();
            objects.run(&call, 0, &mut Port::new(&mut space, &mut batch));
            calls += 1;
        }
    }
    assert!(weights(&space) == expected);
}

#[test]
fn long_functions_have_less_overhead_than_short_ones() {
    let config = Config::find("simpo").unwrap();
    let over_native = |objects: &dyn Fn() -> Box<dyn Objects>| {
        let [native, simpo] = ["native", "simpo"].map(|name| {
            let mut program = Mixed::new(Variant::find(name).unwrap(), objects(), 4, &config);
            let mut machine = Machine::new(config.hardware.clone(), None, &mut program);
            machine.run(100, 1000).unwrap().time_fs as f64
        });
        simpo / native
    };
    let short = over_native(&|| Box::new(Structures::new(Structure::Stack, 4, 5)));
    let long = over_native(&|| Application::Pbzip2.objects(4, 5));
    assert!(long < 1.01 && long < short, "{long} beside {short}");
}
