//! `tpcc`: new order, of the TPC-C benchmark, on hash tables: one warehouse, 10 districts, 3000 customers in
//! each, 100,000 items.
//!
//! An operation takes the district's next order number, reads the customer, reads 5 to 15 items and changes
//! their stock, and puts in the order, its entry among the new ones, and a line for each item. Tables grow.

use super::{Setting, Workload, load, same, scattered};
use crate::engine::{Engine, Kind, Result};
use twinpage::Persist;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3000;
const ITEMS: u64 = 100_000;
const LINES_AT_MOST: u64 = 15;
/// Orders the tables are made for; they grow beyond.
const EXPECTED: u64 = 50_000;

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct District {
    next_order: u64,
    tax_percent: u64,
    year_to_date: u64,
    address: [u8; 80],
}

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Customer {
    discount_percent: u64,
    credit: [u8; 8],
    last_name: [u8; 16],
    rest: [u8; 96],
}

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Item {
    price_cents: u64,
    name: [u8; 24],
    data: [u8; 48],
}

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Stock {
    quantity: u64,
    year_to_date: u64,
    orders: u64,
    district: [[u8; 24]; 10],
    data: [u8; 48],
}

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Order {
    customer: u64,
    lines: u64,
    entered: u64,
}

#[derive(Clone, Copy, PartialEq, Debug, IntoBytes, FromBytes, Immutable, KnownLayout, Persist)]
#[repr(C)]
pub(crate) struct Line {
    item: u64,
    quantity: u64,
    amount_cents: u64,
    district: [u8; 24],
}

pub(crate) struct Tpcc<E: Engine> {
    districts: E::Map<District>,
    customers: E::Map<Customer>,
    items: E::Map<Item>,
    stock: E::Map<Stock>,
    orders: E::Map<Order>,
    new_orders: E::Map<u64>,
    lines: E::Map<Line>,
    draw: Draw,
}

/// What the customers ask for.
#[derive(Clone)]
struct Draw {
    random: fastrand::Rng,
    items: u64,
    setting: Setting,
}

/// One order as it is asked for.
struct Wish {
    district: u64,
    customer: u64,
    lines: u64,
    /// An item, and how many of it.
    wanted: [(u64, u64); LINES_AT_MOST as usize],
}

impl Draw {
    fn new(setting: Setting) -> Draw {
        Draw {
            random: setting.random(),
            items: setting.scaled(ITEMS, 100),
            setting,
        }
    }

    fn next(&mut self) -> Wish {
        let random = &mut self.random;
        let mut wish = Wish {
            district: random.u64(..DISTRICTS),
            customer: random.u64(..CUSTOMERS),
            lines: random.u64(5..=LINES_AT_MOST),
            wanted: [(0, 0); LINES_AT_MOST as usize],
        };
        for wanted in &mut wish.wanted[..wish.lines as usize] {
            *wanted = (random.u64(..self.items), random.u64(1..=10));
        }
        wish
    }
}

impl Wish {
    fn wanted(&self) -> &[(u64, u64)] {
        &self.wanted[..self.lines as usize]
    }

    fn order_key(&self, order: u64) -> u64 {
        order * DISTRICTS + self.district
    }

    fn order(&self, order: u64) -> Order {
        Order {
            customer: self.customer,
            lines: self.lines,
            entered: order,
        }
    }

    fn line(&self, (item, quantity): (u64, u64), price_cents: u64, discount: u64, stock: &Stock) -> Line {
        Line {
            item,
            quantity,
            amount_cents: quantity * price_cents * (100 - discount) / 100,
            district: stock.district[self.district as usize],
        }
    }
}

/// As the benchmark says: ten or more stay, or the shelf is filled up.
fn take(stock: &mut Stock, quantity: u64) {
    stock.quantity = if stock.quantity >= quantity + 10 {
        stock.quantity - quantity
    } else {
        stock.quantity + 91 - quantity
    };
    stock.year_to_date += quantity;
    stock.orders += 1;
}

fn customer_key(district: u64, customer: u64) -> u64 {
    district * CUSTOMERS + customer
}

fn line_key(order_key: u64, line: u64) -> u64 {
    order_key * 16 + line
}

fn first_district(_: u64) -> District {
    District {
        next_order: 1,
        tax_percent: 7,
        year_to_date: 0,
        address: [b'a'; 80],
    }
}

fn first_customer(number: u64) -> Customer {
    Customer {
        discount_percent: number % 50,
        credit: *b"GC      ",
        last_name: [b'a' + (number % 26) as u8; 16],
        rest: [number as u8; 96],
    }
}

fn first_item(number: u64) -> Item {
    Item {
        price_cents: 100 + scattered(number) % 9900,
        name: [number as u8; 24],
        data: [(number >> 8) as u8; 48],
    }
}

fn first_stock(number: u64) -> Stock {
    let mut district = [[0; 24]; 10];
    for (text, at) in district.iter_mut().zip(0u8..) {
        *text = [(number as u8).wrapping_add(at); 24];
    }
    Stock {
        quantity: 10 + scattered(number) % 91,
        year_to_date: 0,
        orders: 0,
        district,
        data: [(number >> 8) as u8; 48],
    }
}

