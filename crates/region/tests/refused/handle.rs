use twinpage::Persist;

#[derive(Persist)]
struct Log {
    file: std::fs::File,
}

fn main() {}
