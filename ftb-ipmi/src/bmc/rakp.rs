//! Opening an RMCP+ session (IPMI 2.0, sections 13.17 to 13.24): the messages and the proofs, as
//! pure functions. Sending, waiting and repeating are the caller's.
//!
//! Every answer carries our tag and our session id: one that carries others answers an earlier
//! attempt and is ignored (`None`), so that a BMC that wakes up late confuses nobody.

use super::login::PASSWORD_15_BYTES_MAX;
use super::suite::{CipherSuite, Keys};

/// Looks users up by name alone, as every BMC does.
const LOOKUP_BY_NAME: u8 = 0x10;

/// Why a BMC does not let us in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// The proof of the key exchange is wrong, on either side.
    #[error("the password is wrong: correct password, password_file or FTB_IPMI_PASSWORD")]
    Password,
    /// The BMC has proven that it has the same password, and the keys of the session differ.
    #[error("the BMC's own key differs: correct group_key, or remove it")]
    GroupKey,
    /// The BMC refuses our proof, although it has proven that it has the same password.
    #[error("the BMC refuses the proof of the password that it has itself")]
    Proof,
    /// No such user.
    #[error("the BMC knows no such user: correct user, or make it there")]
    User,
    /// The user may not have the privilege that was asked for.
    #[error(
        "the user may not have that privilege level: ask for a lower one (privilege), or raise its limit"
    )]
    Privilege,
    /// The BMC does not offer these algorithms.
    #[error("the BMC does not offer this cipher suite: name another (cipher_suite), or none")]
    Suite,
    /// All its sessions are taken.
    #[error("the BMC has no session left: close others or wait until they expire")]
    Busy,
    /// The BMC does not speak that version, or offers no authentication that we have.
    #[error(
        "the BMC offers no protocol version and authentication that both sides have: enable one there"
    )]
    Protocol,
    /// The BMC speaks IPMI 1.5 only, and the password is too long for it.
    #[error(
        "the BMC speaks only IPMI 1.5, whose passwords have at most {max} bytes: shorten it", max = PASSWORD_15_BYTES_MAX
    )]
    LongPassword,
    /// Anything else, by its number.
    #[error("the BMC refuses a session with status {0:#04x}")]
    Status(u8),
}

impl LoginError {
    fn from_status(status: u8) -> Self {
        match status {
            0x01 | 0x0B => Self::Busy,
            0x04..=0x07 | 0x10 | 0x11 => Self::Suite,
            0x09 | 0x0A => Self::Privilege,
            0x0C | 0x0D => Self::User,
            0x0F => Self::Password,
            other => Self::Status(other),
        }
    }

    /// Whether trying again without a change on either side is useless.
    pub fn is_permanent(self) -> bool {
        !matches!(self, Self::Busy | Self::Status(_))
    }
}

/// One attempt to log in.
pub(crate) struct Attempt<'a> {
    pub(crate) suite: CipherSuite,
    pub(crate) user: &'a [u8],
    pub(crate) password: &'a [u8],
    /// The BMC's own key where two keys are needed; else the password takes its place.
    pub(crate) group_key: Option<&'a [u8]>,
    pub(crate) privilege: u8,
    pub(crate) tag: u8,
    pub(crate) console_session: u32,
    pub(crate) console_random: [u8; 16],
}

/// What the second step of the exchange gave.
pub(crate) struct Proven {
    pub(crate) rakp3: Vec<u8>,
    session_key: Vec<u8>,
    bmc_guid: [u8; 16],
}

