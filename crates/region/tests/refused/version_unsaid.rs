use twinpage::Persist;

#[derive(Persist)]
struct V1;

#[derive(Persist)]
#[persist(from = V1)]
struct V2;

fn main() {}
