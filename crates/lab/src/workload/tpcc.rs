//! TPC-C (revision 5.11) on hash tables.
//!
//! By default the New-Order transaction alone, as transactional-memory papers run it; `tpcc-mix` has
//! Payment too, in the benchmark's proportion (45 to 43). Customers are named by number. A district
//! keeps its newest orders, as many as it begins with: a new one takes the rows of the oldest. Cores
//! share the tables, and a district is locked by a word in its row; a transaction is never cut by the end
//! of a batch.
//!
//! ```text
//! warehouse 96   | head 16 | tax u32 | 0 | ytd u64 | name and address 64 |
//! district 112   | head 16 | tax u32 | lock u32 | ytd u64 | next order u64 | name and address 72 |
//! customer 672   | head 16 | discount u32 | payments u32 | balance i64 | ytd u64 | name, address, data 632 |
//! item 96        | head 16 | price u32 | 0 | name and data 72 |
//! stock 320      | head 16 | quantity u32 | ytd u32 | orders u32 | remote u32 | district texts 240 | data 48 |
//! order 48       | head 16 | number u64 | customer u64 | lines u32 | 0 | entry date u64 |
//! new order 32   | head 16 | number u64 | 0 |
//! order line 80  | head 16 | item u32 | warehouse u32 | quantity u32 | 0 | amount u64 | text 24 | 16 |
//! history 64     | customer u64 | district u64 | amount u64 | 40 |    a ring for each core
//! ```
//!
//! Check: the same transactions done on ordinary vectors give the same districts, stock, newest orders with
//! their lines, and money.

use super::layout::{Layout, Records, peek, poke};
use super::table::{Table, scramble};
use super::{Progress, Workload};
use crate::space::{Port, Space};

const BATCH: usize = 256;
const WAREHOUSES: u64 = 10;
const DISTRICTS: u64 = 10;
const LINES: u64 = 15;
const HISTORY: u64 = 4096;

/// Rows of each kind.
#[derive(Clone, Copy)]
struct Sizes {
    warehouses: u64,
    items: u64,
    /// Of each district.
    customers: u64,
    orders: u64,
}

impl Sizes {
    /// As many warehouses as fit, ten at least. Where ten do not fit they are smaller, and fewer only where districts would
    /// have less than 20 customers.
    fn of_bytes(bytes: u64) -> Sizes {
        let row = Table::bytes_per_row;
        let district = 3000 * (row(672) + row(48) + row(32) + 10 * row(80));
        let warehouse = 100_000 * row(320) + DISTRICTS * district;
        let items = 100_000 * row(96);
        let fit = bytes.saturating_sub(items) / warehouse;
        if fit >= WAREHOUSES {
            return Sizes {
                warehouses: fit,
                items: 100_000,
                customers: 3000,
                orders: 3000,
            };
        }
        let share_of = |count: u64, warehouses: u64| count * bytes / (items + warehouses * warehouse);
        let warehouses = (1..=WAREHOUSES)
            .rev()
            .find(|&number| share_of(3000, number) >= 20);
        let warehouses = warehouses.unwrap_or(1);
        let share = |count: u64| share_of(count, warehouses).max(20);
        Sizes {
            warehouses,
            items: share(100_000),
            customers: share(3000),
            orders: share(3000),
        }
    }

    fn districts(&self) -> u64 {
        self.warehouses * DISTRICTS
    }
}

/// A transaction, as drawn.
enum Transaction {
    NewOrder {
        district: u64,
        customer: u64,
        lines: Vec<Line>,
    },
    Payment {
        district: u64,
        customer: u64,
        amount: u64,
    },
}

struct Line {
    item: u64,
    warehouse: u64,
    quantity: u32,
}

/// The benchmark's skewed draw of 0..count.
fn nurand(random: &mut fastrand::Rng, a: u64, count: u64) -> u64 {
    ((random.u64(0..=a) | random.u64(..count)) + a / 3) % count
}

