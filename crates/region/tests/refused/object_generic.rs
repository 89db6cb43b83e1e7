use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn add<T: Into<u64>>(&mut self, by: T) {
        self.value += by.into();
    }
}

fn main() {}
