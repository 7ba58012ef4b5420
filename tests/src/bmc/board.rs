//! The sensors of the simulated board, as tables.

use super::analog::{Analog, Kind};

/// Properties of the board.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Encoding of sensor names.
    pub names: Names,
    /// Authentications of IPMI 1.5, from `none`, `md2`, `md5`, `straight`.
    pub auths: &'static str,
    /// Whether a controller behind the BMC has a fan, `rear_fan`.
    pub satellite: bool,
    /// Whether it also has the sensors of `ODD` and `ODD_STATES`: odd names and thresholds of some
    /// firmware, and states of processors and buses.
    pub is_odd: bool,
    /// Whether it also has a processor sensor without readings, [`EVENT_ONLY`]: the event log has
    /// its states.
    pub has_event_only: bool,
    /// Capacity of the event log in entries.
    pub log_entries: u16,
    /// Whether the BMC knows the power of its machine, which is on at first: `set("power", 0)`.
    /// Without that the machine is always off.
    pub has_power: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            names: Names::EightBit,
            auths: "none md2 md5 straight",
            satellite: false,
            is_odd: false,
            has_event_only: false,
            log_entries: 1000,
            has_power: false,
        }
    }
}

/// Encoding of sensor names in records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Latin-1, as on most boards.
    EightBit,
    /// Packed six-bit ASCII.
    SixBit,
}

const fn volts(
    number: u8,
    name: &'static str,
    file: &'static str,
    start: i32,
    step: i32,
) -> Analog {
    // Critical at ten percent, non-critical at seven.
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

pub(super) const ANALOG: [Analog; 19] = [
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

const fn odd_margin(
    number: u8,
    name: &'static str,
    file: &'static str,
    entity: &'static str,
) -> Analog {
    Analog {
        number,
        name,
        file,
        start: -40,
        kind: Kind::Margin,
        entity,
        instance: 1,
        step: 1,
        thresholds: [None; 4],
    }
}

/// Thermal margins in other spellings, and thresholds that only the records have: all 0, and those
/// of a tachometer by value. The simulator compares none of them.
pub(super) const ODD: [Analog; 5] = [
    odd_margin(0x9C, "DIMM Thrm Mrgn 1", "dimm_margin", "memory_device"),
    odd_margin(0x9D, "P1 DTS Therm Mgn", "p1_dts_margin", "processor"),
    odd_margin(0x9E, "CPU2 DTS", "cpu2_dts", "processor"),
    Analog {
        number: 0x31,
        name: "VRM Temp",
        file: "vrm_temp",
        start: 40,
        kind: Kind::Temperature,
        entity: "system_board",
        instance: 1,
        step: 1,
        thresholds: [Some(0); 4],
    },
    Analog {
        number: 0x57,
        name: "SYS FAN 6 TACH",
        file: "sys_fan6_period",
        start: 25,
        kind: Kind::Tachometer,
        entity: "fan_cooling_device",
        instance: 6,
        step: 1,
        // 240 is 417 RPM, 200 is 500 RPM.
        thresholds: [Some(240), Some(200), None, None],
    },
];

/// A sensor with states: number, name, file, initial states, type, entity, instance.
pub(super) type Discrete = (u8, &'static str, &'static str, u16, u8, &'static str, u8);

/// Presence of a memory module (state 6; of a power supply it is state 0).
const DIMM: u16 = 1 << 6;

pub(super) const DISCRETE: [Discrete; 13] = [
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

/// States of processors and buses, each with its event/reading type.
pub(super) const ODD_STATES: [(Discrete, u8); 3] = [
    ((0xF0, "P1 Status", "p1_status", 1 << 7, 0x07, "processor", 1), 0x6F),
    ((0xF1, "CPU1 Overheat", "cpu1_overheat", 1, 0x01, "processor", 1), 0x03),
    ((0xF2, "PCI Error", "pci_error", 0, 0x13, "system_board", 1), 0x6F),
];

/// Number and name of the sensor of [`Setup::has_event_only`].
pub const EVENT_ONLY: (u8, &str) = (0xF3, "P2 Status");

/// Slave address of the controller behind the BMC, with [`Setup::satellite`].
pub const SATELLITE: u8 = 0x2C;

/// The sensor of that controller.
pub(super) const REAR_FAN: Analog = fan(0x01, "REAR FAN", "rear_fan", 3300, 10, 66);

/// Number of pollable sensors of the BMC.
pub const SENSORS: usize = ANALOG.len() + DISCRETE.len();

/// Number of further sensors with [`Setup::is_odd`].
pub const ODD_SENSORS: usize = ODD.len() + ODD_STATES.len();
