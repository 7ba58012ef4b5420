//! Bytes of a hostile BMC, or of another host that sends datagrams to the console.

use crate::ipmb::decode_answer;
use crate::numbers::ReplayWindow;
use crate::packet::{Auth15, Packet, Payload, decode, encode_20_plain};
use crate::rakp::Attempt;
use crate::suite::Keys;
use crate::{CipherSuite, LanConfig};

/// Reads a datagram in every state of a login and of a session.
///
/// # Panics
/// A datagram without the password was taken as genuine.
pub fn read(config: &LanConfig, bytes: &[u8]) {
    let _ = decode_answer(bytes);
    let attempt = |suite| Attempt {
        config,
        suite,
        tag: bytes.get(16).copied().unwrap_or_default(),
        console_session: 7,
        console_random: [1; 16],
    };
    match decode(bytes) {
        None => {}
        Some(Packet::V15(packet)) => {
            let forged = [Auth15::Md5, Auth15::Md2].map(|auth| packet.is_genuine(auth, &[9; 16]));
            assert_eq!(forged, [false; 2], "a forged code");
            let _ = (packet.is_unsigned(), decode_answer(packet.body));
            let _ = ReplayWindow::new().accept(packet.sequence);
        }
        Some(Packet::V20(packet)) => {
            let _ = (packet.is_plain(), ReplayWindow::new().accept(packet.sequence));
            for suite in [CipherSuite::Three, CipherSuite::Seventeen] {
                let attempt = attempt(suite);
                let _ = attempt.on_open_response(packet.body);
                assert!(!matches!(attempt.on_rakp2(5, packet.body), Some(Ok(_))), "a forged proof");
                let keys = Keys::derive(suite, &[3; 20]);
                assert_eq!(packet.open(&keys), None, "a forged packet");
                // What is encrypted may be anything.
                let _ = keys.decrypt(packet.body).and_then(|message| decode_answer(&message));
            }
        }
    }
}

/// Answers of a BMC to begin with: each message of the key exchange.
pub fn seeds() -> Vec<Vec<u8>> {
    let body = [[0, 0, 0, 0, 7, 0, 0, 0], [1, 2, 3, 4, 5, 6, 7, 8]].concat();
    let kinds = [Payload::OpenResponse, Payload::Rakp2, Payload::Rakp4, Payload::Message];
    kinds.map(|kind| encode_20_plain(kind, &body.repeat(4))).to_vec()
}
