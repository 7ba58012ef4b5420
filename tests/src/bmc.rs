//! A simulated BMC: `ipmi_sim` of Debian's package `openipmi`, with the sensors of the thesis'
//! tables 3.1 to 3.4 and a few that the tables lack (a tachometer that counts periods, a power
//! supply).
//!
//! It speaks RMCP+ (cipher suite 3) and IPMI 1.5 on loopback, keeps an event log, and takes its
//! values from files: [`SimulatedBmc::set`] changes one, [`SimulatedBmc::pause`] hangs it,
//! [`SimulatedBmc::kill`] and [`SimulatedBmc::restart`] make it die and come back. Everything ends
//! with the value.

mod board;
mod files;

pub use board::{Names, ODD_SENSORS, SATELLITE, SENSORS, Setup};

use nix::sys::socket::{setsockopt, sockopt};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// User of the simulated BMC.
pub const USER: &str = "ftb";
/// Its password.
pub const PASSWORD: &str = "secret";

/// How long it may take to start, or to answer on its console. Only a failing run waits so long: a machine may be slow.
const PATIENCE: Duration = Duration::from_secs(180);
/// How often another set of ports is tried when somebody else took one in between.
const START_ATTEMPTS: u32 = 5;

/// Ports of one BMC.
#[derive(Clone, Copy)]
struct Ports {
    /// Last byte of its address, 127.0.0.x.
    host: u8,
    lan: u16,
    console: u16,
    machine: u16,
}

/// Nobody else can take this UDP port, only a simulator beside this: two of them could share it, without an error, and the
/// elder would never hear anything again. Also while its own simulator is dead.
struct Reserved(UdpSocket);

impl Reserved {
    fn new(address: (Ipv4Addr, u16)) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        // Only now: it was nobody's, and from now on it is shared with who says the same, as the simulator does.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        // It is there for itself alone: to everybody else the port of a dead simulator is closed.
        socket.connect(socket.local_addr()?)?;
        Ok(Self(socket))
    }
}

impl Ports {
    /// Free ones, as far as one can know; that of the LAN stays so.
    fn find(host: u8, lan: Option<u16>) -> io::Result<(Self, Reserved)> {
        let reserved = Reserved::new((Ipv4Addr::new(127, 0, 0, host), lan.unwrap_or(0)))?;
        let console = TcpListener::bind("127.0.0.1:0")?;
        let machine = TcpListener::bind("127.0.0.1:0")?;
        let ports = Self {
            host,
            lan: reserved.0.local_addr()?.port(),
            console: console.local_addr()?.port(),
            machine: machine.local_addr()?.port(),
        };
        Ok((ports, reserved))
    }
}

/// A running simulator.
pub struct SimulatedBmc {
    dir: TempDir,
    ports: Ports,
    child: Child,
    _reserved: Reserved,
}

