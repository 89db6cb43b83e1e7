use twinpage::Persist;

#[derive(Persist)]
struct Customer {
    name: String,
    orders: Vec<u64>,
    best: Option<Box<u64>>,
}

fn main() {}