impl Attempt<'_> {
    /// Body of Open Session Request.
    pub(crate) fn open_request(&self) -> Vec<u8> {
        let mut body = vec![self.tag, self.privilege, 0, 0];
        body.extend_from_slice(&self.console_session.to_le_bytes());
        for (kind, algorithm) in (0_u8..).zip(self.suite.algorithms()) {
            body.extend_from_slice(&[kind, 0, 0, 8, algorithm, 0, 0, 0]);
        }
        body
    }

    fn check_head(&self, body: &[u8]) -> Option<Result<(), LoginError>> {
        let [tag, status, ..] = *body else { return None };
        if tag != self.tag {
            return None;
        }
        if status != 0 {
            return Some(Err(LoginError::from_status(status)));
        }
        let is_ours = body.get(4..8)? == self.console_session.to_le_bytes();
        is_ours.then_some(Ok(()))
    }

    /// From Open Session Response: the BMC's session id.
    pub(crate) fn on_open(&self, body: &[u8]) -> Option<Result<u32, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            return Some(Err(error));
        }
        let id = u32::from_le_bytes(*body.get(8..)?.first_chunk()?);
        let algorithm = |index: usize| body.get(12 + index * 8 + 4).map(|byte| byte & 0x3F);
        let chosen = [algorithm(0)?, algorithm(1)?, algorithm(2)?];
        // A BMC that answers with weaker algorithms than asked for is not followed.
        Some(if chosen == self.suite.algorithms() { Ok(id) } else { Err(LoginError::Suite) })
    }

    fn role_and_name(&self) -> Vec<u8> {
        // `Config` bounds user names to 16 bytes.
        let length = u8::try_from(self.user.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![self.privilege | LOOKUP_BY_NAME, length];
        bytes.extend_from_slice(self.user);
        bytes
    }

    /// Body of RAKP message 1.
    pub(crate) fn rakp1(&self, bmc_session: u32) -> Vec<u8> {
        let mut body = vec![self.tag, 0, 0, 0];
        body.extend_from_slice(&bmc_session.to_le_bytes());
        body.extend_from_slice(&self.console_random);
        let role_and_name = self.role_and_name();
        body.extend_from_slice(&[role_and_name[0], 0, 0]);
        body.extend_from_slice(&role_and_name[1..]);
        body
    }

    /// From RAKP message 2: checks that the BMC knows the password, and proves that we do.
    pub(crate) fn on_rakp2(
        &self,
        bmc_session: u32,
        body: &[u8],
    ) -> Option<Result<Proven, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            return Some(Err(error));
        }
        let bmc_random: [u8; 16] = *body.get(8..)?.first_chunk()?;
        let bmc_guid: [u8; 16] = *body.get(24..)?.first_chunk()?;
        let code = body.get(40..)?;
        let (console_id, bmc_id) = (self.console_session.to_le_bytes(), bmc_session.to_le_bytes());
        let role_and_name = self.role_and_name();
        let spoken: [&[u8]; 6] =
            [&console_id, &bmc_id, &self.console_random, &bmc_random, &bmc_guid, &role_and_name];
        let is_whole = code.len() == self.suite.mac_bytes();
        if !is_whole || !self.suite.verify(self.password, &spoken, code) {
            return Some(Err(LoginError::Password));
        }
        let proof = self.suite.mac(self.password, &[&bmc_random, &console_id, &role_and_name]);
        let mut rakp3 = vec![self.tag, 0, 0, 0];
        rakp3.extend_from_slice(&bmc_id);
        rakp3.extend_from_slice(&proof);
        let key = self.group_key.unwrap_or(self.password);
        let session_key = self.suite.mac(key, &[&self.console_random, &bmc_random, &role_and_name]);
        Some(Ok(Proven { rakp3, session_key, bmc_guid }))
    }

    /// From RAKP message 4: the keys of the session.
    pub(crate) fn on_rakp4(
        &self,
        bmc_session: u32,
        proven: &Proven,
        body: &[u8],
    ) -> Option<Result<Keys, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            let is_proof = error == LoginError::Password;
            return Some(Err(if is_proof { LoginError::Proof } else { error }));
        }
        let code = body.get(8..)?;
        let bmc_id = bmc_session.to_le_bytes();
        let spoken: [&[u8]; 3] = [&self.console_random, &bmc_id, &proven.bmc_guid];
        let is_genuine = code.len() == self.suite.check_bytes()
            && self.suite.verify(&proven.session_key, &spoken, code);
        Some(match is_genuine {
            true => Ok(Keys::derive(self.suite, &proven.session_key)),
            // With the password proven, only the BMC's own key can differ.
            false => Err(LoginError::GroupKey),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Whatever stands behind a right head: no panic, and nothing is proven.
        #[test]
        fn random_answers_never_panic_and_never_open_a_session(
            status in 0_u8..3,
            rest in proptest::collection::vec(any::<u8>(), 0..80),
            cut in 0_usize..90,
            seventeen in any::<bool>(),
        ) {
            let suite = if seventeen { CipherSuite::Seventeen } else { CipherSuite::Three };
            let attempt = Attempt {
                suite,
                user: b"ftb",
                password: b"secret",
                group_key: None,
                privilege: 2,
                tag: 7,
                console_session: 0x0102_0305,
                console_random: [9; 16],
            };
            let mut body = vec![7, status, 0, 0];
            body.extend_from_slice(&attempt.console_session.to_le_bytes());
            body.extend_from_slice(&rest);
            body.truncate(cut);
            let _ = attempt.on_open(&body);
            prop_assert!(!matches!(attempt.on_rakp2(1, &body), Some(Ok(_))));
            let proven = Proven { rakp3: Vec::new(), session_key: vec![1; 20], bmc_guid: [2; 16] };
            prop_assert!(!matches!(attempt.on_rakp4(1, &proven, &body), Some(Ok(_))));
        }
    }
}
