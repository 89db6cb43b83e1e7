use twinpage::Region;
use twinpage::collections::Vec;

fn leaked(region: &Region) {
    let numbers = Box::leak(Box::new(region.root::<Vec<u64>>("numbers").unwrap()));
    let first: &'static mut u64 = region.update(|u| &mut numbers.get_mut(u)[0]);
    *first = 7;
}

fn main() {}
