//! What the dual page is measured against: the schemes of DPC 5.1.2, on the same road.

pub mod in_place;

pub use in_place::InPlace;
