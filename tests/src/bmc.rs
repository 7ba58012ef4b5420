//! A simulated BMC: `ipmi_sim` of Debian's package `openipmi`, with the sensors of the thesis'
//! tables 3.1 to 3.4 and a few that the tables lack (a tachometer that counts periods, a power
//! supply).
//!
//! It speaks RMCP+ (cipher suite 3) and IPMI 1.5 on loopback, keeps an event log, and takes its
//! values from files: [`SimulatedBmc::set`] changes one, [`SimulatedBmc::pause`] hangs it,
//! [`SimulatedBmc::kill`] and [`SimulatedBmc::restart`] make it die and come back. Everything ends
//! with the value.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// User of the simulated BMC.
pub const USER: &str = "ftb";
/// Its password.
pub const PASSWORD: &str = "secret";

/// How long it may take to start.
const START_DEADLINE: Duration = Duration::from_secs(20);
/// How often another set of ports is tried when somebody else took one in between.
const START_ATTEMPTS: u32 = 5;
/// How often the simulator looks at the files of its values.
const FILE_POLL_MS: u32 = 100;

/// A sensor with a value.
struct Analog {
    number: u8,
    name: &'static str,
    /// Name of its value's file.
    file: &'static str,
    /// What the file holds at the start, in the unit of the file.
    start: i32,
    kind: Kind,
    entity: &'static str,
    instance: u8,
    /// Raw readings are the file's value divided by this.
    step: i32,
    /// Lower critical, lower non-critical, upper non-critical, upper critical, in the file's unit.
    thresholds: [Option<i32>; 4],
}

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    /// RPM; the file holds RPM.
    Fan,
    /// RPM from the period; the file holds the period in hundred-thousandths of a minute.
    Tachometer,
    /// Degrees.
    Temperature,
    /// Degrees, as two's complement.
    Margin,
    /// Degrees, as an unsigned byte 128 below.
    OffsetMargin,
    /// Volts; the file holds millivolts.
    Voltage,
}

const fn volts(
    number: u8,
    name: &'static str,
    file: &'static str,
    start: i32,
    step: i32,
) -> Analog {
    // Critical five percent off, non-critical three.
    let (low, high) = (start * 90 / 100, start * 110 / 100);
    let (low_warning, high_warning) = (start * 93 / 100, start * 107 / 100);
    Analog {
        number,
        name,
        file,
        start,
        kind: Kind::Voltage,
        entity: "system_board",
        instance: 1,
        step,
        thresholds: [Some(low), Some(low_warning), Some(high_warning), Some(high)],
    }
}

const fn fan(
    number: u8,
    name: &'static str,
    file: &'static str,
    start: i32,
    instance: u8,
    step: i32,
) -> Analog {
    Analog {
        number,
        name,
        file,
        start,
        kind: Kind::Fan,
        entity: "fan_cooling_device",
        instance,
        step,
        thresholds: [Some(step * 10), Some(step * 16), None, None],
    }
}

