use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    pub fn add(&mut self, by: u64) {
        self.value += by;
        tell(by);
        self.log();
    }
    fn log(&self) {
        println!("{}", self.value);
    }
}

fn tell(_: u64) {}

fn main() {}
