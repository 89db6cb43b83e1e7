use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object(log)]
impl Counter {
    pub fn value(&self) -> u64 {
        self.value
    }
}

fn main() {}
