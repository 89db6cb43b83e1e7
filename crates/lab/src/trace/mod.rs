//! Traces of real programs: formats in and out.
