use std::marker::PhantomData;
use twinpage::Persist;
use twinpage::collections::Vec;

macro_rules! other {
    ('static) => { Vec<'static, u64> };
    ($brand:lifetime) => { PhantomData<&$brand u8> };
}

#[derive(Persist)]
#[repr(u8)]
enum Either<'r> {
    Words([u64; 5]),
    Nothing(other!('r)),
}

fn main() {}
