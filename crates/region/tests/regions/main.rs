//! A region and what lives in it: found again, told apart, checked, and no larger than it need be.

mod beside;
mod bytes;
mod check;
mod derive;
mod documented;
mod growth;
mod heap;
mod identity;
mod lent;
mod like_std;
mod roots;
#[cfg(feature = "serde")]
mod serialize;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod unprivileged;
mod waiting;
