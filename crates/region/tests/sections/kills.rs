//! Real kills of a bank: four threads pay from account to account by sections, and many of them fail. The sum is kept, a
//! tree is in order, the links of a list are those of the last payments, and every section that returned is there. `TWINPAGE_LONG` makes it thousands of kills.

use super::sections;
use super::support::{again, folders, when_free};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;
use twinpage::collections::{BTreeMap, Box, HashMap, Vec as List};
use twinpage::{Error, Handle, Persist, Region, Result, SchemeKind};
use twinpage_baselines::AllSchemes;

const PATH: &str = "TWINPAGE_TEST_BANK";
const CASE: &str = "TWINPAGE_TEST_CASE";
const THREADS: usize = 4;
const ACCOUNTS: u64 = 500;
const EACH: i64 = 1000;

fn open(path: &Path, scheme: SchemeKind) -> Region {
    when_free(|| sections().scheme(scheme).open_with(path, &AllSchemes))
}

/// A payment, and those before it.
#[derive(Persist)]
struct Link<'r> {
    number: u64,
    next: Option<Box<'r, Link<'r>>>,
}

/// The most links there are.
const LINKS: usize = 64;

struct Bank<'a> {
    region: &'a Region,
    accounts: Handle<HashMap<'static, u64, i64>>,
    /// How often each thread has paid.
    paid: Handle<List<'static, u64>>,
    /// The last payments, by their number.
    book: Handle<BTreeMap<'static, u64, List<'static, u64>>>,
    /// The last payments of all threads, the newest first.
    links: Handle<Option<Box<'static, Link<'static>>>>,
}

impl Bank<'_> {
    fn of(region: &Region) -> Bank<'_> {
        let [accounts, paid] = ["accounts", "paid"];
        let bank = Bank {
            region,
            accounts: region.shared(accounts).unwrap(),
            paid: region.shared(paid).unwrap(),
            book: region.shared("book").unwrap(),
            links: region.shared("links").unwrap(),
        };
        let opened = region.atomic(|section| -> Result<()> {
            let (accounts, paid) = (bank.accounts.write(section), bank.paid.write(section));
            if paid.is_empty() {
                accounts.extend((0..ACCOUNTS).map(|account| (account, EACH)));
                paid.resize(THREADS, 0);
            }
            Ok(())
        });
        opened.unwrap();
        bank
    }

    /// A payment of a thread, which fails now and then with all done but the last step.
    fn pay(&self, own: usize, random: &mut fastrand::Rng) -> Result<u64> {
        self.region.atomic(|section| {
            let (accounts, paid) = (self.accounts.write(section), self.paid.write(section));
            let book = self.book.write(section);
            let [from, to] = [(); 2].map(|()| random.u64(..ACCOUNTS));
            let amount = random.i64(1..50);
            paid[own] += 1;
            *accounts.get_mut(&from).unwrap() -= amount;
            let number = paid[own] * THREADS as u64 + own as u64;
            let entry = section.collect::<List<u64>>([from, to, amount as u64].into_iter());
            book.insert(number, entry);
            book.remove(&number.saturating_sub(100 * THREADS as u64));
            let links = self.links.write(section);
            let next = links.take();
            let number = next.as_ref().map_or(0, |link| link.number) + 1;
            *links = Some(section.boxed(Link { number, next }));
            let mut last = &mut *links;
            for _ in 0..LINKS {
                last = match last {
                    Some(link) => &mut link.next,
                    None => break,
                };
            }
            *last = None;
            if random.u8(..4) == 0 {
                let spoiled = (0..random.u64(..200)).map(|k| (ACCOUNTS + k, 1));
                accounts.extend(spoiled);
                return Err(section.abort());
            }
            *accounts.get_mut(&to).unwrap() += amount;
            Ok(paid[own])
        })
    }

    fn check(&self) -> Vec<u64> {
        assert!(self.region.check().unwrap().is_sound());
        self.region.read(|view| {
            let (accounts, paid) = (self.accounts.read(view), self.paid.read(view));
            assert_eq!(accounts.len() as u64, ACCOUNTS);
            assert_eq!(accounts.values().sum::<i64>(), ACCOUNTS as i64 * EACH);
            for (own, &paid) in (0..).zip(paid.iter()) {
                let book = self.book.read(view).keys();
                let mine = book.filter(|number| *number % THREADS as u64 == own).count() as u64;
                assert_eq!(mine, paid.min(100), "payments of thread {own}");
            }
            let book = self.book.read(view);
            assert!(
                book.keys().is_sorted_by(|one, next| one < next),
                "the tree is out of order"
            );
            assert!(
                book.keys()
                    .all(|number| book.get(number).is_some_and(|entry| entry.len() == 3))
            );
            let links = std::iter::successors(self.links.read(view).as_ref(), |link| link.next.as_ref());
            let links: Vec<u64> = links.map(|link| link.number).collect();
            let all = paid.iter().sum::<u64>();
            let newest: Vec<u64> = (1..=all).rev().take(LINKS).collect();
            assert_eq!(links, newest, "the links of {all} payments");
            paid.to_vec()
        })
    }
}

