//! The command line of Cobalt.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    cobaltctl::Args::parse().run()
}
