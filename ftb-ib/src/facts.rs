//! Facts about adapters and ports from sysfs and verbs, in the notation of the kernel. No I/O.

/// Most adapters that are watched. Further ones are ignored, with a warning.
pub const ADAPTERS_MAX: usize = 64;

/// Logical state of a port (InfiniBand specification, PortInfo:PortState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No state change; drivers that report no state.
    Nop,
    /// No link.
    Down,
    /// Link, but not yet configured by a subnet manager.
    Init,
    /// Configured, not yet in use.
    Armed,
    /// In use.
    Active,
    /// In use, the link is recovering.
    ActiveDefer,
    /// A number outside the specification.
    Other(u32),
}

impl PortState {
    /// From the number of the specification, as in verbs and sysfs.
    pub const fn from_number(number: u32) -> Self {
        match number {
            0 => Self::Nop,
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Other(other),
        }
    }

    /// From the text in sysfs, such as `4: ACTIVE`.
    pub fn from_sysfs(text: &str) -> Option<Self> {
        let number = text.split(':').next()?.trim();
        number.parse().ok().map(Self::from_number)
    }

    /// The word in payloads (thesis, Appendix A: DOWN, INIT, ARMED, ACTIVE).
    pub fn word(self) -> String {
        let word = match self {
            Self::Nop => "NOP",
            Self::Down => "DOWN",
            Self::Init => "INIT",
            Self::Armed => "ARMED",
            Self::Active => "ACTIVE",
            Self::ActiveDefer => "ACTIVE_DEFER",
            Self::Other(number) => return format!("STATE_{number}"),
        };
        word.to_owned()
    }

    /// Whether data can flow.
    pub const fn is_up(self) -> bool {
        matches!(self, Self::Active | Self::ActiveDefer)
    }
}

/// The state of a port, as the driver reports it. Read again after each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReading {
    /// Logical state.
    pub state: PortState,
    /// Local identifier; 0 on Ethernet.
    pub lid: u32,
    /// Local identifier of the subnet manager; 0 on Ethernet.
    pub sm_lid: u32,
    /// `InfiniBand` or `Ethernet`; empty if unknown.
    pub link_layer: String,
    /// Data rate as in sysfs, such as `100 Gb/sec (4X EDR)`; empty if unknown.
    pub speed: String,
}

impl PortReading {
    /// Replaces the reading by a newer one; keeps words that the newer one lacks.
    pub fn update(&mut self, newer: Self) {
        let older = std::mem::replace(self, newer);
        for (word, before) in
            [(&mut self.link_layer, older.link_layer), (&mut self.speed, older.speed)]
        {
            if word.is_empty() {
                *word = before;
            }
        }
    }
}

/// A port and its surroundings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Number of the port, from 1.
    pub number: u8,
    /// The current reading.
    pub reading: PortReading,
    /// Network interface on this port, if any.
    pub netdev: Option<String>,
    /// The other end of the cable, if known.
    pub neighbour: Option<String>,
}

/// An adapter with its ports in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterFacts {
    /// Kernel name, such as `mlx5_0`.
    pub name: String,
    /// Node GUID as in sysfs, such as `0002:c903:00a1:b2c3`; empty if it is unreadable.
    pub guid: String,
    /// Its ports.
    pub ports: Vec<PortFacts>,
}

/// A node GUID in the notation of sysfs.
pub fn guid_words(guid: u64) -> String {
    let word = |shift: u32| (guid >> shift) & 0xffff;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", word(48), word(32), word(16), word(0))
}

/// The link layer for the number in verbs.
pub fn link_layer_word(number: u8) -> &'static str {
    match number {
        1 => "InfiniBand",
        2 => "Ethernet",
        _ => "",
    }
}

/// The data rate for width and speed codes of verbs, as in sysfs; empty for unknown codes.
pub fn speed_words(width_code: u8, speed_code: u32) -> String {
    let lanes = match width_code {
        1 => 1_u32,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => return String::new(),
    };
    // Tenths of Gb/s of one lane, as the kernel's rate_show counts them.
    let (lane_rate, word) = match speed_code {
        1 => (25_u32, " SDR"),
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        8 => (100, " FDR10"),
        16 => (140, " FDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        128 => (1000, " NDR"),
        256 => (2000, " XDR"),
        _ => return String::new(),
    };
    let rate = lane_rate * lanes;
    match rate % 10 {
        0 => format!("{} Gb/sec ({lanes}X{word})", rate / 10),
        tenths => format!("{}.{tenths} Gb/sec ({lanes}X{word})", rate / 10),
    }
}

/// Orders names with numbers by number: `mlx5_2` before `mlx5_10`.
pub fn natural_order(a: &str, b: &str) -> std::cmp::Ordering {
    natural_key(a).cmp(&natural_key(b)).then_with(|| a.cmp(b))
}

fn natural_key(name: &str) -> Vec<(bool, u64, &str)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let digits = first.is_ascii_digit();
        let end = rest.find(|c: char| c.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (part, tail) = rest.split_at(end);
        match part.parse() {
            Ok(number) if digits => parts.push((false, number, "")),
            _ => parts.push((true, 0, part)),
        }
        rest = tail;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_in_sysfs_are_parsed() {
        assert_eq!(PortState::from_sysfs("4: ACTIVE\n"), Some(PortState::Active));
        assert_eq!(PortState::from_sysfs("1: DOWN"), Some(PortState::Down));
        assert_eq!(PortState::from_sysfs("9: NEW"), Some(PortState::Other(9)));
        assert_eq!(PortState::from_sysfs("ACTIVE"), None);
        assert_eq!(PortState::from_sysfs(""), None);
        assert!(PortState::ActiveDefer.is_up() && !PortState::Armed.is_up());
    }

    #[test]
    fn speeds_are_written_as_in_sysfs() {
        assert_eq!(speed_words(2, 32), "100 Gb/sec (4X EDR)");
        assert_eq!(speed_words(1, 1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(speed_words(2, 16), "56 Gb/sec (4X FDR)");
        assert_eq!(speed_words(2, 3), "");
        assert_eq!(speed_words(0, 1), "");
    }

    #[test]
    fn guids_are_written_as_in_sysfs() {
        assert_eq!(guid_words(0x0002_c903_00a1_b2c3), "0002:c903:00a1:b2c3");
    }

    #[test]
    fn adapters_sort_by_number() {
        let mut names = vec!["mlx5_10", "mlx5_2", "mlx4_0", "rxe0", "mlx5_2a"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["mlx4_0", "mlx5_2", "mlx5_2a", "mlx5_10", "rxe0"]);
    }
}
