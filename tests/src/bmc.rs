//! A simulated BMC: `ipmi_sim` of Debian's package `openipmi`, with the sensors of the thesis'
//! tables 3.1 to 3.4, a tachometer that counts periods, and a power supply.
//!
//! It offers RMCP+ (cipher suite 3) and IPMI 1.5 on loopback, has an event log, and reads its
//! values from files. [`SimulatedBmc::set`] changes a value, [`SimulatedBmc::pause`] makes it hang,
//! [`SimulatedBmc::kill`] and [`SimulatedBmc::restart`] end and start it. Dropping it ends the
//! process.

mod analog;
mod board;
mod files;

pub use board::{EVENT_ONLY, Names, ODD_SENSORS, SATELLITE, SENSORS, Setup};

use nix::sys::socket::{setsockopt, sockopt};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// User of the simulated BMC.
pub const USER: &str = "ftb";
/// Password of [`USER`].
pub const PASSWORD: &str = "secret";

/// Longest wait for the start, or for an answer on the console. Only failing tests reach it.
const DEADLINE: Duration = Duration::from_secs(180);
/// How many sets of ports are tried, because another process may take a port in between.
const START_ATTEMPTS: u32 = 5;

/// Ports of one BMC.
#[derive(Clone, Copy)]
struct Ports {
    /// Last byte of the address, 127.0.0.x.
    host: u8,
    lan: u16,
    console: u16,
    machine: u16,
}

/// Writes a file that only its owner reads, as ftb-ipmi demands of one with a password.
///
/// # Errors
/// The file cannot be written.
pub fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())
}

/// Reserves a UDP port for one simulator, also while that is dead. Without it, two simulators could
/// share the port without an error, and the older one would receive nothing.
struct Reserved(UdpSocket);

impl Reserved {
    fn new(address: (Ipv4Addr, u16)) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        // After the bind, which fails for a used port: share it with the simulator.
        setsockopt(&socket, sockopt::ReuseAddr, &true)?;
        // Connected to itself: for others, the port of a dead simulator is closed.
        socket.connect(socket.local_addr()?)?;
        Ok(Self(socket))
    }
}

impl Ports {
    /// Free ports. The LAN port stays reserved.
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
    /// Starts a simulator and waits until it answers.
    ///
    /// # Errors
    /// `ipmi_sim` or `sdrcomp` is missing or does not start; the message has the output.
    pub fn start() -> io::Result<Self> {
        Self::start_with(Setup::default())
    }

    /// Starts a rack: `count` simulators at 127.0.0.`first` and following addresses, with the same
    /// UDP port.
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

    /// Starts a simulator with another board.
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

    /// Address of the LAN port.
    pub fn address(&self) -> String {
        format!("127.0.0.{}:{}", self.ports.host, self.ports.lan)
    }

    /// UDP port of the LAN.
    pub fn port(&self) -> u16 {
        self.ports.lan
    }

    /// TCP port for the serial line of a virtual machine (QEMU's `ipmi-bmc-extern`).
    pub fn machine_port(&self) -> u16 {
        self.ports.machine
    }

    /// Changes a value, by file name: RPM of fans (`cpu1_fan`), degrees of temperatures and margins
    /// (`p1_margin`), millivolts (`v12_aux`), states as bits (`dimm_a1`, `ps1`).
    ///
    /// # Errors
    /// No sensor has this file.
    pub fn set(&self, file: &str, value: i32) -> io::Result<()> {
        let path = self.dir.path().join("val").join(file);
        if !path.exists() {
            return Err(io::Error::other(format!("no sensor reads {file:?}")));
        }
        files::write_value(&path, value)
    }

    /// Runs a command on the console of the simulator and returns its output.
    ///
    /// # Errors
    /// The simulator is gone.
    pub fn console(&self, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.console))?;
        stream.set_read_timeout(Some(DEADLINE))?;
        read_to_prompt(&mut stream)?;
        stream.write_all(format!("{command}\n").as_bytes())?;
        read_to_prompt(&mut stream)
    }

    /// Makes the simulator hang: it answers nothing.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&self) -> io::Result<()> {
        self.signal("STOP")
    }

    /// Ends a hang. The simulator answers earlier requests late.
    ///
    /// # Errors
    /// The signal cannot be sent.
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

    /// Kills the simulator: its port is closed.
    ///
    /// # Errors
    /// The process cannot be killed.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Starts the simulator again after [`SimulatedBmc::kill`], on the same port. All sessions are
    /// gone; the event log remains.
    ///
    /// # Errors
    /// As [`SimulatedBmc::start`].
    pub fn restart(&mut self) -> io::Result<()> {
        self.child = spawn(self.dir.path())?;
        self.wait_until_up()
    }

    fn wait_until_up(&mut self) -> io::Result<()> {
        // Get Channel Authentication Capabilities: needs no login.
        const REQUEST: [u8; 23] = [
            0x06, 0x00, 0xFF, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x09, 0x20, 0x18, 0xC8, 0x81, 0x00,
            0x38, 0x8E, 0x04, 0xB5,
        ];
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket.set_read_timeout(Some(Duration::from_millis(50)))?;
        socket.connect(self.address())?;
        let deadline = Instant::now() + DEADLINE;
        let mut answer = [0; 128];
        while Instant::now() < deadline {
            if self.child.try_wait()?.is_some() {
                break;
            }
            let is_up = socket.send(&REQUEST).is_ok() && socket.recv(&mut answer).is_ok();
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
        // It may be killed already.
        let _ = self.kill();
    }
}

/// Reads the output of the console up to the next prompt.
fn read_to_prompt(stream: &mut TcpStream) -> io::Result<String> {
    let mut output = Vec::new();
    let mut byte = [0];
    while !output.ends_with(b"> ") {
        stream.read_exact(&mut byte)?;
        output.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&output).into_owned())
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
        // It ends when standard input is closed: keep a pipe open.
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
    fn a_port_belongs_to_one_simulator_even_while_that_is_dead() {
        let mut bmc = SimulatedBmc::start().unwrap();
        let taken = |port| match SimulatedBmc::try_start(Setup::default(), 1, Some(port)) {
            Ok(_) => panic!("two simulators share a port"),
            Err(error) => error.kind() == io::ErrorKind::AddrInUse,
        };
        assert!(taken(bmc.port()));
        bmc.kill().unwrap();
        assert!(taken(bmc.port()));
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.set_read_timeout(Some(DEADLINE)).unwrap();
        client.connect(bmc.address()).unwrap();
        client.send(b"hello").unwrap();
        let refused = client.recv(&mut [0; 8]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
        bmc.restart().unwrap();
    }
}