impl Transaction {
    fn draw(random: &mut fastrand::Rng, sizes: &Sizes, mix: bool) -> Transaction {
        let warehouse = random.u64(..sizes.warehouses);
        let district = warehouse * DISTRICTS + random.u64(..DISTRICTS);
        let customer = nurand(random, 1023, sizes.customers);
        if mix && random.u8(..88) >= 45 {
            let amount = random.u64(100..=500_000);
            return Transaction::Payment {
                district,
                customer,
                amount,
            };
        }
        let line = |_| Line {
            item: nurand(random, 8191, sizes.items),
            // One in a hundred comes from elsewhere.
            warehouse: if random.u8(..100) == 0 {
                random.u64(..sizes.warehouses)
            } else {
                warehouse
            },
            quantity: random.u32(1..=10),
        };
        let count = 5 + scramble(district, customer) % 11;
        let lines = (0..count).map(line).collect();
        Transaction::NewOrder {
            district,
            customer,
            lines,
        }
    }
}

pub(super) struct Tpcc {
    mix: bool,
    seed: u64,
    sizes: Sizes,
    tables: Tables,
    footprint: u64,
    clients: Vec<Client>,
    /// Which core ran each transaction, in order.
    log: Vec<u8>,
    missing: u64,
}

struct Client {
    random: fastrand::Rng,
    payments: u64,
}

#[derive(Clone)]
struct Tables {
    warehouse: Table,
    district: Table,
    customer: Table,
    item: Table,
    stock: Table,
    order: Table,
    new_order: Table,
    line: Table,
    history: Vec<Records>,
}

fn price(seed: u64, item: u64) -> u32 {
    100 + (scramble(seed ^ 1, item) % 9901) as u32
}

/// Key of a customer; of an order, by its place among those a district keeps.
fn within(district: u64, number: u64) -> u64 {
    district << 32 | number
}

fn stock_key(warehouse: u64, item: u64) -> u64 {
    warehouse << 32 | item
}

fn line_key(order: u64, line: u64) -> u64 {
    order << 4 | line
}

/// What is left in stock after an order: never under ten.
fn taken(quantity: u32, ordered: u32) -> u32 {
    if quantity >= ordered + 10 {
        quantity - ordered
    } else {
        quantity + 91 - ordered
    }
}

impl Tpcc {
    pub(super) fn new(bytes: u64, cores: usize, seed: u64, mix: bool) -> Tpcc {
        let sizes = Sizes::of_bytes(bytes);
        let mut layout = Layout::default();
        let districts = sizes.districts();
        let orders = districts * sizes.orders;
        let mut table = |rows, bytes| Table::new(&mut layout, rows, bytes);
        let tables = Tables {
            warehouse: table(sizes.warehouses, 96),
            district: table(districts, 112),
            customer: table(districts * sizes.customers, 672),
            item: table(sizes.items, 96),
            stock: table(sizes.warehouses * sizes.items, 320),
            order: table(orders, 48),
            new_order: table(orders, 32),
            line: table(orders * LINES, 80),
            history: (0..cores).map(|_| layout.records(HISTORY, 64)).collect(),
        };
        let client = |core| Client {
            random: fastrand::Rng::with_seed(scramble(seed, core)),
            payments: 0,
        };
        Tpcc {
            mix,
            seed,
            sizes,
            tables,
            footprint: layout.bytes(),
            clients: (0..cores as u64).map(client).collect(),
            log: Vec::new(),
            missing: 0,
        }
    }

    /// The row of a key that must be there.
    fn there(&mut self, port: &mut Port<'_>, table: &Table, key: u64) -> u64 {
        table.find(port, key).unwrap_or_else(|| {
            self.missing += 1;
            table.first_row()
        })
    }

    /// The row of a key, made if it is not there. The tables have room for all keys.
    fn made(&mut self, port: &mut Port<'_>, table: &Table, key: u64) -> u64 {
        table
            .find(port, key)
            .or_else(|| table.insert(port, key))
            .unwrap_or_else(|| {
                self.missing += 1;
                table.first_row()
            })
    }