impl SimulatedBmc {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When `ipmi_sim` or `sdrcomp` are missing or do not start; the message has their output.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Setup::default())
    }

    /// Starts one for each address 127.0.0.`first` and following, all on the same UDP port: a rack,
    /// `127.0.0.[11-18]:PORT`.
    ///
    /// # Errors
    /// As [`SimulatedBmc::start`].
    pub fn start_rack(first: u8, count: u8) -> io::Result<Vec<Self>> {
        let mut rack = vec![Self::start_at(Setup::default(), first, None)?];
        let port = rack.first().map(Self::port);
        for host in (first..).take(count.into()).skip(1) {
            rack.push(Self::start_at(Setup::default(), host, port)?);
        }
        Ok(rack)
    }

    /// As [`SimulatedBmc::start`], another board.
    ///
    /// # Errors
    /// As [`SimulatedBmc::start`].
    pub fn start_with(setup: Setup) -> io::Result<Self> {
        Self::start_at(setup, 1, None)
    }

    fn start_at(setup: Setup, host: u8, port: Option<u16>) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Self::try_start(setup, host, port) {
                Ok(bmc) => return Ok(bmc),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(|| io::ErrorKind::TimedOut.into()))
    }

    fn try_start(setup: Setup, host: u8, port: Option<u16>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ftb-bmc-").tempdir()?;
        let dir = folder.path();
        let (ports, reserved) = Ports::find(host, port)?;
        files::write(dir, ports, setup)?;
        let state = dir.join("state/ipmi_sim/testbmc");
        fs::create_dir_all(&state)?;
        let mut compiler = Command::new("sdrcomp");
        if setup.names == Names::EightBit {
            compiler.arg("-8");
        }
        let output =
            compiler.arg("-o").arg(state.join("sdr.20.main")).arg(dir.join("bmc.sdrs")).output()?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(io::Error::other(format!("sdrcomp: {text}")));
        }
        let child = spawn(dir)?;
        let mut bmc = Self { dir: folder, ports, child, _reserved: reserved };
        bmc.wait_until_up()?;
        Ok(bmc)
    }

    /// Where it listens for RMCP.
    pub fn address(&self) -> String {
        format!("127.0.0.{}:{}", self.ports.host, self.ports.lan)
    }

    /// Its UDP port.
    pub fn port(&self) -> u16 {
        self.ports.lan
    }

    /// TCP port for the serial line of a virtual machine (QEMU's `ipmi-bmc-extern`).
    pub fn machine_port(&self) -> u16 {
        self.ports.machine
    }

    /// Changes a value, by the name of its file: RPM of fans (`cpu1_fan`), degrees of temperatures
    /// and margins (`p1_margin`), millivolts (`v12_aux`), states as bits (`dimm_a1`, `ps1`).
    ///
    /// # Errors
    /// For a name that no sensor has.
    pub fn set(&self, file: &str, value: i32) -> io::Result<()> {
        let path = self.dir.path().join("val").join(file);
        if !path.exists() {
            return Err(io::Error::other(format!("no sensor reads {file:?}")));
        }
        files::write_value(&path, value)
    }

    /// Gives a command to the simulator's console and returns when it is done, with what the
    /// console said.
    ///
    /// # Errors
    /// When the simulator is gone.
    pub fn console(&self, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.console))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        read_to_prompt(&mut stream)?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        read_to_prompt(&mut stream)
    }

    /// Makes it hang: it is there and answers nothing.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Ends a hang. What it was asked meanwhile it answers now, late.
    ///
    /// # Errors
    /// When the signal cannot be sent.
    pub fn resume(&self) -> io::Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, name: &str) -> io::Result<()> {
        let script = format!("kill -{name} {}", self.child.id());
        match Command::new("sh").arg("-c").arg(&script).status()? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("{script}: {status}"))),
        }
    }

    /// Kills it: its port is closed.
    ///
    /// # Errors
    /// When it cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts it again after [`SimulatedBmc::kill`], on the same port: all sessions are gone, the
    /// event log is as it was.
    ///
    /// # Errors
    /// As [`SimulatedBmc::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.child = spawn(self.dir.path())?;
        self.wait_until_up()
    }

    fn wait_until_up(&mut self) -> io::Result<()> {
        // Get Channel Authentication Capabilities: answered before any login.
        const QUESTION: [u8; 23] = [
            0x06, 0x00, 0xFF, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x09, 0x20, 0x18, 0xC8, 0x81, 0x00,
            0x38, 0x8E, 0x04, 0xB5,
        ];
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        socket.connect(self.address())?;
        let deadline = Instant::now() + PATIENCE;
        let mut answer = [0; 128];
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                break;
            }
            let is_up = socket.send(&QUESTION).is_ok() && socket.recv(&mut answer).is_ok();
            if is_up {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.dir.path().join("log")).unwrap_or_default();
        Err(io::Error::other(format!("ipmi_sim does not start: {log}")))
    }
}

impl Drop for SimulatedBmc {
    fn drop(&mut self) {
        // It may have been killed already; there is nothing to do then.
        let _ = self.kill();
    }
}

/// Reads what the console says until it waits for the next command.
fn read_to_prompt(stream: &mut TcpStream) -> io::Result<String> {
    let mut said = Vec::new();
    let mut byte = [0];
    while !said.ends_with(b"> ") {
        stream.read_exact(&mut byte)?;
        said.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn spawn(dir: &Path) -> io::Result<Child> {
    let log = File::create(dir.join("log"))?;
    Command::new("ipmi_sim")
        .arg("-c")
        .arg(dir.join("lan.conf"))
        .arg("-f")
        .arg(dir.join("bmc.emu"))
        .arg("-s")
        .arg(dir.join("state"))
        // It gives up when it cannot wait for input: a pipe that stays open is what it needs.
        .stdin(Stdio::piped())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .map_err(|error| {
            io::Error::new(error.kind(), format!("ipmi_sim (package openipmi): {error}"))
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_port_has_one_simulator_and_is_nobody_elses_while_that_is_dead() {
        let mut bmc = SimulatedBmc::start().unwrap();
        let taken = |port| match SimulatedBmc::try_start(Setup::default(), 1, Some(port)) {
            Ok(_) => panic!("two simulators share a port"),
            Err(error) => error.kind() == io::ErrorKind::AddrInUse,
        };
        assert!(taken(bmc.port()));
        bmc.kill().unwrap();
        assert!(taken(bmc.port()));
        let asker = UdpSocket::bind("127.0.0.1:0").unwrap();
        asker.set_read_timeout(Some(PATIENCE)).unwrap();
        asker.connect(bmc.address()).unwrap();
        asker.send(b"anybody?").unwrap();
        let refused = asker.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
        bmc.restart().unwrap();
    }
}
