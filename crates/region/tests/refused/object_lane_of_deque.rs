use twinpage::Persist;
use twinpage::collections::VecDeque;

#[derive(Persist)]
struct Counts<'r> {
    queue: VecDeque<'r, u64>,
}

#[twinpage::object]
impl<'r> Counts<'r> {
    #[lane(queue)]
    pub fn add(count: &mut u64, by: u64) {
        *count += by;
    }
}

fn main() {}
