//! Real programs, named; and what is no program.

mod hostile;
mod mappings;
mod programs;
mod system;
mod target;
