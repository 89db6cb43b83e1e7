use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

pub struct Value(u64);

#[twinpage::object]
impl Counter {
    pub fn value(&self) -> Value {
        Value(self.value)
    }
}

fn main() {}
