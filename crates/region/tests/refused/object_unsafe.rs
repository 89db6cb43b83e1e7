use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub unsafe fn add(&mut self, by: u64) {
        self.value += by;
    }
}

fn main() {}
