//! `cargo xtask VERB`: sets up, builds, runs, tests and checks pmuscope.
//!
//! Each verb is a module. Every verb that needs tools calls [`setup`] itself, so a clean clone
//! needs no earlier step.

mod bench;

mod binaries;
mod build;
mod check;
mod ci;
mod debian;
mod demo;
mod deploy;
mod deps;
mod dist;
mod docs;
mod foreign_containers;
mod fresh;
mod layers;
mod mutants;
mod paths;
mod picture;
mod run;
mod setup;
mod sh;
mod soak;
mod stages;
mod test;
mod tools;
mod vm;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Set up, build, run, test and check pmuscope"
)]
struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Install what the build needs: rust-src, the musl targets, bpf-linker
    Setup,
    /// Build the eBPF object and the pmuscope binary
    Build(build::Args),
    /// Build pmuscope and run it (through sudo where this user is not root)
    Run(run::Args),
    /// Show a recorded node with NVIDIA Grace in `pmuscope top`, on any machine
    Demo,
    /// Draw docs/picture.svg of what pmuscope shows of that recording
    Picture,
    /// Run every test this machine can run
    Test(test::Args),
    /// Boot other kernels and arm64 under QEMU and run the guest tests
    Vm(vm::Args),
    /// Run both README commands in a new minimal Debian, as on a machine that has nothing yet
    Fresh,
    /// Formatting, lints, documentation and dependencies
    Check,
    /// What CI runs: check, then every test, and a table of the stages
    Ci,
    /// Write the generated pages of docs/reference, the manual and the completions
    Docs,
    /// Run the benchmarks and print their tables
    Bench(bench::Args),
    /// Run an agent for ten minutes among 1,000 containers; 200 more start and end each second
    Soak(soak::Args),
    /// Test what is in deploy/: chart, rules, dashboards, unit
    Deploy(deploy::Args),
    /// Build the release in target/packages: static binaries, chart, image, packages
    Dist(dist::Args),
    /// Change the sources in small ways, and list the changes that no test notices
    Mutants(mutants::Args),
}

fn main() {
    let result = match Args::parse().verb {
        Verb::Setup => setup::run(),
        Verb::Build(args) => build::run(&args).map(drop),
        Verb::Run(args) => run::run(&args),
        Verb::Demo => demo::run(),
        Verb::Picture => picture::run(),
        Verb::Test(args) => test::run(&args),
        Verb::Vm(args) => vm::run(&args),
        Verb::Fresh => fresh::run(),
        Verb::Check => check::run(),
        Verb::Ci => ci::run(),
        Verb::Docs => docs::run(),
        Verb::Bench(args) => bench::run(&args),
        Verb::Soak(args) => soak::run(&args),
        Verb::Deploy(args) => deploy::run(&args),
        Verb::Dist(args) => dist::run(&args),
        Verb::Mutants(args) => mutants::run(&args),
    };
    if let Err(error) = result {
        eprintln!("xtask: {error:#}");
        std::process::exit(1);
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    /// Otherwise clap checks the declaration of a verb only when that verb runs.
    #[test]
    fn the_declarations_of_all_verbs_are_valid() {
        super::Args::command().debug_assert();
    }
}
