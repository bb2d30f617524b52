//! `pmuscope agent` in its own process, with requests over the loopback interface.

mod attributes;
mod configuration;
mod continuity;
mod json;
mod kills;
mod neighbours;
mod overhead;
mod process;
mod requests;
mod restart;
mod rights;
mod samples;
mod time;
mod top;
mod web;
