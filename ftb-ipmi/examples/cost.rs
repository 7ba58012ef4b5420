//! Cost of watching: `ftb-ipmi` polls twelve sensors of a simulated BMC once per second over RMCP+.
//! Prints its processor time and wake-ups.
//!
//! `cargo build --release -p ftb-ipmi --bins --examples && target/release/examples/cost [SECONDS]`

use ftb_tests::bmc::{self, PASSWORD, SimulatedBmc, USER};
use nix::time::ClockId;
use nix::unistd::Pid;
use std::error::Error;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ignored sensors, so that twelve remain.
const IGNORED: [&str; 5] = ["BB +1*", "BB +5*", "BB 0*", "DIMM *", "Mem*"];

/// Resource usage of a process.
struct Usage {
    cpu_ns: u64,
    wakeups: u64,
}

impl Usage {
    fn of(process: u32) -> Result<Self, Box<dyn Error>> {
        let pid = Pid::from_raw(process.try_into()?);
        let time = ClockId::pid_cpu_clock_id(pid)?.now()?;
        let cpu_ns = u64::try_from(Duration::from(time).as_nanos())?;
        let mut usage = Self { cpu_ns, wakeups: 0 };
        for thread in fs::read_dir(format!("/proc/{process}/task"))? {
            let status = fs::read_to_string(thread?.path().join("status"))?;
            let voluntary =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            usage.wakeups += voluntary.ok_or("no wake-ups")?.trim().parse::<u64>()?;
        }
        Ok(usage)
    }
}

fn start(bmc: &SimulatedBmc, folder: &std::path::Path) -> Result<Child, Box<dyn Error>> {
    let mut text = format!(
        "interval = '1s'\nsel_interval = '10s'\n[[target]]\nbmc = '{}'\nnode = 'node001'\n\
         user = '{USER}'\npassword = '{PASSWORD}'\ncipher_suite = 3\n",
        bmc.address()
    );
    for name in IGNORED {
        text.push_str(&format!("[[rule]]\nname = '{name}'\nignore = true\n"));
    }
    let config = folder.join("ipmi.toml");
    bmc::write_private(&config, &text)?;
    let daemon = std::env::current_exe()?.with_file_name("../ftb-ipmi");
    let mut command = Command::new(daemon);
    command.arg("--config").arg(config).arg("--print").stdout(Stdio::null());
    Ok(command.spawn()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let seconds: u32 = std::env::args().nth(1).as_deref().unwrap_or("60").parse()?;
    let folder = tempfile::tempdir()?;
    let bmc = SimulatedBmc::start()?;
    let mut daemon = start(&bmc, folder.path())?;
    // Do not measure login and reading of the records.
    std::thread::sleep(Duration::from_secs(3));
    let before = Usage::of(daemon.id())?;
    std::thread::sleep(Duration::from_secs(seconds.into()));
    let after = Usage::of(daemon.id());
    daemon.kill()?;
    daemon.wait()?;
    let after = after?;
    let seconds = f64::from(seconds);
    #[expect(clippy::cast_precision_loss, reason = "shown with few digits")]
    let per_second = |count: u64| count as f64 / seconds;
    println!("processor time: {:.4} % of a core", per_second(after.cpu_ns - before.cpu_ns) / 1e7);
    println!("wake-ups: {:.1} per second", per_second(after.wakeups - before.wakeups));
    Ok(())
}
