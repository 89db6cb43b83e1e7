//! Vacation of STAMP (Minh et al., IISWC 2008; SSP, Table 3): a travel agency. A section is a client's session.
//!
//! Cars, rooms, flights and customers are red-black trees from a number to a record. 98% of the sessions look at one or two
//! cars, rooms or flights and reserve the dearest of each kind for a customer, 1% delete a customer, 1% change what there
//! is: the parameters of STAMP's low contention (2 queries, 90% of the numbers, 98% reservations). The paper gives the
//! tuples alone: all four trees together have them. There is room for two bookings a customer; what is more is refused.
//! One lock is held for a session; STAMP has transactional memory.
//!
//! ```text
//! reservation 48  | number u64 | used u64 | free u64 | total u64 | price u64 | 0 |
//! customer 16     | number u64 | first booking u64 |
//! booking 32      | kind << 56 | number u64 | next u64 | price u64 | 0 |         in order of the first word
//! ```
//!
//! Check: trees, records and bookings are what ordinary maps hold after the same sessions, and no record is lost.

use super::layout::{Layout, peek, poke};
use super::maps::rbtree::RedBlack;
use super::pool::Pool;
use super::table::scramble;
use super::turns::{Outside, Turns};
use super::{Progress, Workload};
use crate::space::{Port, Space};
use std::collections::HashMap;

const KINDS: usize = 3;
const USED: u64 = 8;
const FREE: u64 = 16;
const TOTAL: u64 = 24;
const PRICE: u64 = 32;
const FIRST: u64 = 8;
const NEXT: u64 = 8;
const BOOKING_PRICE: u64 = 16;
/// Seats, rooms or cars of a number that a change adds or takes away.
const SOME: u64 = 100;

/// What a client wants.
enum Session {
    /// The dearest of each kind among these, for a customer.
    Reserve {
        customer: u64,
        queries: Vec<(usize, u64)>,
    },
    Delete {
        customer: u64,
    },
    /// There is more of these, at another price; or less, where none is given.
    Change(Vec<(usize, u64, Option<u64>)>),
}

#[derive(Clone, Copy, PartialEq, Debug)]
struct Reservation {
    used: u64,
    free: u64,
    total: u64,
    price: u64,
}

fn booked(kind: usize, number: u64) -> u64 {
    (kind as u64) << 56 | number
}

/// The program of some threads.
pub struct Vacation {
    numbers: u64,
    trees: [RedBlack; KINDS],
    customers: RedBlack,
    reservations: Pool,
    customer_records: Pool,
    bookings: Pool,
    footprint: u64,
    turns: Turns,
    threads: Vec<fastrand::Rng>,
    oracle: Oracle,
    seed: u64,
}

impl Vacation {
    /// With that many tuples, and instructions outside the tables for each access of a section.
    /// Its memory begins `at` a page.
    ///
    /// # Panics
    /// With less than 64 tuples.
    #[must_use]
    pub fn new(tuples: u64, threads: usize, outside: Outside, at: u64, seed: u64) -> Vacation {
        let numbers = tuples / 4;
        assert!(numbers >= 16, "an agency needs some tuples");
        let mut layout = Layout::from(at);
        // No record lies at address 0, which stands for none.
        layout.region(1);
        let mut random = fastrand::Rng::with_seed(seed);
        Vacation {
            numbers,
            trees: std::array::from_fn(|_| RedBlack::new(&mut layout, numbers)),
            customers: RedBlack::new(&mut layout, numbers),
            reservations: Pool::new(&mut layout, numbers * KINDS as u64, 48),
            customer_records: Pool::new(&mut layout, numbers, 16),
            bookings: Pool::new(&mut layout, 2 * numbers, 32),
            footprint: layout.bytes(),
            turns: Turns::new(threads, outside),
            threads: (0..threads).map(|_| random.fork()).collect(),
            oracle: Oracle {
                seed,
                room: 2 * numbers,
                ..Oracle::default()
            },
            seed,
        }
    }

    fn draw(&mut self, thread: usize) -> Session {
        let random = &mut self.threads[thread];
        let range = self.numbers * 9 / 10;
        let kind = random.u8(..100);
        let customer = random.u64(1..=range);
        let count = random.usize(1..=2);
        let mut one = || (random.usize(..KINDS), random.u64(1..=range));
        match kind {
            0..98 => Session::Reserve {
                customer,
                queries: (0..count).map(|_| one()).collect(),
            },
            98 => Session::Delete { customer },
            _ => {
                let drawn: Vec<_> = (0..count).map(|_| one()).collect();
                let change = |(kind, number)| {
                    let price = random.bool().then(|| 50 + random.u64(..5) * 10);
                    (kind, number, price)
                };
                Session::Change(drawn.into_iter().map(change).collect())
            }
        }
    }

