use twinpage::Region;
use twinpage::collections::Vec;

fn kept(region: &Region) {
    let heap = region.update(|u| u.heap());
    drop(Vec::<u64>::with_capacity_in(10, heap));
}

fn main() {}
