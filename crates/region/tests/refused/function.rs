use twinpage::Persist;

#[derive(Persist)]
struct Task {
    run: fn(u64) -> u64,
}

fn main() {}