    fn reserve(&self, port: &mut Port<'_>, customer: u64, queries: &[(usize, u64)]) {
        let mut best = [None; KINDS];
        for &(kind, number) in queries {
            let tree = &self.trees[kind];
            // Whether there is one, then its price: two calls, each with its search.
            if tree.get(port, number).is_none() {
                continue;
            }
            let record = tree.get(port, number).expect("it was there");
            let price: u64 = port.follow(record + PRICE);
            if best[kind].is_none_or(|(most, _)| price > most) {
                best[kind] = Some((price, number));
            }
        }
        if best.iter().all(Option::is_none) {
            return;
        }
        let (node, parent) = self.customers.find(port, customer);
        if self.customers.is_end(node) {
            let record = self.customer_records.take(port).expect("room for every customer");
            port.store(record, customer);
            port.store(record + FIRST, 0u64);
            self.customers.insert(port, parent, customer, record);
        }
        for (kind, found) in best.into_iter().enumerate() {
            if let Some((price, number)) = found {
                self.book(port, customer, kind, number, price);
            }
        }
    }

    fn book(&self, port: &mut Port<'_>, customer: u64, kind: usize, number: u64, price: u64) {
        let customer = self.customers.get(port, customer).expect("it was added");
        let record = self.trees[kind].get(port, number).expect("it was found");
        let free: u64 = port.follow(record + FREE);
        if free == 0 {
            return;
        }
        let key = booked(kind, number);
        let mut link = customer + FIRST;
        let mut next: u64 = port.load(link);
        while next != 0 {
            port.work(3);
            let there: u64 = port.follow(next);
            if there == key {
                return;
            }
            if there > key {
                break;
            }
            link = next + NEXT;
            next = port.load(link);
        }
        let Some(booking) = self.bookings.take(port) else {
            return;
        };
        let used: u64 = port.load(record + USED);
        port.store(record + USED, used + 1);
        port.store(record + FREE, free - 1);
        port.store(booking, key);
        port.store(booking + NEXT, next);
        port.store(booking + BOOKING_PRICE, price);
        port.store(link, booking);
    }

    fn delete(&self, port: &mut Port<'_>, number: u64) {
        let (node, _) = self.customers.find(port, number);
        if self.customers.is_end(node) {
            return;
        }
        let customer = self.customers.value(port, node);
        let mut booking: u64 = port.follow(customer + FIRST);
        while booking != 0 {
            let key: u64 = port.follow(booking);
            let tree = &self.trees[(key >> 56) as usize];
            let record = tree.get(port, key & 0xff_ffff_ffff_ffff);
            let record = record.expect("what is booked stays");
            for (field, by) in [(USED, u64::MAX), (FREE, 1)] {
                let old: u64 = port.load(record + field);
                port.store(record + field, old.wrapping_add(by));
            }
            let next: u64 = port.load(booking + NEXT);
            self.bookings.give(port, booking);
            booking = next;
        }
        self.customers.remove(port, node);
        self.customer_records.give(port, customer);
    }

    fn change(&self, port: &mut Port<'_>, kind: usize, number: u64, price: Option<u64>) {
        let tree = &self.trees[kind];
        let (node, parent) = tree.find(port, number);
        if tree.is_end(node) {
            if let Some(price) = price {
                let record = self.reservations.take(port).expect("room for every number");
                for (word, value) in [number, 0, SOME, SOME, price].into_iter().enumerate() {
                    port.store(record + word as u64 * 8, value);
                }
                tree.insert(port, parent, number, record);
            }
            return;
        }
        let record = tree.value(port, node);
        let [free, total] = [FREE, TOTAL].map(|field| port.load::<u64>(record + field));
        let by = match price {
            Some(_) => SOME,
            None if free < SOME => return,
            None => SOME.wrapping_neg(),
        };
        if total.wrapping_add(by) == 0 {
            tree.remove(port, node);
            self.reservations.give(port, record);
            return;
        }
        port.store(record + FREE, free.wrapping_add(by));
        port.store(record + TOTAL, total.wrapping_add(by));
        if let Some(price) = price {
            port.store(record + PRICE, price);
        }
    }
}

