use twinpage::Persist;

#[derive(Persist)]
struct Event(std::time::Instant);

fn main() {}
