use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn value(&self) -> u64 {
        self.value
    }
    #[deferrable]
    pub fn new() -> Counter {
        Counter { value: 0 }
    }
}

fn main() {}
