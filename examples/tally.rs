//! A state machine served over TCP: a request is answered when what it changed is durable.
//!
//! ```text
//! cargo run --release --example tally -- tally.twin 127.0.0.1:7000
//! printf 'ada 1 5\nada 2 7\nada 2 7\n' | nc -N 127.0.0.1 7000      # 1 5, 2 12, 2 12
//! ```
//!
//! A request is `CLIENT NUMBER AMOUNT`: the amount is added to the client's total, once for each number. The update
//! takes a ticket and the answer waits for it, so no client hears of a change that a crash could take back. The other
//! connections go on meanwhile, and one checkpoint releases the answers of all. A client that lost an answer, because
//! the server was killed, asks again with the same number: nothing is added twice.

use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;
use twinpage::collections::{HashMap, String as Text};
use twinpage::{Persist, Region, Shared};

/// The state: one of these for each client.
#[derive(Persist, Clone, Copy, Default)]
struct Tally {
    /// The last request that was added.
    number: u64,
    total: u64,
}

type Tallies = HashMap<'static, Text<'static>, Tally>;

fn main() -> Result<(), Box<dyn Error>> {
    match &std::env::args().skip(1).collect::<Vec<_>>()[..] {
        [file, address] => serve(Path::new(file), &TcpListener::bind(address)?),
        _ => Err("usage: tally FILE ADDRESS".into()),
    }
}

/// Answers every connection, without an end.
pub(crate) fn serve(file: &Path, listener: &TcpListener) -> Result<(), Box<dyn Error>> {
    let region = Region::options().every(Duration::from_millis(16)).open(file)?;
    let tallies = Shared::new(region.root::<Tallies>("tallies")?);
    std::thread::scope(|scope| {
        loop {
            let (stream, from) = listener.accept()?;
            let (region, tallies) = (&region, &tallies);
            scope.spawn(move || {
                if let Err(error) = converse(region, tallies, &stream) {
                    eprintln!("{from}: {error}");
                }
            });
        }
    })
}

fn converse(
    region: &Region,
    tallies: &Shared<Tallies>,
    mut stream: &TcpStream,
) -> Result<(), Box<dyn Error>> {
    for line in BufReader::new(stream).lines() {
        let line = line?;
        let Some((client, number, amount)) = parse(&line) else {
            writeln!(stream, "expected CLIENT NUMBER AMOUNT, not {line:?}")?;
            continue;
        };
        let (tally, ticket) = region.update(|u| {
            let mut tallies = tallies.lock(u);
            let tally = tallies.entry_ref(client).or_default();
            if tally.number < number {
                tally.number = number;
                tally.total = tally.total.saturating_add(amount);
            }
            (*tally, region.ticket())
        });
        region.wait(ticket)?;
        writeln!(stream, "{} {}", tally.number, tally.total)?;
    }
    Ok(())
}

fn parse(line: &str) -> Option<(&str, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let request = (
        words.next()?,
        words.next()?.parse().ok()?,
        words.next()?.parse().ok()?,
    );
    words.next().is_none().then_some(request)
}