    fn new_order(&mut self, port: &mut Port<'_>, district: u64, customer: u64, lines: &[Line]) {
        let tables = self.tables.clone();
        port.work(120); // parameters, begin and end of the transaction
        let row = self.there(port, &tables.warehouse, district / DISTRICTS);
        let _: u32 = port.load(row + 16);
        let row = self.there(port, &tables.district, district);
        let _: u32 = port.load(row + 20);
        port.store(row + 20, 1u32);
        let number: u64 = port.load(row + 32);
        port.store(row + 32, number + 1);
        let _: u32 = port.load(row + 16);
        let buyer = self.there(port, &tables.customer, within(district, customer));
        let _: u32 = port.load(buyer + 16);
        let mut name = [0; 16];
        port.load_bytes(buyer + 40, &mut name);

        let key = within(district, number % self.sizes.orders);
        let order = self.made(port, &tables.order, key);
        port.store(order + 16, number);
        port.store(order + 24, customer);
        port.store(order + 32, lines.len() as u32);
        port.store(order + 40, number);
        let open = self.made(port, &tables.new_order, key);
        port.store(open + 16, number);
        for (i, line) in lines.iter().enumerate() {
            self.order_line(port, &tables, key, i as u64, line, district);
        }
        port.store(row + 20, 0u32);
    }

    fn order_line(
        &mut self,
        port: &mut Port<'_>,
        tables: &Tables,
        order: u64,
        i: u64,
        line: &Line,
        district: u64,
    ) {
        port.work(30); // arithmetic of the line, brand or generic
        let item = self.there(port, &tables.item, line.item);
        let price: u32 = port.load(item + 16);
        let mut text = [0; 24];
        port.load_bytes(item + 24, &mut text);
        let stock = self.there(port, &tables.stock, stock_key(line.warehouse, line.item));
        let quantity: u32 = port.load(stock + 16);
        port.store(stock + 16, taken(quantity, line.quantity));
        for (field, more) in [(20, line.quantity), (24, 1)] {
            let before: u32 = port.load(stock + field);
            port.store(stock + field, before + more);
        }
        if line.warehouse != district / DISTRICTS {
            let before: u32 = port.load(stock + 28);
            port.store(stock + 28, before + 1);
        }
        port.load_bytes(stock + 32 + 24 * (district % DISTRICTS), &mut text);
        let row = self.made(port, &tables.line, line_key(order, i));
        port.store(row + 16, line.item as u32);
        port.store(row + 20, line.warehouse as u32);
        port.store(row + 24, line.quantity);
        port.store(row + 32, u64::from(price) * u64::from(line.quantity));
        port.store_bytes(row + 40, &text);
    }

    fn payment(&mut self, port: &mut Port<'_>, core: usize, district: u64, customer: u64, amount: u64) {
        let tables = self.tables.clone();
        port.work(100);
        for (table, key) in [
            (&tables.warehouse, district / DISTRICTS),
            (&tables.district, district),
        ] {
            let row = self.there(port, table, key);
            let ytd: u64 = port.load(row + 24);
            port.store(row + 24, ytd + amount);
            let mut name = [0; 48];
            port.load_bytes(row + 40, &mut name);
        }
        let row = self.there(port, &tables.customer, within(district, customer));
        let balance: i64 = port.load(row + 24);
        port.store(row + 24, balance - amount as i64);
        let ytd: u64 = port.load(row + 32);
        port.store(row + 32, ytd + amount);
        let payments: u32 = port.load(row + 20);
        port.store(row + 20, payments + 1);
        let mut name = [0; 64];
        port.load_bytes(row + 40, &mut name);
        let client = &mut self.clients[core];
        let entry = tables.history[core].at(client.payments % HISTORY);
        client.payments += 1;
        for (field, value) in [customer, district, amount].into_iter().enumerate() {
            port.store(entry + 8 * field as u64, value);
        }
        port.store_bytes(entry + 24, &name[..40]);
    }
}

impl Workload for Tpcc {
    fn name(&self) -> &str {
        if self.mix { "tpcc-mix" } else { "tpcc" }
    }

    fn footprint_bytes(&self) -> u64 {
        self.footprint
    }

