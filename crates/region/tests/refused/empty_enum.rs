use twinpage::Persist;

#[derive(Persist)]
enum Never {}

fn main() {}
