use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    #[deferrable]
    pub fn add(&mut self, by: u64) -> u64 {
        self.value += by;
        self.value
    }
}

fn main() {}
