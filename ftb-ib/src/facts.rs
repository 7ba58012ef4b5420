//! What is known of an adapter and of a port, whoever said it (sysfs or verbs), and how the kernel
//! writes it. Pure: reading files and calling verbs happens elsewhere.

/// Most adapters that are followed at once; more are left out, with a warning.
pub const ADAPTERS_MAX: usize = 64;

/// Logical state of a port (InfiniBand specification, PortInfo:PortState).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// No state: the driver does not say.
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
    /// A number that the specification does not have.
    Other(u32),
}

impl PortState {
    /// From the number of the specification, which verbs and sysfs share.
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

    /// From what sysfs says: `4: ACTIVE`.
    pub fn from_sysfs(text: &str) -> Option<Self> {
        let number = text.split(':').next()?.trim();
        number.parse().ok().map(Self::from_number)
    }

    /// The word of the payload (thesis, Appendix A: DOWN, INIT, ARMED, ACTIVE).
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

/// What a driver answers when asked about a port: read again after each event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortReading {
    /// Logical state.
    pub state: PortState,
    /// Local identifier; 0 on Ethernet.
    pub lid: u32,
    /// Local identifier of the subnet manager; 0 on Ethernet.
    pub sm_lid: u32,
    /// `InfiniBand` or `Ethernet`; empty where nobody says.
    pub link_layer: String,
    /// Data rate as sysfs writes it, `100 Gb/sec (4X EDR)`; empty where nobody says.
    pub speed: String,
}

impl PortReading {
    /// Takes a newer reading, and keeps the words that it does not have.
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

/// A port and what surrounds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// From 1.
    pub number: u8,
    /// What the driver says now.
    pub reading: PortReading,
    /// Network interface on this port, where there is one.
    pub netdev: Option<String>,
    /// The other end of the cable, where the platform tells it.
    pub neighbour: Option<String>,
}

/// An adapter with its ports in rising order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdapterFacts {
    /// The kernel's name for it: `mlx5_0`.
    pub name: String,
    /// Node GUID as sysfs writes it, `0002:c903:00a1:b2c3`; empty where it cannot be read.
    pub guid: String,
    /// Its ports.
    pub ports: Vec<PortFacts>,
}

/// A node GUID as sysfs writes it.
pub fn guid_words(guid: u64) -> String {
    let word = |shift: u32| (guid >> shift) & 0xffff;
    format!("{:04x}:{:04x}:{:04x}:{:04x}", word(48), word(32), word(16), word(0))
}

/// The link layer of verbs' number.
pub fn link_layer_word(number: u8) -> &'static str {
    match number {
        1 => "InfiniBand",
        2 => "Ethernet",
        _ => "",
    }
}

/// The data rate for verbs' width and speed codes, as sysfs writes it; empty for unknown codes.
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

/// Compares `mlx5_2` before `mlx5_10`: numbers inside names count as numbers.
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
    fn states_are_read_as_the_kernel_writes_them() {
        assert_eq!(PortState::from_sysfs("4: ACTIVE\n"), Some(PortState::Active));
        assert_eq!(PortState::from_sysfs("1: DOWN"), Some(PortState::Down));
        assert_eq!(PortState::from_sysfs("9: NEW"), Some(PortState::Other(9)));
        assert_eq!(PortState::from_sysfs("ACTIVE"), None);
        assert_eq!(PortState::from_sysfs(""), None);
        assert!(PortState::ActiveDefer.is_up() && !PortState::Armed.is_up());
    }

    #[test]
    fn speeds_read_as_in_sysfs() {
        assert_eq!(speed_words(2, 32), "100 Gb/sec (4X EDR)");
        assert_eq!(speed_words(1, 1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(speed_words(2, 16), "56 Gb/sec (4X FDR)");
        assert_eq!(speed_words(2, 3), "");
        assert_eq!(speed_words(0, 1), "");
    }

    #[test]
    fn guids_read_as_in_sysfs() {
        assert_eq!(guid_words(0x0002_c903_00a1_b2c3), "0002:c903:00a1:b2c3");
    }

    #[test]
    fn adapters_sort_by_number() {
        let mut names = vec!["mlx5_10", "mlx5_2", "mlx4_0", "rxe0", "mlx5_2a"];
        names.sort_by(|a, b| natural_order(a, b));
        assert_eq!(names, ["mlx4_0", "mlx5_2", "mlx5_2a", "mlx5_10", "rxe0"]);
    }
}
