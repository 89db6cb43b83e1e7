use twinpage::collections::HashMap;
use twinpage::{Handle, Region};

fn later(bank: &Region, accounts: &Handle<HashMap<'static, u64, u64>>) {
    let amount = bank.atomic(|section| twinpage::Result::Ok(accounts.write(section).get_mut(&7).unwrap()));
    *amount.unwrap() = 3;
}

fn main() {}