impl Workload for Vacation {
    fn name(&self) -> &str {
        "vacation"
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        let mut random = fastrand::Rng::with_seed(self.seed ^ 0x7661_6361);
        // In random order, as the numbers are added.
        let mut entries = |space: &mut Space, pool: &Pool| {
            let mut all: Vec<(u64, u64)> = (1..=self.numbers)
                .map(|number| (number, pool.fill(space)))
                .collect();
            for place in (1..all.len()).rev() {
                let other = random.usize(..=place);
                (all[place].1, all[other].1) = (all[other].1, all[place].1);
            }
            all
        };
        for (kind, tree) in self.trees.iter().enumerate() {
            let all = entries(space, &self.reservations);
            for &(number, record) in &all {
                let Reservation {
                    used,
                    free,
                    total,
                    price,
                } = first(self.seed, kind, number);
                for (word, value) in [number, used, free, total, price].into_iter().enumerate() {
                    poke(space, record + word as u64 * 8, value);
                }
            }
            tree.fill(space, &all, self.seed ^ kind as u64);
        }
        let all = entries(space, &self.customer_records);
        all.iter()
            .for_each(|&(number, record)| poke(space, record, number));
        self.customers.fill(space, &all, self.seed ^ KINDS as u64);
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        if let Some(progress) = self.turns.begin(core, port) {
            return progress;
        }
        port.work(20); // the lock
        let session = self.draw(core);
        match &session {
            Session::Reserve { customer, queries } => self.reserve(port, *customer, queries),
            Session::Delete { customer } => self.delete(port, *customer),
            Session::Change(changes) => {
                let each = changes.iter();
                each.for_each(|&(kind, number, price)| self.change(port, kind, number, price));
            }
        }
        self.oracle.follow(session);
        self.turns.end(core, port);
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        for (kind, tree) in self.trees.iter().enumerate() {
            let there = (1..=self.numbers).filter_map(|number| Some((number, self.oracle.of(kind, number)?)));
            self.compare(space, tree, there, |record, expected: Reservation| {
                let [used, free, total, price] =
                    [USED, FREE, TOTAL, PRICE].map(|field| peek(space, record + field));
                let found = Reservation {
                    used,
                    free,
                    total,
                    price,
                };
                match found == expected {
                    true => Ok(()),
                    false => Err(format!("kind {kind}: {found:?}, not {expected:?}")),
                }
            })?;
        }
        let there = (1..=self.numbers).filter_map(|number| Some((number, self.oracle.bookings(number)?)));
        self.compare(space, &self.customers, there, |record, bookings| {
            let mut booking = peek::<u64>(space, record + FIRST);
            for &(key, price) in bookings {
                let is = self.bookings.is_one(booking)
                    && (
                        peek::<u64>(space, booking),
                        peek::<u64>(space, booking + BOOKING_PRICE),
                    ) == (key, price);
                if !is {
                    return Err(format!("booking {key:#x} is not as it should be"));
                }
                booking = peek(space, booking + NEXT);
            }
            match booking {
                0 => Ok(()),
                _ => Err("a booking too many".into()),
            }
        })?;
        self.none_is_lost(space)
    }
}

impl Vacation {
    /// A tree has these numbers and no other, and their records are right.
    fn compare<T>(
        &self,
        space: &Space,
        tree: &RedBlack,
        there: impl Iterator<Item = (u64, T)>,
        is_right: impl Fn(u64, T) -> Result<(), String>,
    ) -> Result<(), String> {
        let found = tree.contents(space)?;
        let mut left = found.iter();
        for (number, expected) in there {
            match left.next() {
                Some(&(key, record)) if key == number => {
                    let is_one = self.reservations.is_one(record) || self.customer_records.is_one(record);
                    if !is_one || peek::<u64>(space, record) != number {
                        return Err(format!("number {number} leads to no record of its own"));
                    }
                    is_right(record, expected).map_err(|why| format!("number {number}: {why}"))?;
                }
                _ => return Err(format!("number {number} is missing")),
            }
        }
        match left.next() {
            Some((key, _)) => Err(format!("number {key} should not be there")),
            None => Ok(()),
        }
    }

