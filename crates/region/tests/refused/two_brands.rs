use twinpage::Persist;
use twinpage::collections::String;

#[derive(Persist)]
struct Pair<'a, 'b>(String<'a>, String<'b>);

fn main() {}
