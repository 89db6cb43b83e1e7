use twinpage::Persist;

#[derive(Persist)]
union Bits {
    a: u32,
    b: f32,
}

fn main() {}
