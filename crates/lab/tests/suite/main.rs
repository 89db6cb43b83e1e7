//! The lab, tried from outside; one program, so that what its tests share is compiled once and they run side by side.
//!
//! - `memory`, `bus`, `machine`, `overlays`: what is simulated, its times and its counts;
//! - `plain`: a memory does what a plain model of Ramulator's controller does;
//! - `crashes`: every workload with every scheme loses its power, and a checkpoint is recovered;
//! - `workloads`, `maps`, `real_programs`, `traces`, `record`: what the machine runs;
//! - `sections`, `section_programs`, `section_power`: failure-atomic sections (SSP);
//! - `objects`, `object_library`, `object_pool`, `object_programs`: persistent objects (SIMPO);
//! - `eval`, `eval_ssp`, `objects_eval`: the papers' evaluations, small;
//! - `glossary`: every number that is said is explained.

mod bus;
mod crashes;
mod eval;
mod eval_ssp;
mod glossary;
mod machine;
mod maps;
mod memory;
mod object_library;
mod object_pool;
mod object_programs;
mod objects;
mod objects_eval;
mod overlays;
mod plain;
mod real_programs;
mod record;
mod section_power;
mod section_programs;
mod sections;
mod traces;
mod workloads;
