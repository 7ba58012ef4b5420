//! The IPMI message inside a LAN session: addresses, checksums, and the numbers by which an answer
//! is known to belong to its request.

use ipmi_rs::connection::Message;

/// Address of the BMC.
const BMC: u8 = crate::sdr::BMC_ADDRESS;
/// Address of remote console software.
const CONSOLE: u8 = 0x81;
/// Request numbers have six bits.
pub(crate) const REQUEST_NUMBERS: u8 = 64;

/// What an answer must repeat to be the answer of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Expected {
    pub(crate) netfn: u8,
    pub(crate) lun: u8,
    pub(crate) command: u8,
    pub(crate) number: u8,
}

impl Expected {
    pub(crate) fn of(message: &Message, lun: u8, number: u8) -> Self {
        let netfn = message.netfn().response_value();
        Self { netfn, lun: lun & 0b11, command: message.cmd(), number: number % REQUEST_NUMBERS }
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

/// The bytes of a request from console software to the BMC.
pub(crate) fn encode_request(message: &Message, lun: u8, number: u8) -> Vec<u8> {
    let mut bytes = vec![BMC, (message.netfn_raw() << 2) | (lun & 0b11)];
    bytes.push(checksum(&bytes));
    let second = bytes.len();
    bytes.extend_from_slice(&[CONSOLE, (number % REQUEST_NUMBERS) << 2, message.cmd()]);
    bytes.extend_from_slice(message.data());
    bytes.push(checksum(&bytes[second..]));
    bytes
}

/// Reads an answer; `None` for anything that is not one, or was damaged.
pub(crate) fn decode_answer(bytes: &[u8]) -> Option<Answer> {
    let (first, second) = bytes.split_at_checked(3)?;
    if checksum(first) != 0 || checksum(second) != 0 || first[0] != CONSOLE {
        return None;
    }
    let [from, number_lun, command, completion, data @ .., _sum] = second else { return None };
    if *from != BMC || first[1] & 0x04 == 0 {
        return None;
    }
    let to = Expected {
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
    bytes.extend_from_slice(&[BMC, number_lun, answer.to.command, answer.completion]);
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
        let sent = encode_request(&request, 1, 70);
        assert_eq!(sent, [0x20, 0x11, 0xCF, 0x81, 0x18, 0x2D, 0x30, 0x0A]);
        let answer =
            Answer { to: Expected::of(&request, 1, 70), completion: 0, data: vec![34, 0xC0] };
        assert_eq!(decode_answer(&encode_answer(&answer)), Some(answer));
    }

    proptest! {
        #[test]
        fn a_damaged_answer_is_no_answer(at in 0_usize..9, flip in 1_u8..) {
            let request = Message::new_request(NetFn::SensorEvent, 0x2D, vec![0x30]);
            let to = Expected::of(&request, 0, 5);
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
