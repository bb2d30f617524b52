//! Names addresses of real programs, and reads invalid programs.

mod hostile;
mod mappings;
mod programs;
mod system;
mod target;
