//! Proof by crashing: a medium that records, and an explorer that stops a run everywhere.

mod image;

pub use image::Image;