    /// Every record is in use or free.
    fn none_is_lost(&self, space: &Space) -> Result<(), String> {
        let customers =
            self.numbers - self.oracle.customers.values().filter(|one| one.is_none()).count() as u64;
        let gone = self.oracle.changed.values().filter(|one| one.is_none()).count() as u64;
        let kinds = KINDS as u64 * self.numbers - gone;
        for (pool, used, what) in [
            (&self.reservations, kinds, "reservations"),
            (&self.customer_records, customers, "customers"),
            (&self.bookings, self.oracle.booked, "bookings"),
        ] {
            let free = pool.free(space)?;
            if used + free != pool.capacity() {
                return Err(format!("{used} {what}, {free} free, {} in all", pool.capacity()));
            }
        }
        Ok(())
    }
}

/// What there is at first.
fn first(seed: u64, kind: usize, number: u64) -> Reservation {
    let drawn = scramble(seed ^ kind as u64, number);
    let total = (1 + drawn % 5) * SOME;
    Reservation {
        used: 0,
        free: total,
        total,
        price: 50 + (drawn >> 32) % 5 * 10,
    }
}

/// The agency in ordinary maps: what is other than at first.
#[derive(Default)]
struct Oracle {
    seed: u64,
    /// Bookings there can be, and are.
    room: u64,
    booked: u64,
    changed: HashMap<(usize, u64), Option<Reservation>>,
    /// Bookings of a customer and their prices, in order.
    customers: HashMap<u64, Option<Vec<(u64, u64)>>>,
}

impl Oracle {
    fn of(&self, kind: usize, number: u64) -> Option<Reservation> {
        let changed = self.changed.get(&(kind, number)).copied();
        changed.unwrap_or_else(|| Some(first(self.seed, kind, number)))
    }

    fn bookings(&self, number: u64) -> Option<&[(u64, u64)]> {
        match self.customers.get(&number) {
            None => Some(&[]),
            Some(bookings) => bookings.as_deref(),
        }
    }

    fn follow(&mut self, session: Session) {
        match session {
            Session::Reserve { customer, queries } => {
                let mut best: [Option<(u64, u64)>; KINDS] = [None; KINDS];
                for (kind, number) in queries {
                    let price = self.of(kind, number).map(|found| found.price);
                    if price.is_some_and(|price| best[kind].is_none_or(|(most, _)| price > most)) {
                        best[kind] = price.map(|price| (price, number));
                    }
                }
                for (kind, found) in best.into_iter().enumerate() {
                    if let Some((price, number)) = found {
                        self.book(customer, kind, number, price);
                    }
                }
            }
            Session::Delete { customer } => {
                let gone = self.customers.insert(customer, None).unwrap_or(Some(Vec::new()));
                for (key, _) in gone.into_iter().flatten() {
                    let (kind, number) = ((key >> 56) as usize, key & 0xff_ffff_ffff_ffff);
                    let of = self.of(kind, number).map(|of| Reservation {
                        used: of.used - 1,
                        free: of.free + 1,
                        ..of
                    });
                    self.changed.insert((kind, number), of);
                    self.booked -= 1;
                }
            }
            Session::Change(changes) => {
                for (kind, number, price) in changes {
                    let changed = self.change(kind, number, price);
                    self.changed.insert((kind, number), changed);
                }
            }
        }
    }

    fn change(&self, kind: usize, number: u64, price: Option<u64>) -> Option<Reservation> {
        match (self.of(kind, number), price) {
            (None, None) => None,
            (None, Some(price)) => Some(Reservation {
                used: 0,
                free: SOME,
                total: SOME,
                price,
            }),
            (Some(of), Some(price)) => Some(Reservation {
                free: of.free + SOME,
                total: of.total + SOME,
                price,
                ..of
            }),
            (Some(of), None) if of.free < SOME => Some(of),
            (Some(of), None) if of.total == SOME => None,
            (Some(of), None) => Some(Reservation {
                free: of.free - SOME,
                total: of.total - SOME,
                ..of
            }),
        }
    }

    fn book(&mut self, customer: u64, kind: usize, number: u64, price: u64) {
        let bookings = self.customers.entry(customer).or_insert(Some(Vec::new()));
        let bookings = bookings.get_or_insert_default();
        let key = booked(kind, number);
        let place = bookings.binary_search_by_key(&key, |booking| booking.0);
        let changed = self.changed.get(&(kind, number)).copied();
        let of = changed.unwrap_or_else(|| Some(first(self.seed, kind, number)));
        let (Err(place), Some(of)) = (place, of) else {
            return;
        };
        if of.free > 0 && self.booked < self.room {
            bookings.insert(place, (key, price));
            self.booked += 1;
            let (used, free) = (of.used + 1, of.free - 1);
            self.changed
                .insert((kind, number), Some(Reservation { used, free, ..of }));
        }
    }
}
