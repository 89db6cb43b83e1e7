//! Calls are followed.

use std::fmt;
use std::ops::{Add, AddAssign, Deref, Index};

static TOTAL: u64 = 0;

struct Tree {
    nodes: Vec<Node>,
    total: u64,
    money: Money,
    noisy: Noisy,
}

struct Node {
    key: u64,
}

struct Money(u64);

struct Noisy(u64);

struct Quiet(u64);

struct Lines(u64);

fn double(value: u64) -> u64 {
    value * 2
}

fn reads_total(value: u64) -> u64 {
    value + TOTAL
}

fn deep(value: u64) -> u64 {
    deeper(value)
}

fn deeper(value: u64) -> u64 {
    deepest(value + 1)
}

fn deepest(value: u64) -> u64 {
    println!("{value}");
    value
}

fn even(n: u64) -> bool {
    n == 0 || odd(n - 1)
}

fn odd(n: u64) -> bool {
    n != 0 && even(n - 1)
}

fn ping(n: u64) {
    if n > 0 {
        pong(n - 1);
    }
}

fn pong(n: u64) {
    if n == 1 {
        std::process::abort();
    }
    ping(n);
}

fn apply(value: u64, change: impl Fn(u64) -> u64) -> u64 {
    change(value)
}

#[deferrable]
fn promised(value: u64) -> u64 {
    elsewhere::hash(value)
}

#[instant]
fn held_back(value: u64) -> u64 {
    value
}

fn generic<T: Weigh>(thing: &T) -> u64 {
    thing.weigh()
}

fn generic_pure<T: Measure>(thing: &T) -> u64 {
    thing.measure()
}

trait Weigh {
    fn weigh(&self) -> u64;
}

trait Measure {
    fn measure(&self) -> u64;

    fn twice(&self) -> u64 {
        self.measure() * 2
    }
}

impl Weigh for Node {
    fn weigh(&self) -> u64 {
        TOTAL + self.key
    }
}

impl Measure for Node {
    fn measure(&self) -> u64 {
        self.key
    }
}

impl Add for Money {
    type Output = Money;

    fn add(self, other: Money) -> Money {
        Money(self.0 + other.0)
    }
}

impl AddAssign<u64> for Money {
    fn add_assign(&mut self, other: u64) {
        eprintln!("more");
        self.0 += other;
    }
}

impl Index<u64> for Money {
    type Output = u64;

    fn index(&self, _: u64) -> &u64 {
        &self.0
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        println!("gone");
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0 = 0;
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl Money {
    //~ deferrable
    fn take_quiet(&mut self, quiet: Quiet) {
        self.0 = quiet.0;
    }

    //~ instant: `drop`: `println!` writes to the program's output
    fn take_noisy(&mut self, noisy: Noisy) {
        self.0 = noisy.0;
    }

    //~ instant: `drop`: `println!`
    fn make_noisy(&mut self) {
        let _ = Noisy(self.0);
    }

    //~ instant: `drop`: `println!`
    fn take_what_holds_noisy(&mut self, tree: Option<Tree>) {
        self.0 = u64::from(tree.is_some());
    }

    //~ deferrable
    fn doubled(&mut self) {
        self.0 = double(self.0);
    }

    //~ deferrable
    fn by_name(&mut self, values: Vec<u64>) {
        self.0 = values.into_iter().map(double).sum();
    }

    //~ instant: `reads_total`: `TOTAL` is a static
    fn by_impure_name(&mut self, values: Vec<u64>) {
        self.0 = values.into_iter().map(reads_total).sum();
    }

    //~ instant: `reads_total`: `TOTAL` is a static
    fn total(&mut self) {
        self.0 = reads_total(self.0);
    }

    //~ instant: `deep`: `deeper`: `deepest`: `println!` writes
    fn deep(&mut self) {
        self.0 = deep(self.0);
    }

    //~ deferrable
    fn recursive(&mut self) {
        if even(self.0) {
            self.0 -= 1;
        }
    }

    //~ instant: `ping`: `pong`: `std::process::abort` starts or ends processes
    fn recursive_and_ends(&mut self) {
        ping(self.0);
    }

    //~ instant: `change` is a function that only its caller knows
    fn by_closure(&mut self) {
        self.0 = apply(self.0, |value| value + 1);
    }

    //~ deferrable
    fn by_promise(&mut self) {
        self.0 = promised(self.0);
    }

    //~ instant: `held_back`: it is marked #[instant]
    fn by_mark(&mut self) {
        self.0 = held_back(self.0);
    }

    //~ instant: `generic`: `weigh`: `TOTAL` is a static
    fn generic(&mut self, node: Node) {
        self.0 = generic(&node);
    }

    //~ deferrable
    fn generic_pure(&mut self, node: Node) {
        self.0 = generic_pure(&node) + node.twice();
    }

    //~ instant: `weigh`: `TOTAL` is a static
    fn method(&mut self, node: Node) {
        self.0 = node.weigh();
    }

    //~ instant: `Node::weigh`: `TOTAL` is a static
    fn method_by_path(&mut self, node: Node) {
        self.0 = Node::weigh(&node);
    }

    //~ deferrable
    fn sum(&mut self, other: Money) {
        self.0 = (Money(self.0) + other)[0];
    }

    //~ instant: `add_assign`: `eprintln!` writes
    fn operator(&mut self, mut other: Money) {
        other += self.0;
    }

    //~ deferrable
    fn shown(&mut self, other: Money) {
        self.0 = other.to_string().len() as u64;
    }

    //~ deferrable
    fn own(&mut self) {
        self.doubled();
        Self::doubled(self);
        Money::doubled(self);
    }

    //~ instant: `total`: `reads_total`: `TOTAL` is a static
    fn own_impure(&mut self) {
        self.total();
    }

    //~ instant: the source of `.publish()` is not given
    fn unseen_method(&mut self, other: Money) {
        other.publish();
    }

    //~ instant: the source of `Outside::tell` is not given
    fn unseen_function(&mut self) {
        Outside::tell(self.0);
    }

    //~ instant: it calls a function value
    fn table(&mut self, table: Vec<fn(u64) -> u64>) {
        self.0 = table[0](self.0);
    }

    //~ instant: `act` is a function that only its caller knows
    fn parameter(&mut self, act: fn(u64) -> u64) {
        self.0 = act(self.0);
    }
}

