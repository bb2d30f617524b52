//! Names of real programs, and invalid programs.

mod hostile;
mod mappings;
mod programs;
mod system;
mod target;
