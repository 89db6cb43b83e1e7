use twinpage::Persist;

#[derive(Persist)]
struct Order<'a> {
    name: &'a str,
}

fn main() {}
