//! Bodies that touch something outside of the object.

use std::time::{Instant, SystemTime};
use std::{env, fs, process as programs, thread};
use std::io::{self, Write as _};
use elsewhere::{GLOBAL, helper};

static COUNT: AtomicU64 = AtomicU64::new(0);
static NAMES: [&str; 2] = ["a", "b"];
static mut RAW: u32 = 0;

thread_local! {
    static MINE: u64 = 1;
}

lazy_static! {
    static ref LAZY: u64 = 2;
}

type Map = std::collections::HashMap<u64, u64>;
type Shared = Inner;
type Inner = std::cell::RefCell<u64>;
type Pair<T> = (T, u64);

const CLOCK: fn() -> u64 = now_ms;
const ALL: [&dyn Fn() -> u64; 1] = [&now_ms];

fn now_ms() -> u64 {
    7
}

struct Log {
    lines: Vec<String>,
    value: u64,
    shared_by_alias: Shared,
    pair: Pair<u64>,
}

impl Log {
    //~ instant: `COUNT` is a static
    fn counted(&mut self) {
        self.value = COUNT.into();
    }

    //~ instant: `NAMES` is a static
    fn named(&mut self) {
        self.lines.push(NAMES[0].to_string());
    }

    //~ instant: `crate::outside::COUNT` is a static
    fn by_path(&mut self) {
        self.value = crate::outside::COUNT.into();
    }

    //~ instant: `MINE` is a static
    fn of_the_thread(&mut self) {
        self.value = MINE.into();
    }

    //~ instant: `LAZY` is a static
    fn lazy(&mut self) {
        self.value = *LAZY;
    }

    //~ instant: `COUNT` is a static
    fn captured(&mut self) {
        self.lines.push(format!("so far {COUNT}"));
    }

    //~ deferrable
    fn not_captured(&mut self) {
        self.lines.push(format!("so far {{COUNT}}"));
    }

    //~ instant: talks to the network
    fn resolved(&mut self) {
        let _ = std::net::lookup("a");
    }

    //~ instant: asks for the time
    fn waited(&mut self) {
        std::time::wait();
    }

    //~ instant: `unsafe` code
    fn raw(&mut self) {
        self.value = unsafe { RAW }.into();
    }

    //~ instant: `GLOBAL` may be a static
    fn imported(&mut self) {
        self.value = GLOBAL;
    }

    //~ instant: the source of `helper` is not given
    fn helped(&mut self) {
        self.value = helper(self.value);
    }

    //~ instant: writes to the program's output
    fn printed(&mut self) {
        println!("{}", self.value);
    }

    //~ instant: writes to the program's output
    fn debugged(&mut self) {
        self.value = dbg!(self.value + 1);
    }

    //~ instant: writes to the program's output
    fn to_error(&mut self) {
        std::eprintln!("{}", self.value);
    }

    //~ instant: reads or writes files
    fn stored(&mut self) {
        fs::write("log", &self.lines[0]).unwrap();
    }

    //~ instant: reads or writes files
    fn stored_by_path(&mut self) {
        let _ = ::std::fs::remove_file("log");
    }

    //~ instant: does input or output
    fn asked(&mut self) {
        let mut line = String::new();
        io::stdin().read_line(&mut line).unwrap();
        self.lines.push(line);
    }

    //~ instant: `std::net::TcpStream::connect` is a connection
    fn sent(&mut self) {
        let _ = std::net::TcpStream::connect("a:1");
    }

    //~ instant: asks for the environment
    fn environment(&mut self) {
        self.lines.extend(env::args());
    }

    //~ instant: starts or ends processes
    fn ended(&mut self) {
        programs::exit(1);
    }

    //~ instant: is a time of a clock
    fn timed(&mut self) {
        let begun = Instant::now();
        self.value = begun.elapsed().as_secs();
    }

    //~ instant: is a time of a clock
    fn dated(&mut self) {
        self.value = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    }

    //~ instant: is a time of a clock
    fn dated_by_path(&mut self) {
        let _ = std::time::SystemTime::now();
    }

    //~ instant: uses threads
    fn threaded(&mut self) {
        thread::spawn(|| {});
    }

    //~ instant: uses threads
    fn slept(&mut self) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    //~ instant: the source of `rand::random` is not given
    fn random(&mut self) {
        self.value = rand::random();
    }

    //~ instant: is random
    fn keyed(&mut self) {
        let _ = std::hash::RandomState::new();
    }

    //~ instant: another order of its entries
    fn unordered(&mut self) {
        let map: std::collections::HashMap<u64, u64> = Default::default();
        self.value = map.len() as u64;
    }

    //~ instant: uses raw memory
    fn allocated(&mut self) {
        let _ = std::alloc::Layout::new::<u64>();
    }

    //~ instant: an address may be another
    fn addressed(&mut self) {
        self.value = &self.value as *const u64 as u64;
    }

    //~ instant: the source of `.as_ptr()` is not given
    fn pointed(&mut self) {
        self.value = self.lines.as_ptr().addr() as u64;
    }

    //~ instant: the source of `std::any::type_name` is not given
    fn typed(&mut self) {
        self.lines.push(std::any::type_name::<u64>().to_string());
    }

    //~ instant: the source of `LIMIT` is not given | may be a static
    fn limited(&mut self) {
        self.value = self.value.min(settings::LIMIT);
    }

    //~ instant: `Map` is another name of a type, and `std::collections::HashMap` has another order
    fn in_another_order(&mut self) {
        let mut map = Map::default();
        map.insert(self.value, 1);
        for (key, _) in &map {
            self.value = *key;
        }
    }

    //~ instant: `Map` is another name
    fn made_as_an_alias(&mut self) {
        let map: Map = Default::default();
        self.value = map.len() as u64;
    }

    //~ instant: the field `shared_by_alias`: `Shared` is another name of a type, and `Inner` is another name
    fn behind_an_alias(&mut self) {
        self.value = *self.shared_by_alias.borrow();
    }

    //~ deferrable
    fn of_an_alias(&mut self) {
        let pair: Pair<u64> = (1, 2);
        self.pair = pair;
    }

    //~ instant: `CLOCK` is a function that a constant holds
    fn by_a_constant(&mut self) {
        self.value = CLOCK();
    }

    //~ instant: `CLOCK` is a function that a constant holds
    fn by_a_constant_in_an_iterator(&mut self) {
        self.value = Some(1).map_or_else(CLOCK, |one| one);
    }

    //~ instant: `ALL` is a function that a constant holds
    fn by_an_element_of_a_constant(&mut self) {
        self.value = ALL.iter().map(|clock| clock()).sum();
    }

    const TICK: fn() -> u64 = now_ms;

    //~ instant: `Self::TICK` is a function that a constant holds
    fn by_an_own_constant(&mut self) {
        self.value = Self::TICK();
    }
}