    fn fill(&self, space: &mut Space) {
        let Tpcc {
            sizes, tables, seed, ..
        } = self;
        for item in 0..sizes.items {
            let row = tables.item.fill(space, item);
            poke(space, row + 16, price(*seed, item));
            text(space, row + 24, 72, item);
        }
        for warehouse in 0..sizes.warehouses {
            let row = tables.warehouse.fill(space, warehouse);
            text(space, row + 32, 64, warehouse);
            for item in 0..sizes.items {
                let row = tables.stock.fill(space, stock_key(warehouse, item));
                poke(space, row + 16, first_quantity(*seed, warehouse, item));
                text(space, row + 32, 288, item);
            }
        }
        for district in 0..sizes.districts() {
            let row = tables.district.fill(space, district);
            poke(space, row + 32, sizes.orders);
            text(space, row + 40, 72, district);
            for customer in 0..sizes.customers {
                let row = tables.customer.fill(space, within(district, customer));
                text(space, row + 40, 632, customer);
            }
            for number in 0..sizes.orders {
                let key = within(district, number);
                let (customer, count) = (number % sizes.customers, 5 + scramble(*seed, key) % 11);
                let row = tables.order.fill(space, key);
                poke(space, row + 16, number);
                poke(space, row + 24, customer);
                poke(space, row + 32, count as u32);
                let row = tables.new_order.fill(space, key);
                poke(space, row + 16, number);
                for line in 0..count {
                    let row = tables.line.fill(space, line_key(key, line));
                    poke(space, row + 16, (scramble(key, line) % sizes.items) as u32);
                    text(space, row + 40, 24, line);
                }
            }
        }
    }

    fn run(&mut self, core: usize, port: &mut Port<'_>) -> Progress {
        while port.batched() < BATCH {
            match Transaction::draw(&mut self.clients[core].random, &self.sizes, self.mix) {
                Transaction::NewOrder {
                    district,
                    customer,
                    lines,
                } => {
                    self.new_order(port, district, customer, &lines);
                }
                Transaction::Payment {
                    district,
                    customer,
                    amount,
                } => {
                    self.payment(port, core, district, customer, amount);
                }
            }
            port.commit();
            self.log.push(core as u8);
        }
        Progress::More
    }

    fn check(&self, space: &Space) -> Result<(), String> {
        if self.missing > 0 {
            return Err(format!("{} rows were not found", self.missing));
        }
        Expected::after(self).compare(self, space)
    }
}

fn first_quantity(seed: u64, warehouse: u64, item: u64) -> u32 {
    10 + (scramble(seed ^ 2, stock_key(warehouse, item)) % 91) as u32
}

/// Stands for text: names, addresses, data.
fn text(space: &mut Space, at: u64, bytes: u64, key: u64) {
    for word in 0..bytes / 8 {
        poke(space, at + 8 * word, scramble(key, word));
    }
}

/// What ordinary vectors hold after the same transactions.
struct Expected {
    next: Vec<u64>,
    district_ytd: Vec<u64>,
    /// By warehouse and item: quantity, ytd, orders.
    stock: Vec<[u32; 3]>,
    /// By district and place: those ordered in the run.
    orders: Vec<Option<(u64, u64, Vec<Line>)>>,
    balances: Vec<i64>,
}

impl Expected {
    fn after(run: &Tpcc) -> Expected {
        let sizes = &run.sizes;
        let mut stock = Vec::new();
        for warehouse in 0..sizes.warehouses {
            stock.extend((0..sizes.items).map(|item| [first_quantity(run.seed, warehouse, item), 0, 0]));
        }
        let mut expected = Expected {
            next: vec![sizes.orders; sizes.districts() as usize],
            district_ytd: vec![0; sizes.districts() as usize],
            stock,
            orders: (0..sizes.districts() * sizes.orders).map(|_| None).collect(),
            balances: vec![0; (sizes.districts() * sizes.customers) as usize],
        };
        let client = |core| fastrand::Rng::with_seed(scramble(run.seed, core));
        let mut clients: Vec<_> = (0..run.clients.len() as u64).map(client).collect();
        for &core in &run.log {
            expected.run(
                Transaction::draw(&mut clients[usize::from(core)], sizes, run.mix),
                sizes,
            );
        }
        expected
    }