const ANALOG: [Analog; 19] = [
    volts(0x10, "BB +1.2V Vtt", "v1_2_vtt", 1200, 6),
    volts(0x12, "BB +1.5V AUX", "v1_5_aux", 1488, 8),
    volts(0x13, "BB +1.5V", "v1_5", 1470, 7),
    volts(0x14, "BB +1.8V", "v1_8", 1800, 10),
    volts(0x15, "BB +3.3V", "v3_3", 3366, 17),
    volts(0x16, "BB +3.3V STB", "v3_3_stb", 3320, 20),
    volts(0x17, "BB +1.5V ESB", "v1_5_esb", 1480, 8),
    volts(0x18, "BB +5V", "v5", 5070, 26),
    volts(0x1A, "BB +12V AUX", "v12_aux", 12033, 63),
    volts(0x1B, "BB 0.9V", "v0_9", 900, 5),
    Analog {
        number: 0x30,
        name: "Baseboard Temp",
        file: "baseboard_temp",
        start: 29,
        kind: Kind::Temperature,
        entity: "system_board",
        instance: 1,
        step: 1,
        thresholds: [None, None, Some(55), Some(60)],
    },
    Analog {
        number: 0x99,
        name: "P1 Therm Margin",
        file: "p1_margin",
        start: -40,
        kind: Kind::Margin,
        entity: "processor",
        instance: 1,
        step: 1,
        thresholds: [None; 4],
    },
    Analog {
        number: 0x9B,
        name: "P2 Therm Margin",
        file: "p2_margin",
        start: -41,
        kind: Kind::OffsetMargin,
        entity: "processor",
        instance: 2,
        step: 1,
        thresholds: [None, None, Some(-10), Some(-5)],
    },
    fan(0x50, "CPU 1 FAN", "cpu1_fan", 2244, 1, 66),
    fan(0x51, "CPU 2 FAN", "cpu2_fan", 2046, 3, 66),
    fan(0x53, "SYS FAN 2 TACH", "sys_fan2", 17850, 9, 75),
    fan(0x54, "SYS FAN 3 TACH", "sys_fan3", 4200, 4, 75),
    fan(0x55, "SYS FAN 4 TACH", "sys_fan4", 4270, 2, 61),
    Analog {
        number: 0x56,
        name: "SYS FAN 5 TACH",
        file: "sys_fan5_period",
        start: 25,
        kind: Kind::Tachometer,
        entity: "fan_cooling_device",
        instance: 5,
        step: 1,
        // The period grows when the fan slows: 133 is 752 RPM, 83 is 1205 RPM.
        thresholds: [None, None, Some(83), Some(133)],
    },
];

/// A sensor with states: number, name, file, states at the start, type, entity, instance.
type Discrete = (u8, &'static str, &'static str, u16, u8, &'static str, u8);

/// Presence of a memory module (state 6) and of a power supply (state 0).
const DIMM: u16 = 1 << 6;

const DISCRETE: [Discrete; 13] = [
    (0xC0, "PS1 Status", "ps1", 1, 0x08, "power_supply", 1),
    (0xE0, "DIMM A1", "dimm_a1", DIMM, 0x0C, "memory_device", 1),
    (0xE1, "DIMM A2", "dimm_a2", 0, 0x0C, "memory_device", 2),
    (0xE2, "DIMM B1", "dimm_b1", DIMM, 0x0C, "memory_device", 3),
    (0xE3, "DIMM B2", "dimm_b2", 0, 0x0C, "memory_device", 4),
    (0xE4, "DIMM C1", "dimm_c1", DIMM, 0x0C, "memory_device", 5),
    (0xE5, "DIMM C2", "dimm_c2", 0, 0x0C, "memory_device", 6),
    (0xE6, "DIMM D1", "dimm_d1", DIMM, 0x0C, "memory_device", 7),
    (0xE7, "DIMM D2", "dimm_d2", 0, 0x0C, "memory_device", 8),
    (0xEC, "MemA Error", "mem_a_error", 0, 0x0C, "system_board", 1),
    (0xED, "MemB Error", "mem_b_error", 0, 0x0C, "system_board", 2),
    (0xEE, "MemC Error", "mem_c_error", 0, 0x0C, "system_board", 3),
    (0xEF, "MemD Error", "mem_d_error", 0, 0x0C, "system_board", 4),
];

/// Slave address of the controller behind the BMC, with [`Setup::satellite`].
pub const SATELLITE: u8 = 0x2C;

/// Its sensor.
const REAR_FAN: Analog = fan(0x01, "REAR FAN", "rear_fan", 3300, 10, 66);

/// How many sensors of the BMC itself can be polled.
pub const SENSORS: usize = ANALOG.len() + DISCRETE.len();

/// Ports of one BMC.
#[derive(Clone, Copy)]
struct Ports {
    /// Last byte of its address, 127.0.0.x.
    host: u8,
    lan: u16,
    console: u16,
    machine: u16,
}

impl Ports {
    /// Free ones, as far as one can know.
    fn find() -> io::Result<Self> {
        let lan = UdpSocket::bind("127.0.0.1:0")?;
        let console = TcpListener::bind("127.0.0.1:0")?;
        let machine = TcpListener::bind("127.0.0.1:0")?;
        Ok(Self {
            host: 1,
            lan: lan.local_addr()?.port(),
            console: console.local_addr()?.port(),
            machine: machine.local_addr()?.port(),
        })
    }
}

/// What kind of board it is.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How the names of sensors are encoded in their records.
    pub names: Names,
    /// By which of `none`, `md2`, `md5`, `straight` sessions of IPMI 1.5 may be authenticated.
    pub auths: &'static str,
    /// Whether a controller behind the BMC has a fan of its own, `rear_fan`.
    pub satellite: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self { names: Names::EightBit, auths: "none md2 md5 straight", satellite: false }
    }
}

