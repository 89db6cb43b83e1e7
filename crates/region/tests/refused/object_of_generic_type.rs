use twinpage::Persist;

#[derive(Persist)]
struct Counter<T> {
    value: T,
}

#[twinpage::object]
impl<T> Counter<T> {
    pub fn value(&self) -> u64 {
        0
    }
}

fn main() {}