    fn run(&mut self, transaction: Transaction, sizes: &Sizes) {
        match transaction {
            Transaction::NewOrder {
                district,
                customer,
                lines,
            } => {
                let number = self.next[district as usize];
                self.next[district as usize] += 1;
                for line in &lines {
                    let stock = &mut self.stock[(line.warehouse * sizes.items + line.item) as usize];
                    *stock = [
                        taken(stock[0], line.quantity),
                        stock[1] + line.quantity,
                        stock[2] + 1,
                    ];
                }
                let place = district * sizes.orders + number % sizes.orders;
                self.orders[place as usize] = Some((number, customer, lines));
            }
            Transaction::Payment {
                district,
                customer,
                amount,
            } => {
                self.district_ytd[district as usize] += amount;
                self.balances[(district * sizes.customers + customer) as usize] -= amount as i64;
            }
        }
    }

    fn compare(&self, run: &Tpcc, space: &Space) -> Result<(), String> {
        let (sizes, tables) = (&run.sizes, &run.tables);
        let row = |table: &Table, key, what: &str| {
            table
                .peek(space, key)
                .ok_or_else(|| format!("{what} {key:#x} is gone"))
        };
        for warehouse in 0..sizes.warehouses {
            let at = row(&tables.warehouse, warehouse, "warehouse")?;
            let districts = warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS;
            let sum: u64 = districts
                .map(|district| self.district_ytd[district as usize])
                .sum();
            same(
                "the year's payments of warehouse",
                warehouse,
                peek(space, at + 24),
                sum,
            )?;
            for item in 0..sizes.items {
                let at = row(&tables.stock, stock_key(warehouse, item), "stock")?;
                let found: [u32; 3] = [16, 20, 24].map(|field| peek(space, at + field));
                let expected = self.stock[(warehouse * sizes.items + item) as usize];
                same(
                    "quantity, ytd and orders of stock",
                    stock_key(warehouse, item),
                    found,
                    expected,
                )?;
            }
        }
        for district in 0..sizes.districts() {
            let at = row(&tables.district, district, "district")?;
            same(
                "next order of district",
                district,
                peek(space, at + 32),
                self.next[district as usize],
            )?;
            let ytd = self.district_ytd[district as usize];
            same(
                "the year's payments of district",
                district,
                peek(space, at + 24),
                ytd,
            )?;
            for customer in 0..sizes.customers {
                let at = row(&tables.customer, within(district, customer), "customer")?;
                let expected = self.balances[(district * sizes.customers + customer) as usize];
                same("balance of customer", customer, peek(space, at + 24), expected)?;
            }
            for place in 0..sizes.orders {
                if let Some(order) = &self.orders[(district * sizes.orders + place) as usize] {
                    self.order(run, space, within(district, place), order)?;
                }
            }
        }
        Ok(())
    }

    fn order(
        &self,
        run: &Tpcc,
        space: &Space,
        key: u64,
        (number, customer, lines): &(u64, u64, Vec<Line>),
    ) -> Result<(), String> {
        let gone = || format!("order {key:#x} or a line of it is gone");
        let at = run.tables.order.peek(space, key).ok_or_else(gone)?;
        let found: (u64, u64, u32) = (peek(space, at + 16), peek(space, at + 24), peek(space, at + 32));
        same("order", key, found, (*number, *customer, lines.len() as u32))?;
        for (i, line) in lines.iter().enumerate() {
            let at = run
                .tables
                .line
                .peek(space, line_key(key, i as u64))
                .ok_or_else(gone)?;
            let amount = u64::from(price(run.seed, line.item)) * u64::from(line.quantity);
            let found: (u32, u32, u64) = (peek(space, at + 16), peek(space, at + 24), peek(space, at + 32));
            same(
                "a line of order",
                key,
                found,
                (line.item as u32, line.quantity, amount),
            )?;
        }
        Ok(())
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, key: u64, found: T, expected: T) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what} {key:#x} is {found:?}, not {expected:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_ten_warehouses_where_they_fit() {
        for (bytes, warehouses) in [
            (1_700_000_000, 20),
            (864_000_000, 10),
            (864_000_000 / 16, 10),
            (864_000_000 / 64, 10),
            (1_000_000, 1),
        ] {
            let sizes = Sizes::of_bytes(bytes);
            assert_eq!(sizes.warehouses, warehouses, "{bytes}");
            let footprint = Tpcc::new(bytes, 4, 1, false).footprint;
            assert!(footprint < bytes * 5 / 4 + (1 << 22), "{footprint} of {bytes}");
        }
    }
}
