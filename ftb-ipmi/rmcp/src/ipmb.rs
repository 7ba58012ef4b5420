//! The IPMI message inside a packet: addresses, checksums, and the fields that match an answer to
//! its request. No I/O.

use crate::{BMC_ADDRESS, Controller, Destination};
use ipmi_rs::connection::{Message, NetFn};

/// Address of remote console software.
const CONSOLE: u8 = 0x81;
/// Request numbers have six bits.
pub(crate) const REQUEST_NUMBERS: u8 = 64;
const SEND_MESSAGE: u8 = 0x34;
/// Flag of Send Message: the BMC tracks the request and forwards its answer.
const TRACKED: u8 = 0x40;

/// What an answer repeats of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestId {
    /// Slave address of the sender of the answer.
    pub(crate) responder: u8,
    /// Network function of the answer.
    pub(crate) netfn: u8,
    pub(crate) lun: u8,
    pub(crate) command: u8,
    pub(crate) number: u8,
}

impl RequestId {
    pub(crate) fn of(message: &Message, to: Destination, number: u8) -> Self {
        Self {
            responder: to.controller.slave,
            netfn: message.netfn().response_value(),
            lun: to.lun & 0b11,
            command: message.cmd(),
            number: number % REQUEST_NUMBERS,
        }
    }

    /// The same from the BMC: some BMCs write their own address into an answer that they forward.
    pub(crate) fn forwarded(self) -> Self {
        Self { responder: BMC_ADDRESS, ..self }
    }
}

/// An answer, without its completion code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) completion: u8,
    pub(crate) data: Vec<u8>,
}

fn checksum(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte))
}

/// Three bytes with a checksum, then the rest with another.
fn frame(to: [u8; 2], rest: &[&[u8]]) -> Vec<u8> {
    let mut bytes = to.to_vec();
    bytes.push(checksum(&bytes));
    let second = bytes.len();
    bytes.extend(rest.concat());
    bytes.push(checksum(&bytes[second..]));
    bytes
}

fn encode(message: &Message, to: Destination, from: u8, number: u8) -> Vec<u8> {
    let address = [to.controller.slave, (message.netfn_raw() << 2) | (to.lun & 0b11)];
    let head = [from, (number % REQUEST_NUMBERS) << 2, message.cmd()];
    frame(address, &[&head, message.data()])
}

/// A request from the console to the BMC.
pub(crate) fn encode_request(message: &Message, lun: u8, number: u8) -> Vec<u8> {
    encode(message, Destination { controller: Controller::BMC, lun }, CONSOLE, number)
}

/// The request to the BMC that relays `message` to a controller behind it. Both get the same
/// number, because some BMCs repeat the outer one in the answer and some the inner one.
pub(crate) fn relay(message: &Message, to: Destination, number: u8) -> Message {
    let mut data = vec![TRACKED | (to.controller.channel & 0x0F)];
    data.extend_from_slice(&encode(message, to, BMC_ADDRESS, number));
    Message::new_request(NetFn::App, SEND_MESSAGE, data)
}

/// Reads an answer to the console, or to the BMC (inside an answer to Send Message). `None` if it
/// is damaged or no answer.
pub(crate) fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (first, second) = bytes.split_at_checked(3)?;
    let is_to_us = matches!(first[0], CONSOLE | BMC_ADDRESS);
    let is_response = first[1] & 0x04 != 0;
    if checksum(first) != 0 || checksum(second) != 0 || !is_to_us || !is_response {
        return None;
    }
    let [responder, number_lun, command, completion, data @ .., _sum] = second else {
        return None;
    };
    let id = RequestId {
        responder: *responder,
        netfn: first[1] >> 2,
        lun: number_lun & 0b11,
        command: *command,
        number: number_lun >> 2,
    };
    Some(Answer { id, completion: *completion, data: data.to_vec() })
}

/// The bytes of an answer, as a BMC encodes it.
#[cfg(any(test, feature = "fake"))]
pub(crate) fn encode_answer(answer: &Answer) -> Vec<u8> {
    let id = answer.id;
    let head = [id.responder, (id.number << 2) | id.lun, id.command, answer.completion];
    frame([CONSOLE, id.netfn << 2], &[&head, &answer.data])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_answer_repeats_the_id_of_its_request() {
        let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
        let to = Destination { lun: 1, ..Destination::BMC };
        let sent = encode_request(&request, 1, 70);
        assert_eq!(sent, [0x20, 0x11, 0xCF, 0x81, 0x18, 0x2D, 0x30, 0x0A]);
        let id = RequestId::of(&request, to, 70);
        let answer = Answer { id, completion: 0, data: vec![34, 0xC0] };
        assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }

    #[test]
    fn send_message_contains_the_relayed_request() {
        let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
        let controller = Controller { channel: 6, slave: 0x2C };
        let outer = relay(&request, Destination { controller, lun: 2 }, 6);
        assert_eq!((outer.netfn(), outer.cmd()), (NetFn::App, 0x34));
        assert_eq!(outer.data(), [0x46, 0x2C, 0x12, 0xC2, 0x20, 0x18, 0x2D, 0x30, 0x6B]);
    }

    proptest! {
        #[test]
        fn a_damaged_answer_is_rejected(at in 0_usize..9, flip in 1_u8..) {
            let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
            let id = RequestId::of(&request, Destination::BMC, 5);
            let mut bytes = encode_answer(&Answer { id, completion: 0, data: vec![34, 0xC0] });
            bytes[at] ^= flip;
            prop_assert_eq!(decode_answer(&bytes), None);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = decode_answer(&bytes);
        }
    }
}
