use twinpage::Persist;

#[derive(Persist)]
enum Shape {
    Circle(f64),
    Square { side: f64 },
}

fn main() {}