/// A running simulator.
pub struct SimulatedBmc {
    dir: PathBuf,
    ports: Ports,
    child: Child,
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
        let dir = unique_dir()?;
        let found = Ports::find()?;
        let ports = Ports { host, lan: port.unwrap_or(found.lan), ..found };
        write_files(&dir, ports, setup)?;
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
        let child = spawn(&dir)?;
        let mut bmc = Self { dir, ports, child };
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

    /// Folder with its files; `val/` in it has one file for each value.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Changes a value, by the name of its file: RPM of fans (`cpu1_fan`), degrees of temperatures
    /// and margins (`p1_margin`), millivolts (`v12_aux`), states as bits (`dimm_a1`, `ps1`).
    ///
    /// # Errors
    /// For a name that no sensor has.
    pub fn set(&self, file: &str, value: i32) -> io::Result<()> {
        let path = self.dir.join("val").join(file);
        if !path.exists() {
            return Err(io::Error::other(format!("no sensor reads {file:?}")));
        }
        write_value(&path, value)
    }

    /// Gives a command to the simulator's console and returns when it is done, with what the
    /// console said.
    ///
    /// # Errors
    /// When the simulator is gone.
    pub fn console(&self, command: &str) -> io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports.console))?;
        stream.set_read_timeout(Some(START_DEADLINE))?;
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
        self.child = spawn(&self.dir)?;
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
        let deadline = Instant::now() + START_DEADLINE;
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
        let log = fs::read_to_string(self.dir.join("log")).unwrap_or_default();
        Err(io::Error::other(format!("ipmi_sim does not start: {log}")))
    }
}

impl Drop for SimulatedBmc {
    fn drop(&mut self) {
        let _ = self.kill();
        let _ = fs::remove_dir_all(&self.dir);
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

/// How the names of sensors are encoded in their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Latin-1, as most boards do.
    EightBit,
    /// Packed six-bit ASCII.
    SixBit,
}

fn unique_dir() -> io::Result<PathBuf> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let dir = std::env::temp_dir().join(format!("ftb-bmc-{}-{count}", std::process::id()));
    fs::create_dir_all(dir.join("val"))?;
    Ok(dir)
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

/// Replaced at once, so that the simulator never reads half a value.
fn write_value(path: &Path, value: i32) -> io::Result<()> {
    let temporary = path.with_extension("new");
    fs::write(&temporary, format!("{value}\n"))?;
    fs::rename(&temporary, path)
}

fn write_files(dir: &Path, ports: Ports, setup: Setup) -> io::Result<()> {
    let values = dir.join("val");
    for sensor in &ANALOG {
        write_value(&values.join(sensor.file), sensor.start)?;
    }
    for (_, _, file, states, ..) in &DISCRETE {
        write_value(&values.join(file), i32::from(*states))?;
    }
    let (mut emulation, mut records) = (emulation(&values), records());
    if setup.satellite {
        write_value(&values.join(REAR_FAN.file), REAR_FAN.start)?;
        let _ =
            writeln!(emulation, "mc_add {SATELLITE} 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02");
        emulation.push_str(&REAR_FAN.emulation(SATELLITE, &values));
        let _ = writeln!(emulation, "mc_enable {SATELLITE}");
        records.push_str(&REAR_FAN.record(SATELLITE));
    }
    fs::write(dir.join("lan.conf"), lan_conf(ports, setup.auths))?;
    fs::write(dir.join("bmc.emu"), emulation)?;
    fs::write(dir.join("bmc.sdrs"), records)
}

fn lan_conf(Ports { host, lan, console, machine }: Ports, auths: &str) -> String {
    format!(
        "name \"testbmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.{host} {lan}\n    \
         priv_limit admin\n    allowed_auths_callback {auths}\n    allowed_auths_user {auths}\n    \
         allowed_auths_operator {auths}\n    allowed_auths_admin {auths}\n    \
         guid a123456789abcdefa123456789abcdef\n  endlan\n  serial 15 127.0.0.1 {machine} codec VM\n  \
         startnow false\n  user 1 false \"\" \"test\" user 10 {auths}\n  \
         user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 {auths}\n  console 127.0.0.1 {console}\n"
    )
}

impl Analog {
    fn raw(&self, value: i32) -> i32 {
        match self.kind {
            Kind::OffsetMargin => value + 128,
            Kind::Margin => value & 0xFF,
            _ => value / self.step,
        }
    }

