use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn values(&self) -> impl Iterator<Item = u64> {
        [self.value].into_iter()
    }
}

fn main() {}
