//! `ftb-agent`: the daemon of one node.

#![forbid(unsafe_code)]

use ftb_agent::process::{self, Args};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = ftb_cli::parse::<Args>();
    let config = match process::read_config(&args) {
        Ok(config) => config,
        Err(error) => return process::refuse(&error),
    };
    if args.check_config {
        return process::describe(&args, &config);
    }
    if let Err(error) = process::check_folder(&args, &config) {
        return process::refuse(&error);
    }
    process::raise_file_limit();
    match process::serve(&args, config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => process::fail(&error),
    }
}