    /// How the simulator makes a raw reading of the file's value.
    fn poll_options(&self) -> String {
        match self.kind {
            Kind::OffsetMargin => "sub=-128".to_owned(),
            Kind::Margin => "mask=0xff".to_owned(),
            _ if self.step != 1 => format!("div={}", self.step),
            _ => String::new(),
        }
    }

    fn type_code(&self) -> u8 {
        match self.kind {
            Kind::Fan | Kind::Tachometer => 4,
            Kind::Temperature | Kind::Margin | Kind::OffsetMargin => 1,
            Kind::Voltage => 2,
        }
    }

    fn has_thresholds(&self) -> bool {
        self.thresholds.iter().any(Option::is_some)
    }

    /// The six thresholds as (name in a record, suffix of its event, raw value), lowest bit first.
    fn six(&self) -> [(&'static str, &'static str, Option<i32>); 6] {
        let [lc, lnc, unc, uc] = self.thresholds.map(|value| value.map(|value| self.raw(value)));
        [
            ("lnc", "gl", lnc),
            ("lc", "gl", lc),
            ("lnr", "gl", None),
            ("unc", "gh", unc),
            ("uc", "gh", uc),
            ("unr", "gh", None),
        ]
    }

    fn emulation(&self, owner: u8, values: &Path) -> String {
        let Self { number, file, .. } = self;
        let six = self.six();
        let mut text = format!(
            "sensor_add {owner} 0 {number} {} 1 poll {FILE_POLL_MS} file \"{}\" {}\n",
            self.type_code(),
            values.join(file).display(),
            self.poll_options()
        );
        if self.has_thresholds() {
            let enabled: String =
                six.iter().rev().map(|(_, _, raw)| if raw.is_some() { '1' } else { '0' }).collect();
            let raws: Vec<_> =
                six.iter().rev().map(|(_, _, raw)| raw.unwrap_or(0).to_string()).collect();
            let raws = raws.join(" ");
            let _ =
                writeln!(text, "sensor_set_threshold {owner} 0 {number} settable {enabled} {raws}");
        }
        // Two events for each threshold, going low and going high; lower ones fire going low.
        let mut mask = 0_u16;
        for (bit, (_, direction, raw)) in six.iter().enumerate() {
            if raw.is_some() {
                mask |= 1 << (2 * bit + usize::from(*direction == "gh"));
            }
        }
        let mask = format!("{mask:015b}");
        let _ = writeln!(text, "sensor_set_hysteresis {owner} 0 {number} settable 1 1");
        let _ = writeln!(
            text,
            "sensor_set_event_support {owner} 0 {number} enable scanning per-state {mask} {mask} {mask} {mask}"
        );
        text
    }

