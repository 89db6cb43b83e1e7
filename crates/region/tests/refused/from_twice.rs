use twinpage::Persist;

#[derive(Persist)]
struct V1;

#[derive(Persist)]
#[persist(version = 2, from = V1, from = V1)]
struct V2;

fn main() {}
