//! Addresses of controllers.

/// Slave address of the BMC.
pub const BMC_ADDRESS: u8 = 0x20;

/// A controller that receives commands: the BMC, or one behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Controller {
    /// Channel of the BMC, 0 to 15; 0 is the first IPMB.
    pub channel: u8,
    /// Slave address on the channel, as in a sensor record. 20h is the BMC, odd numbers are
    /// software.
    pub slave: u8,
}

impl Controller {
    /// The BMC.
    pub const BMC: Self = Self { channel: 0, slave: BMC_ADDRESS };

    /// Whether this is the BMC, on any channel.
    pub fn is_bmc(self) -> bool {
        self.slave == BMC_ADDRESS
    }

    /// Whether this is software, which answers no commands.
    pub fn is_software(self) -> bool {
        self.slave & 1 != 0
    }
}

impl std::fmt::Display for Controller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.channel {
            0 => write!(f, "{:#04x}", self.slave),
            channel => write!(f, "{:#04x} on channel {channel}", self.slave),
        }
    }
}

/// The destination of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The controller.
    pub controller: Controller,
    /// Its logical unit, 0 to 3.
    pub lun: u8,
}

impl Destination {
    /// The first logical unit of the BMC.
    pub const BMC: Self = Self { controller: Controller::BMC, lun: 0 };
}
