use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Default for Counter {
    fn default() -> Counter {
        Counter { value: 0 }
    }
}

fn main() {}
