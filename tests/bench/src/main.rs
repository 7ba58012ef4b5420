//! ftb beside what people would use instead, measured in one run.
//!
//! Every system runs as processes of its own over real sockets; one load generator drives them all
//! in the same way, proves that nothing was lost or reordered, and measures rates, latencies and
//! what the servers use. Results go to the terminal, to JSON, and into `target/bench.md`.

mod case;
mod check;
mod cli;
mod heal;
mod histogram;
mod load;
mod machine;
mod message;
mod micro;
mod pace;
mod process;
mod report;
mod run;
mod server;
mod stats;
mod svg;
mod wire;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    match ftb_cli::parse::<cli::Arguments>().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ftb-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
