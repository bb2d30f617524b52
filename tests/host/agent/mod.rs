//! `pmuscope agent`: a process of its own, asked over the loopback.

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
    Agent, Answer, Given, Series, assert_no_step_back, container_id, find, own, parse,
};
