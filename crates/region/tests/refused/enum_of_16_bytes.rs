use twinpage::Persist;

#[derive(Persist)]
#[repr(u128)]
enum Side {
    Buy,
    Sell,
}

fn main() {}
