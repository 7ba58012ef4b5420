//! The key exchange of RMCP+ (IPMI 2.0, sections 13.17 to 13.24): messages and proofs. No I/O.
//!
//! Every answer repeats our tag and our session id. An answer with others belongs to an earlier
//! attempt and is ignored (`None`).

use crate::suite::{CipherSuite, Keys};
use crate::{LanConfig, LoginError};

/// Flag: look up the user by name alone.
const LOOKUP_BY_NAME: u8 = 0x10;

/// One login attempt.
pub(crate) struct Attempt<'a> {
    pub(crate) config: &'a LanConfig,
    pub(crate) suite: CipherSuite,
    pub(crate) tag: u8,
    pub(crate) console_session: u32,
    pub(crate) console_random: [u8; 16],
}

/// A BMC that has proved that it has the password.
pub(crate) struct VerifiedBmc {
    rakp3: Vec<u8>,
    session_key: Vec<u8>,
    guid: [u8; 16],
}

impl VerifiedBmc {
    /// Body of RAKP message 3: our proof.
    pub(crate) fn rakp3(&self) -> &[u8] {
        &self.rakp3
    }
}

impl Attempt<'_> {
    /// Body of Open Session Request.
    pub(crate) fn open_request(&self) -> Vec<u8> {
        let mut body = vec![self.tag, self.config.privilege, 0, 0];
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

    /// The session id of the BMC, from Open Session Response.
    pub(crate) fn on_open_response(&self, body: &[u8]) -> Option<Result<u32, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            return Some(Err(error));
        }
        let id = u32::from_le_bytes(*body.get(8..)?.first_chunk()?);
        let algorithm = |index: usize| body.get(12 + index * 8 + 4).map(|byte| byte & 0x3F);
        let chosen = [algorithm(0)?, algorithm(1)?, algorithm(2)?];
        // Weaker algorithms than the requested ones are rejected.
        Some(if chosen == self.suite.algorithms() { Ok(id) } else { Err(LoginError::Suite) })
    }

    fn role_and_name(&self) -> Vec<u8> {
        // User names have at most `USER_BYTES_MAX` bytes.
        let length = u8::try_from(self.config.user.len()).unwrap_or(u8::MAX);
        let mut bytes = vec![self.config.privilege | LOOKUP_BY_NAME, length];
        bytes.extend_from_slice(self.config.user.as_bytes());
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

    /// Checks the proof of the BMC in RAKP message 2, and makes ours.
    pub(crate) fn on_rakp2(
        &self,
        bmc_session: u32,
        body: &[u8],
    ) -> Option<Result<VerifiedBmc, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            return Some(Err(error));
        }
        let bmc_random: [u8; 16] = *body.get(8..)?.first_chunk()?;
        let guid: [u8; 16] = *body.get(24..)?.first_chunk()?;
        let code = body.get(40..)?;
        let (console_id, bmc_id) = (self.console_session.to_le_bytes(), bmc_session.to_le_bytes());
        let role_and_name = self.role_and_name();
        let signed: [&[u8]; 6] =
            [&console_id, &bmc_id, &self.console_random, &bmc_random, &guid, &role_and_name];
        let password = self.config.password.as_bytes();
        let is_whole = code.len() == self.suite.mac_bytes();
        if !is_whole || !self.suite.verify(password, &signed, code) {
            return Some(Err(LoginError::Password));
        }
        let proof = self.suite.mac(password, &[&bmc_random, &console_id, &role_and_name]);
        let mut rakp3 = vec![self.tag, 0, 0, 0];
        rakp3.extend_from_slice(&bmc_id);
        rakp3.extend_from_slice(&proof);
        let key = self.config.group_key.as_deref().unwrap_or(password);
        let session_key = self.suite.mac(key, &[&self.console_random, &bmc_random, &role_and_name]);
        Some(Ok(VerifiedBmc { rakp3, session_key, guid }))
    }

    /// The keys of the session, if RAKP message 4 is correct.
    pub(crate) fn on_rakp4(
        &self,
        bmc_session: u32,
        bmc: &VerifiedBmc,
        body: &[u8],
    ) -> Option<Result<Keys, LoginError>> {
        if let Err(error) = self.check_head(body)? {
            let is_proof = error == LoginError::Password;
            return Some(Err(if is_proof { LoginError::Proof } else { error }));
        }
        let code = body.get(8..)?;
        let bmc_id = bmc_session.to_le_bytes();
        let signed: [&[u8]; 3] = [&self.console_random, &bmc_id, &bmc.guid];
        let is_genuine = code.len() == self.suite.integrity_bytes()
            && self.suite.verify(&bmc.session_key, &signed, code);
        Some(match is_genuine {
            true => Ok(Keys::derive(self.suite, &bmc.session_key)),
            // The password is verified: only the key of the BMC can differ.
            false => Err(LoginError::GroupKey),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Random bytes after a correct head neither panic nor prove anything.
        #[test]
        fn random_answers_never_panic_and_never_open_a_session(
            status in 0_u8..3,
            rest in proptest::collection::vec(any::<u8>(), 0..80),
            cut in 0_usize..90,
            seventeen in any::<bool>(),
        ) {
            let suite = if seventeen { CipherSuite::Seventeen } else { CipherSuite::Three };
            let attempt = Attempt {
                config: &crate::fake::config(0),
                suite,
                tag: 7,
                console_session: 0x0102_0305,
                console_random: [9; 16],
            };
            let mut body = vec![7, status, 0, 0];
            body.extend_from_slice(&attempt.console_session.to_le_bytes());
            body.extend_from_slice(&rest);
            body.truncate(cut);
            let _ = attempt.on_open_response(&body);
            prop_assert!(!matches!(attempt.on_rakp2(1, &body), Some(Ok(_))));
            let bmc = VerifiedBmc { rakp3: Vec::new(), session_key: vec![1; 20], guid: [2; 16] };
            prop_assert!(!matches!(attempt.on_rakp4(1, &bmc, &body), Some(Ok(_))));
        }
    }
}
