use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn take(self) -> u64 {
        self.value
    }
}

fn main() {}