    fn record(&self, owner: u8) -> String {
        let (unit, exponent) = match self.kind {
            Kind::Fan => ("RPM", 0),
            Kind::Tachometer => ("RPM", -5),
            Kind::Voltage => ("Volts", -3),
            _ => ("degrees_C", 0),
        };
        let format = if self.kind == Kind::Margin { "2s_complement" } else { "unsigned" };
        let linearization = if self.kind == Kind::Tachometer { "1/x" } else { "linear" };
        let (factor, offset) = match self.kind {
            Kind::OffsetMargin => (1, -128),
            _ => (self.step, 0),
        };
        let (minimum, maximum) = if self.kind == Kind::Margin { (128, 127) } else { (0, 255) };
        let access = if self.has_thresholds() { "settable" } else { "no" };
        let mut text = record_head(1, owner, self.number, self.entity, self.instance);
        let _ = write!(
            text,
            " init_sensor_type true\n sensor_hysteresis settable\n sensor_threshold_access {access}\n \
             sensor_event_msg_ctrl per_state\n sensor_type {}\n event_reading_type_code 1\n",
            self.type_code()
        );
        for (name, direction, raw) in self.six() {
            if let Some(raw) = raw {
                let _ = write!(
                    text,
                    " return_{name} true\n assert_{name}{direction} true\n \
                     deassert_{name}{direction} true\n {name}_thrsh_settable true\n \
                     {name}_thrsh_readable true\n {name}_thresh {raw}\n"
                );
            }
        }
        let _ = write!(
            text,
            " analog_data_format {format}\n rate_unit none\n modifier_unit none\n percentage false\n \
             base_unit {unit}\n modifier_unit_code unspecified\n linearization {linearization}\n \
             m {factor}\n tolerance 0\n b {offset}\n accuracy 1\n accuracy_exp 0\n \
             sensor_direction input\n r_exp {exponent}\n b_exp 0\n sensor_maximum {maximum}\n \
             sensor_minimum {minimum}\n positive_hysteresis 1\n negative_hysteresis 1\n \
             id_string \"{}\"\nendsdr\n",
            self.name
        );
        text
    }
}

fn record_head(kind: u8, owner: u8, number: u8, entity: &str, instance: u8) -> String {
    format!(
        "sdr type {kind}\n sensor_owner_id {owner}\n sensor_owner_lun 0\n channel_number 0\n \
         sensor_number {number}\n entity_id {entity}\n entity_instance {instance}\n \
         init_scanning true\n init_events true\n default_event_gen_on true\n \
         default_sensor_scan_on true\n sensor_auto_rearm true\n"
    )
}

fn emulation(values: &Path) -> String {
    let mut text = String::from(
        "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
         sel_enable 0x20 1000 0x0a\n",
    );
    for sensor in &ANALOG {
        text.push_str(&sensor.emulation(0x20, values));
    }
    for (number, _, file, states, kind, ..) in &DISCRETE {
        let path = values.join(file);
        let mask = "000011111111111";
        let _ = writeln!(
            text,
            "sensor_add 0x20 0 {number} {kind} 0x6f poll {FILE_POLL_MS} file \"{}\" inits{states}",
            path.display()
        );
        let _ = writeln!(
            text,
            "sensor_set_event_support 0x20 0 {number} enable scanning per-state {mask} {mask} {mask} {mask}"
        );
    }
    text.push_str("mc_enable 0x20\n");
    text
}

fn records() -> String {
    let mut text = String::from(
        "sdr type 18\n device_slave_address 0x20\n device_channel_number 0\n fru_inventory true\n \
         sel true\n sdr true\n sensor true\n entity_id system_board\n entity_instance 1\n \
         id_string \"TestBMC\"\nendsdr\n",
    );
    for sensor in &ANALOG {
        text.push_str(&sensor.record(0x20));
    }
    for (number, name, _, _, kind, entity, instance) in &DISCRETE {
        text.push_str(&record_head(2, 0x20, *number, entity, *instance));
        let _ = write!(
            text,
            " sensor_event_msg_ctrl per_state\n sensor_type {kind}\n event_reading_type_code 0x6f\n"
        );
        for state in 0..11 {
            let _ = write!(
                text,
                " assert_event{state} true\n deassert_event{state} true\n event{state}_state_ret true\n"
            );
        }
        let _ = write!(text, " base_unit 0\n id_string \"{name}\"\nendsdr\n");
    }
    text
}