impl<E: Engine> Tpcc<E> {
    fn fill(&mut self, engine: &E) -> Result<()> {
        load(engine, DISTRICTS, |tx, at| {
            E::insert(tx, &mut self.districts, at, &first_district(at))
        })?;
        load(engine, DISTRICTS * CUSTOMERS, |tx, at| {
            E::insert(tx, &mut self.customers, at, &first_customer(at))
        })?;
        load(engine, self.draw.items, |tx, at| {
            E::insert(tx, &mut self.items, at, &first_item(at))?;
            E::insert(tx, &mut self.stock, at, &first_stock(at))
        })
    }
}

impl<E: Engine> Workload<E> for Tpcc<E> {
    const BETWEEN: u64 = 2;

    fn open(engine: &E, setting: Setting, fresh: bool) -> Result<Self> {
        let draw = Draw::new(setting);
        let items = draw.items;
        let mut tpcc = Tpcc {
            districts: engine.map(setting.name(0), Kind::Hash, DISTRICTS)?,
            customers: engine.map(setting.name(1), Kind::Hash, DISTRICTS * CUSTOMERS)?,
            items: engine.map(setting.name(2), Kind::Hash, items)?,
            stock: engine.map(setting.name(3), Kind::Hash, items)?,
            orders: engine.map(setting.name(4), Kind::Hash, EXPECTED)?,
            new_orders: engine.map(setting.name(5), Kind::Hash, EXPECTED)?,
            lines: engine.map(setting.name(6), Kind::Hash, EXPECTED * 10)?,
            draw,
        };
        if fresh {
            tpcc.fill(engine)?;
        }
        Ok(tpcc)
    }

    fn operate(&mut self, tx: &mut E::Tx<'_, '_>) -> Result<u64> {
        let wish = self.draw.next();
        let mut number = 0;
        E::modify(tx, &mut self.districts, wish.district, |district| {
            number = district.next_order;
            district.next_order += 1;
        })?;
        let key = customer_key(wish.district, wish.customer);
        let customer = E::get(tx, &self.customers, key)?.ok_or("a customer is gone")?;
        let key = wish.order_key(number);
        E::insert(tx, &mut self.orders, key, &wish.order(number))?;
        E::insert(tx, &mut self.new_orders, key, &number)?;
        for (&wanted, at) in wish.wanted().iter().zip(0..) {
            let (item, quantity) = wanted;
            let price = E::get(tx, &self.items, item)?
                .ok_or("an item is gone")?
                .price_cents;
            let mut line = None;
            E::modify(tx, &mut self.stock, item, |stock| {
                take(stock, quantity);
                line = Some(wish.line(wanted, price, customer.discount_percent, stock));
            })?;
            let line = line.ok_or("the stock of an item is gone")?;
            E::insert(tx, &mut self.lines, line_key(key, at), &line)?;
        }
        // The counter; two keys, an order and a number; for each line a stock's three numbers, a key and the line.
        let once = 8 + 8 + size_of::<Order>() + 8 + 8;
        Ok(once as u64 + wish.lines * (24 + 8 + size_of::<Line>() as u64))
    }

    fn check(&self, engine: &E, operations: u64) -> Result<()> {
        let mut draw = Draw::new(self.draw.setting);
        let mut next = [1; DISTRICTS as usize];
        let mut stock: Vec<Stock> = (0..draw.items).map(first_stock).collect();
        engine.group(&mut |tx| {
            for _ in 0..operations {
                let wish = draw.next();
                let number = next[wish.district as usize];
                next[wish.district as usize] += 1;
                let key = wish.order_key(number);
                let discount = first_customer(customer_key(wish.district, wish.customer)).discount_percent;
                same(
                    "an order",
                    &E::get(tx, &self.orders, key)?,
                    &Some(wish.order(number)),
                )?;
                same("a new order", &E::get(tx, &self.new_orders, key)?, &Some(number))?;
                for (&wanted, at) in wish.wanted().iter().zip(0..) {
                    let stock = &mut stock[wanted.0 as usize];
                    take(stock, wanted.1);
                    let line = wish.line(wanted, first_item(wanted.0).price_cents, discount, stock);
                    same(
                        "a line",
                        &E::get(tx, &self.lines, line_key(key, at))?,
                        &Some(line),
                    )?;
                }
                let none = E::get(tx, &self.lines, line_key(key, wish.lines))?;
                same("the line after the last", &none, &None)?;
            }
            for (&next_order, at) in next.iter().zip(0..) {
                let expected = District {
                    next_order,
                    ..first_district(at)
                };
                same("a district", &E::get(tx, &self.districts, at)?, &Some(expected))?;
            }
            let mut stock = stock.iter().zip(0..);
            stock.try_for_each(|(expected, at)| {
                same("a stock", &E::get(tx, &self.stock, at)?, &Some(*expected))
            })
        })
    }
}
