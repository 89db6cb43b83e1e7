use twinpage::Persist;

#[derive(Persist)]
struct Counter {
    value: u64,
}

#[twinpage::object]
impl Counter {
    #[lane(rows)]
    pub fn add(row: u64, by: u64) {
        let _ = row + by;
    }
}

fn main() {}
