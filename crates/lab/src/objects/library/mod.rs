//! Objects with functions of both classes: the library of Table 3, the programs of 4.3, and the stock of 4.4.
//!
//! * A function really computes, on the object's bytes at an address, and touches nothing else: what a prefix of the log
//!   makes of an object is the prefix's alone.
//! * What a thread calls next depends on the thread and on what it called before, never on time.
//!
//! Reading order: `structures.rs` has the six structures, `programs.rs` the four programs, `stock.rs` the stock.

mod programs;
mod stock;
mod structures;

pub use programs::{Application, Floyd, Linpack, Pbzip2, Rbm};
pub use stock::{Access, Stock, StockLevel};
pub use structures::{Structure, Structures};

use crate::space::Port;

/// Whether a function can be put off (2.2): it touches its object alone and returns nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// It is logged, and run with its group.
    Deferrable,
    /// It ends a group, and is run at once.
    Instant,
}

/// A call of a function of one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Which object.
    pub object: usize,
    /// Which function.
    pub function: u16,
    /// Its argument.
    pub argument: u64,
    /// Its class.
    pub class: Class,
    /// Whether it needs no lock: no other function writes what it touches.
    pub is_apart: bool,
    /// Instructions of the thread itself before it.
    pub before: u32,
}

/// What a thread does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// It calls a function.
    Call(Call),
    /// It waits until all threads are here.
    Barrier,
}

/// Objects of one kind, and the threads that call their functions.
pub trait Objects: Send {
    /// Its name.
    fn name(&self) -> &'static str;
    /// How many there are.
    fn count(&self) -> usize {
        1
    }
    /// Bytes of each, a multiple of four.
    fn bytes(&self) -> u64;
    /// What an object begins with, where that is not zeros.
    fn fill(&self, _bytes: &mut [u8]) {}
    /// What a thread does next.
    fn next(&mut self, thread: usize) -> Step;
    /// Runs a function on the object that lies at `at`; says what it returns.
    fn run(&self, call: &Call, at: u64, port: &mut Port<'_>) -> u64;
}
