use twinpage::Persist;

struct Inner(u64);

#[derive(Persist)]
struct Outer {
    inner: Inner,
}

fn main() {}
