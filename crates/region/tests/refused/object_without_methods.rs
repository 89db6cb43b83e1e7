use twinpage::objects::share;
use twinpage::{Persist, Region};

#[derive(Persist)]
struct Counter {
    value: u64,
}

fn main() {
    let region = Region::open("counter.twin").unwrap();
    let _ = region.object::<Counter>("counter", |_| Counter { value: 0 });
    let _ = share::<Counter>("counter.twin", "counter");
}
