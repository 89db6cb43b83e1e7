use twinpage::collections::Vec;
use twinpage::{Region, Root};

fn kept(region: &Region, word: &str, mut words: Root<Vec<'static, &'static str>>) {
    region.update(|u| words.get_mut(u).push(word));
}

fn main() {}
