use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn add(&mut self, text: &str) {
        self.value += text.len() as u64;
    }
}

fn main() {}
