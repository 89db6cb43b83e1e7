use twinpage::collections::Vec;
use twinpage::{Handle, Region};

fn later(bank: &Region, lists: &Handle<Vec<'static, Vec<'static, u64>>>) {
    let mut kept = None;
    let undone = bank.atomic(|section| -> twinpage::Result<()> {
        kept = lists.write(section).pop();
        Err(section.abort())
    });
    assert!(undone.is_err());
    println!("{}", kept.unwrap().len());
}

fn main() {}
