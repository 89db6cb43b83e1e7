use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn touch(&mut self) {
        let now = std::time::SystemTime::now();
        self.value = now.elapsed().unwrap().as_secs();
    }
}

fn main() {}
