use twinpage::collections::HashMap;
use twinpage::{Region, Root};

fn later(region: &Region, mut orders: Root<HashMap<'static, u64, u64>>) {
    let amount = region.update(|u| orders.get_mut(u).get_mut(&7).unwrap());
    *amount = 3;
}

fn main() {}
