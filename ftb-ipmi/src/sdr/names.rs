//! Names of numbers in the standard: sensor types (table 42-3), units (table 43-15) and entities
//! (table 43-13).

use core::fmt;

/// The class of a sensor, as this program distinguishes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SensorClass {
    /// Fan or its tachometer (04h, 0Ah).
    Fan,
    /// Temperature or thermal margin (01h).
    Temperature,
    /// Voltage (02h).
    Voltage,
    /// Power supply (08h).
    PowerSupply,
    /// Memory (0Ch).
    Memory,
    /// Processor (07h). Its thermal trip counts as overheating.
    Processor,
    /// Critical interrupt (13h): bus errors and NMIs.
    Interrupt,
    /// Any other type. It is only shown, unless a rule gives it another class.
    Other,
}

impl SensorClass {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Fan,
        Self::Temperature,
        Self::Voltage,
        Self::PowerSupply,
        Self::Memory,
        Self::Processor,
        Self::Interrupt,
        Self::Other,
    ];

    /// The class of a sensor type code.
    pub fn of(sensor_type: u8) -> Self {
        match sensor_type {
            0x01 => Self::Temperature,
            0x02 => Self::Voltage,
            0x04 | 0x0A => Self::Fan,
            0x07 => Self::Processor,
            0x08 => Self::PowerSupply,
            0x0C => Self::Memory,
            0x13 => Self::Interrupt,
            _ => Self::Other,
        }
    }

    /// Whether an event reports an error that a later deassertion does not cancel.
    pub fn has_final_events(self) -> bool {
        matches!(self, Self::Memory | Self::Processor | Self::Interrupt)
    }

    /// Whether its events report no lasting state if it has no reading.
    pub fn is_momentary(self) -> bool {
        matches!(self, Self::Memory | Self::Interrupt)
    }

    /// The word in rules, tags and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fan => "fan",
            Self::Temperature => "temperature",
            Self::Voltage => "voltage",
            Self::PowerSupply => "power-supply",
            Self::Memory => "memory",
            Self::Processor => "processor",
            Self::Interrupt => "interrupt",
            Self::Other => "other",
        }
    }
}

/// Name of a sensor type code.
pub fn sensor_type_name(code: u8) -> &'static str {
    const NAMES: [&str; 0x2D] = [
        "reserved",
        "temperature",
        "voltage",
        "current",
        "fan",
        "physical security",
        "platform security",
        "processor",
        "power supply",
        "power unit",
        "cooling device",
        "other units",
        "memory",
        "drive bay",
        "POST memory resize",
        "system firmware progress",
        "event logging disabled",
        "watchdog 1",
        "system event",
        "critical interrupt",
        "button",
        "module or board",
        "microcontroller",
        "add-in card",
        "chassis",
        "chip set",
        "other FRU",
        "cable or interconnect",
        "terminator",
        "system boot initiated",
        "boot error",
        "OS boot",
        "OS critical stop",
        "slot or connector",
        "system ACPI power state",
        "watchdog 2",
        "platform alert",
        "entity presence",
        "monitor ASIC",
        "LAN",
        "management subsystem health",
        "battery",
        "session audit",
        "version change",
        "FRU state",
    ];
    match NAMES.get(usize::from(code)) {
        Some(name) => name,
        None if code >= 0xC0 => "OEM",
        None => "reserved",
    }
}

/// Name of a unit: `RPM`, `degrees C`, `Volts`, `%`, `kbit per second`.
pub fn unit_name(flags: u8, base: u8, modifier: u8) -> String {
    if flags & 0x01 != 0 {
        return "%".to_owned();
    }
    let mut text = base_unit(base).to_owned();
    match (flags >> 1) & 0b11 {
        1 => text = format!("{text}/{}", base_unit(modifier)),
        2 => text = format!("{text}*{}", base_unit(modifier)),
        _ => {}
    }
    const RATES: [&str; 8] =
        ["", " per us", " per ms", " per s", " per minute", " per hour", " per day", ""];
    text.push_str(RATES[usize::from((flags >> 3) & 0b111)]);
    text
}