#[test]
fn every_section_that_returned_is_there() {
    if let (Ok(path), Ok(case)) = (std::env::var(PATH), std::env::var(CASE)) {
        return child(Path::new(&path), case.parse().unwrap());
    }
    let long = twinpage_campaign::is_long();
    let seed = twinpage_campaign::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    for folder in folders() {
        // All but the one that protects nothing.
        for case in SchemeKind::ALL
            .into_iter()
            .filter(|&kind| kind != SchemeKind::InPlace)
        {
            let path = folder.path().join(case.name());
            let kills = match (SchemeKind::PRODUCTS.contains(&case), long) {
                (true, false) => 6,
                (true, true) => 600,
                (false, false) => 2,
                (false, true) => 60,
            };
            let mut told = vec![0; THREADS];
            for kill in 0..kills {
                let mut child = start(&path, case);
                let said = BufReader::new(child.stdout.take().unwrap());
                let mut said = said.lines().map_while(std::result::Result::ok);
                let mut hear = |line: String| {
                    let (own, paid) = line.strip_prefix("paid ")?.strip_suffix(".")?.split_once(' ')?;
                    told[own.parse::<usize>().ok()?] = paid.parse().ok()?;
                    Some(())
                };
                let wanted = random.usize(1..200);
                let heard = said.by_ref().filter_map(&mut hear).take(wanted).count();
                assert_eq!(
                    heard, wanted,
                    "seed {seed}, kill {kill}: the child ended by itself"
                );
                std::thread::sleep(Duration::from_micros(random.u64(..3000)));
                child.kill().unwrap();
                // A line may be cut in its middle by the kill, at the end.
                let rest: Vec<String> = said.collect();
                child.wait().unwrap();
                rest.into_iter().for_each(|line| {
                    hear(line);
                });
                let region = open(&path, case);
                let found = Bank::of(&region).check();
                for (found, told) in found.iter().zip(&mut told) {
                    assert!(
                        (*told..=*told + 1).contains(found),
                        "seed {seed}, {case}, kill {kill}: {told} payments were told of, {found} are there"
                    );
                    *told = *found;
                }
            }
        }
    }
}

fn start(path: &Path, case: SchemeKind) -> Child {
    again(module_path!(), "every_section_that_returned_is_there")
        .env(PATH, path)
        .env(CASE, case.name())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Pays until killed.
fn child(path: &Path, case: SchemeKind) {
    let region = open(path, case);
    let bank = Bank::of(&region);
    std::thread::scope(|scope| {
        for own in 0..THREADS {
            let bank = &bank;
            scope.spawn(move || {
                let mut random = fastrand::Rng::new();
                loop {
                    match bank.pay(own, &mut random) {
                        Ok(paid) => {
                            let mut out = std::io::stdout().lock();
                            writeln!(out, "paid {own} {paid}.").unwrap();
                            out.flush().unwrap();
                        }
                        Err(Error::Aborted) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
}
