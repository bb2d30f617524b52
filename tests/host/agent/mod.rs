//! `pmuscope agent` in its own process, with requests over the loopback interface.

mod attributes;
mod collector;
mod configuration;
mod continuity;
mod harness;
mod json;
mod kills;
mod overhead;
mod process;
mod requests;
mod restart;
mod rights;
mod samples;
mod time;
mod top;
mod web;

pub(crate) use self::harness::{
    Agent, AgentOptions, Answer, Series, assert_no_step_back, container_id, find, own, parse,
};
