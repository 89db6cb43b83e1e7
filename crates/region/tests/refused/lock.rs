use twinpage::Persist;

#[derive(Persist)]
struct Account {
    balance: std::sync::Mutex<u64>,
}

fn main() {}
