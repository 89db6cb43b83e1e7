use twinpage::Persist;

#[derive(Persist)]
struct Search {
    within: std::ops::Range<u64>,
    found: Result<u64, u8>,
    side: std::cmp::Ordering,
    asked_by: std::net::IpAddr,
    rest: std::mem::MaybeUninit<u64>,
    next: std::sync::atomic::AtomicPtr<u64>,
    compare: fn(u8, u8, u8, u8) -> bool,
    waiting: std::collections::BinaryHeap<u64>,
}

fn main() {}
