use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn sync(&mut self) {
        self.value = 0;
    }
}

fn main() {}
