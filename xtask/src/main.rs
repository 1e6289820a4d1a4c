//! The one entry point of the project: `cargo xtask <verb>`, for people and for CI alike.
//!
//! `cargo xtask --help` lists the verbs, `cargo xtask <verb> --help` explains one.
// A program for the terminal prints.
#![allow(clippy::print_stdout)]

mod bench;
mod ci;
mod cli;
mod needs;
mod policy;
mod process;
mod python;
mod report;
mod rig;
mod snapshots;
mod test;
mod tools;
mod workspace;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Verb};

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Test(arguments) => test::run(&arguments),
        Verb::Ci => ci::run(),
        Verb::Rig(arguments) => rig::run(&arguments),
        Verb::Bench(arguments) => bench::run(&arguments),
        Verb::Snapshots(arguments) => snapshots::run(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
