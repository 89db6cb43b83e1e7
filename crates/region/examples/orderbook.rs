//! An exchange that never takes a word back: orders are matched in memory at once, and confirmed to
//! the world when the epoch that has them is durable (external synchrony).
//!
//! ```text
//! cargo run --release --example orderbook
//! ```
//!
//! Traders send orders; the exchange matches each in an update, takes a ticket, and queues the
//! confirmation. A confirmation goes out when its ticket is durable, many at a time, so a trader waits
//! for milliseconds while the exchange never waits at all. In the end the process "crashes" (a copy of
//! the file is opened as the next life would), and every confirmed order is there.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use twinpage::collections::{BTreeMap, HashMap};
use twinpage::{Persist, Region, Ticket};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// A limit order, or what is left of it.
#[derive(Persist, Clone, Copy)]
struct Order {
    id: u64,
    amount: u64,
}

/// What survives: both sides of the book, best price first, and what became of every order.
#[derive(Persist)]
struct Book<'r> {
    /// By price, then by arrival.
    buys: BTreeMap<'r, (u64, u64), Order>,
    sells: BTreeMap<'r, (u64, u64), Order>,
    /// How much of each order was traded.
    traded: HashMap<'r, u64, u64>,
    orders: u64,
    trades: u64,
}

impl Book<'_> {
    /// Matches an order with the best of the other side, and keeps what is left. Says its number.
    fn place(&mut self, buys: bool, price: u64, amount: u64) -> u64 {
        self.orders += 1;
        let (id, mut left) = (self.orders, amount);
        while left > 0 {
            let best = match buys {
                true => self.sells.iter().next(),
                false => self.buys.iter().next_back(),
            };
            let Some((&key, &other)) =
                best.filter(|((at, _), _)| if buys { *at <= price } else { *at >= price })
            else {
                break;
            };
            let taken = left.min(other.amount);
            left -= taken;
            *self.traded.entry(other.id).or_insert(0) += taken;
            let side = if buys { &mut self.sells } else { &mut self.buys };
            match other.amount - taken {
                0 => side.remove(&key),
                amount => side.insert(key, Order { amount, ..other }),
            };
            self.trades += 1;
        }
        self.traded.insert(id, amount - left);
        if left > 0 {
            let side = if buys { &mut self.buys } else { &mut self.sells };
            // Of buys the last is the best: the earlier of two at a price must be the later key.
            let turn = if buys { u64::MAX - id } else { id };
            side.insert((price, turn), Order { id, amount: left });
        }
        id
    }
}

fn main() -> Outcome<()> {
    let folder = std::env::temp_dir().join(format!("twinpage-orderbook-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let region = Region::options()
        .every(Duration::from_millis(4))
        .open(folder.join("book.twin"))?;
    let mut book = region.root::<Book>("book")?;
    let (mut waiting, mut confirmed) = (VecDeque::<(u64, Ticket, Instant)>::new(), 0);
    let mut waits = Vec::new();
    let mut confirm = |waiting: &mut VecDeque<(u64, Ticket, Instant)>, all: bool| -> Outcome<u64> {
        while let Some(&(id, ticket, since)) = waiting.front() {
            if all {
                region.wait(ticket)?;
            } else if !region.is_durable(ticket)? {
                break;
            }
            // Here the trader is told: nothing can take the order back now.
            confirmed = id;
            waits.push(since.elapsed());
            waiting.pop_front();
        }
        Ok(confirmed)
    };
    let (begun, mut random) = (Instant::now(), 7_u64);
    const ORDERS: u64 = 300_000;
    for number in 0..ORDERS {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let (buys, price, amount) = (
            random >> 63 == 1,
            900 + (random >> 40) % 200,
            1 + (random >> 20) % 50,
        );
        let id = region.update(|u| book.get_mut(u).place(buys, price, amount));
        waiting.push_back((id, region.ticket(), Instant::now()));
        if number % 64 == 0 {
            confirm(&mut waiting, false)?;
        }
    }
    let took = begun.elapsed();
    let last = confirm(&mut waiting, true)?;
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e3;
    let statistics = region.statistics();
    let (orders, trades) = region.read(|v| (book.get(v).orders, book.get(v).trades));
    println!(
        "orders         {ORDERS}, {} trades, {:.0} orders a second",
        trades,
        ORDERS as f64 / took.as_secs_f64()
    );
    println!(
        "confirmations  {:.1} ms (p50), {:.1} ms (p99) after the order",
        at(0.5),
        at(0.99)
    );
    println!(
        "epochs         {}, stops {:.3} ms (p50), {:.3} ms (p99)",
        statistics.epochs,
        statistics.stop_us.p50 / 1e3,
        statistics.stop_us.p99 / 1e3
    );

    // The next life, from a copy of the file as it is now.
    let copy = folder.join("next-life.twin");
    std::fs::copy(folder.join("book.twin"), &copy)?;
    drop(book);
    region.close()?;
    let region = Region::open(&copy)?;
    let book = region.root::<Book>("book")?;
    region.read(|v| {
        let book = book.get(v);
        println!(
            "next life      {} orders, {} trades; {last} were confirmed",
            book.orders, book.trades
        );
        assert!(book.orders >= last && (book.orders, book.trades) == (orders, trades));
        assert!((1..=last).all(|id| book.traded.contains_key(&id)));
    });
    drop(book);
    region.close()?;
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
