use twinpage::collections::{HashMap, Vec};
use twinpage::{Region, Root};

fn taken(region: &Region, mut lists: Root<HashMap<'static, u64, Vec<'static, u64>>>) {
    let rest = region.update(|u| lists.get_mut(u).remove(&7).unwrap().into_iter());
    drop(rest);
}

fn main() {}
