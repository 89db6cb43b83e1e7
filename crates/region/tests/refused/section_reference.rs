use twinpage::collections::HashMap;
use twinpage::{Error, Handle, Region};

fn later(bank: &Region, accounts: &Handle<HashMap<'static, u64, u64>>) {
    let amount = bank.atomic(|section| Ok::<_, Error>(accounts.write(section).get_mut(&7).unwrap()));
    *amount.unwrap() = 3;
}

fn main() {}
