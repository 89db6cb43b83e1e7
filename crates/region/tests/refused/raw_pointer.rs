use twinpage::Persist;

#[derive(Persist)]
struct Node {
    next: *mut u64,
}

fn main() {}
