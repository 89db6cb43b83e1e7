use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn add(&mut self, by: impl Into<u64>) {
        self.value += by.into();
    }
}

fn main() {}
