use twinpage::Persist;

#[derive(Persist)]
struct Order {
    name: &'static str,
}

fn main() {}
