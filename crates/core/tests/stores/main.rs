//! Stores from outside: what each scheme promises, what it costs, and what it does with media that fail or are damaged.

mod cost;
mod damage;
mod dual_page;
mod engine;
mod failing;
mod format;
mod hints;
mod model;
mod operation_log;
mod packed;
mod packed_damage;
mod payloads;
mod unfenced;
