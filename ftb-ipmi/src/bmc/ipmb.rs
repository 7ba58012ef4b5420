//! The IPMI message inside a LAN session: addresses, checksums, and the numbers by which an answer
//! is known to belong to its request.

use super::Destination;
use crate::sdr::{BMC_ADDRESS, Controller};
use ipmi_rs::connection::{Message, NetFn};

/// Address of remote console software.
const CONSOLE: u8 = 0x81;
/// Request numbers have six bits.
pub(crate) const REQUEST_NUMBERS: u8 = 64;
const SEND_MESSAGE: u8 = 0x34;
/// In Send Message: the BMC keeps track of the request and hands its answer on.
const TRACKED: u8 = 0x40;

/// What an answer must repeat to be the answer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    /// Slave address of who answers.
    pub(crate) from: u8,
    pub(crate) netfn: u8,
    pub(crate) lun: u8,
    pub(crate) command: u8,
    pub(crate) number: u8,
}

impl Expected {
    pub(crate) fn of(message: &Message, to: Destination, number: u8) -> Self {
        Self {
            from: to.controller.slave,
            netfn: message.netfn().response_value(),
            lun: to.lun & 0b11,
            command: message.cmd(),
            number: number % REQUEST_NUMBERS,
        }
    }

    /// The same from the BMC: some put their own address on what they hand on.
    pub(crate) fn handed_on(self) -> Self {
        Self { from: BMC_ADDRESS, ..self }
    }
}

/// An answer with its completion code split off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) to: Expected,
    pub(crate) completion: u8,
    pub(crate) data: Vec<u8>,
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}

fn encode(message: &Message, to: Destination, from: u8, number: u8) -> Vec<u8> {
    let mut bytes = vec![to.controller.slave, (message.netfn_raw() << 2) | (to.lun & 0b11)];
    bytes.push(checksum(&bytes));
    let second = bytes.len();
    bytes.extend_from_slice(&[from, (number % REQUEST_NUMBERS) << 2, message.cmd()]);
    bytes.extend_from_slice(message.data());
    bytes.push(checksum(&bytes[second..]));
    bytes
}

/// The bytes of a request from console software to the BMC.
pub(crate) fn encode_request(message: &Message, lun: u8, number: u8) -> Vec<u8> {
    encode(message, Destination { controller: Controller::BMC, lun }, CONSOLE, number)
}

/// The request to the BMC that relays another to a controller behind it. Both get the same number,
/// so that what comes back is known by it whichever of the two the BMC repeats.
pub(crate) fn relay(message: &Message, to: Destination, number: u8) -> Message {
    let mut data = vec![TRACKED | (to.controller.channel & 0x0F)];
    data.extend_from_slice(&encode(message, to, BMC_ADDRESS, number));
    Message::new_request(NetFn::App, SEND_MESSAGE, data)
}

/// Reads an answer, to the console or (inside an answer to Send Message) to the BMC; `None` for
/// anything that is not one, or was damaged.
pub(crate) fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (first, second) = bytes.split_at_checked(3)?;
    let is_to_us = matches!(first[0], CONSOLE | BMC_ADDRESS);
    if checksum(first) != 0 || checksum(second) != 0 || !is_to_us {
        return None;
    }
    let [from, number_lun, command, completion, data @ .., _sum] = second else { return None };
    if first[1] & 0x04 == 0 {
        return None;
    }
    let to = Expected {
        from: *from,
        netfn: first[1] >> 2,
        lun: number_lun & 0b11,
        command: *command,
        number: number_lun >> 2,
    };
    Some(Answer { to, completion: *completion, data: data.to_vec() })
}

/// The bytes of an answer, as a BMC makes them.
#[cfg(test)]
pub(crate) fn encode_answer(answer: &Answer) -> Vec<u8> {
    let mut bytes = vec![CONSOLE, answer.to.netfn << 2];
    bytes.push(checksum(&bytes));
    let second = bytes.len();
    let number_lun = (answer.to.number << 2) | answer.to.lun;
    bytes.extend_from_slice(&[answer.to.from, number_lun, answer.to.command, answer.completion]);
    bytes.extend_from_slice(&answer.data);
    bytes.push(checksum(&bytes[second..]));
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipmi_rs::connection::NetFn;
    use proptest::prelude::*;

    #[test]
    fn an_answer_carries_back_what_its_request_sent() {
        let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
        let to = Destination { lun: 1, ..Destination::BMC };
        let sent = encode_request(&request, 1, 70);
        assert_eq!(sent, [0x20, 0x11, 0xCF, 0x81, 0x18, 0x2D, 0x30, 0x0A]);
        let answer =
            Answer { to: Expected::of(&request, to, 70), completion: 0, data: vec![34, 0xC0] };
        assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }

    #[test]
    fn a_relayed_request_is_a_request_inside_send_message() {
        let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
        let controller = Controller { channel: 6, slave: 0x2C };
        let outer = relay(&request, Destination { controller, lun: 2 }, 6);
        assert_eq!((outer.netfn(), outer.cmd()), (NetFn::App, 0x34));
        assert_eq!(outer.data(), [0x46, 0x2C, 0x12, 0xC2, 0x20, 0x18, 0x2D, 0x30, 0x6B]);
    }

    proptest! {
        #[test]
        fn a_damaged_answer_is_no_answer(at in 0_usize..9, flip in 1_u8..) {
            let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
            let to = Expected::of(&request, Destination::BMC, 5);
            let mut bytes = encode_answer(&Answer { to, completion: 0, data: vec![34, 0xC0] });
            bytes[at] ^= flip;
            prop_assert_eq!(decode_answer(&bytes), None);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode_answer(&bytes);
        }
    }
}
