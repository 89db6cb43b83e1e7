use twinpage::Persist;

type Shared = std::sync::Arc<u64>;

#[derive(Persist)]
struct Order {
    a: std::rc::Rc<u64>,
    b: Shared,
}

fn main() {}
