use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    hits: std::sync::atomic::AtomicU64,
    last: std::cell::Cell<u64>,
}

fn main() {}