fn base_unit(code: u8) -> &'static str {
    const NAMES: [&str; 27] = [
        "",
        "degrees C",
        "degrees F",
        "degrees K",
        "Volts",
        "Amps",
        "Watts",
        "Joules",
        "Coulombs",
        "VA",
        "Nits",
        "lumen",
        "lux",
        "Candela",
        "kPa",
        "PSI",
        "Newton",
        "CFM",
        "RPM",
        "Hz",
        "us",
        "ms",
        "s",
        "min",
        "hour",
        "day",
        "week",
    ];
    match NAMES.get(usize::from(code)) {
        Some(name) => name,
        None => "units",
    }
}

/// A part of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Entity {
    /// Kind of the part (table 43-13).
    pub id: u8,
    /// Number among the parts of this kind.
    pub instance: u8,
}

impl Entity {
    /// Whether boards measure its distance from throttling: processors and memory.
    pub fn has_thermal_margin(self) -> bool {
        matches!(self.id, 0x03 | 0x08 | 0x09 | 0x20 | 0x41)
    }

    /// Name of the kind; `entity` for unknown numbers.
    pub fn name(self) -> &'static str {
        const NAMES: [&str; 0x39] = [
            "unspecified",
            "other",
            "unknown",
            "processor",
            "disk",
            "peripheral bay",
            "system management module",
            "system board",
            "memory module",
            "processor module",
            "power supply",
            "add-in card",
            "front panel board",
            "back panel board",
            "power system board",
            "drive backplane",
            "expansion board",
            "other system board",
            "processor board",
            "power unit",
            "power module",
            "power management board",
            "chassis back panel board",
            "system chassis",
            "sub-chassis",
            "other chassis board",
            "disk drive bay",
            "peripheral bay",
            "device bay",
            "fan",
            "cooling unit",
            "cable or interconnect",
            "memory device",
            "system management software",
            "system firmware",
            "operating system",
            "system bus",
            "group",
            "remote management card",
            "external environment",
            "battery",
            "processing blade",
            "connectivity switch",
            "processor/memory module",
            "I/O module",
            "processor/IO module",
            "controller firmware",
            "channel",
            "PCI bus",
            "PCI Express bus",
            "SCSI bus",
            "SATA bus",
            "front side bus",
            "real time clock",
            "reserved",
            "air inlet",
            "air inlet",
        ];
        match (NAMES.get(usize::from(self.id)), self.id) {
            (Some(name), _) => name,
            (None, 0x40) => "air inlet",
            (None, 0x41) => "processor",
            (None, 0x42) => "baseboard",
            _ => "entity",
        }
    }
}

impl fmt::Display for Entity {
    /// In the notation of ipmitool and the thesis: `29.1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.instance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_entities_read_as_in_the_tables_of_the_standard() {
        assert_eq!(unit_name(0, 18, 0), "RPM");
        assert_eq!(unit_name(0x80, 1, 0), "degrees C");
        assert_eq!(unit_name(0x01, 0, 0), "%");
        assert_eq!(unit_name(0x02, 6, 24), "Watts/hour");
        assert_eq!(unit_name(0x18, 17, 0), "CFM per s");
        assert_eq!(Entity { id: 29, instance: 1 }.name(), "fan");
        assert_eq!(Entity { id: 3, instance: 2 }.to_string(), "3.2");
        assert_eq!(Entity { id: 32, instance: 1 }.name(), "memory device");
        assert_eq!(Entity { id: 7, instance: 1 }.name(), "system board");
        assert_eq!(sensor_type_name(0x0C), "memory");
        assert_eq!(sensor_type_name(0x29), "battery");
        assert_eq!(sensor_type_name(0xC1), "OEM");
    }
}
