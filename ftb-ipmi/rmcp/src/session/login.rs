//! The login: the order of messages, for RMCP+ and for IPMI 1.5.

use super::state::{Established, Session15, Session20};
use super::{Session, random};
use crate::config::{PASSWORD_15_BYTES_MAX, USER_BYTES_MAX};
use crate::ipmb::{self, RequestId};
use crate::packet::{self, Auth15, Packet, Payload};
use crate::rakp::{Attempt, VerifiedBmc};
use crate::{CipherSuite, Destination, LanConfig, LoginError, Protocol, SessionError};
use ipmi_rs::connection::{Message, NetFn};

/// Channel number of "the channel of this request".
const CHANNEL_CURRENT: u8 = 0x0E;
const GET_CAPABILITIES: u8 = 0x38;
const GET_CHALLENGE: u8 = 0x39;
const ACTIVATE_SESSION: u8 = 0x3A;

/// The authentication that a BMC offers.
struct Capabilities {
    /// Bit mask of [`Auth15::code`].
    auths: u8,
    has_rmcp_plus: bool,
    /// Packets inside a session of IPMI 1.5 need no proof.
    without_packet_auth: bool,
}

impl Session {
    /// Opens the session of the configured protocol.
    ///
    /// A refusal counts only if the second attempt meets it too, because a damaged packet of the
    /// key exchange looks like one. A wrong password counts at once: BMCs count attempts and lock
    /// the user out.
    pub(super) async fn login(&mut self) -> Result<Established, SessionError> {
        match self.try_login().await {
            Err(SessionError::Login { error, .. })
                if error.is_permanent() && error != LoginError::Password =>
            {
                self.try_login().await
            }
            other => other,
        }
    }

    async fn try_login(&mut self) -> Result<Established, SessionError> {
        match self.config.protocol {
            Protocol::RmcpPlus(suites) => self.login_20(&suites).await,
            Protocol::Ipmi15 => {
                let offered = self.capabilities().await?;
                self.login_15(&offered).await
            }
        }
    }

    fn refused(&self, error: LoginError) -> SessionError {
        SessionError::Login { target: self.config.name(), error }
    }

    /// Get Channel Authentication Capabilities, outside any session.
    async fn capabilities(&mut self) -> Result<Capabilities, SessionError> {
        let data = vec![0x80 | CHANNEL_CURRENT, self.config.privilege];
        let message = Message::new_request(NetFn::App, GET_CAPABILITIES, data);
        let (code, data) = self.call_15(&mut Session15::none(), &message).await?;
        if code != 0 {
            return Err(self.refused(LoginError::Status(code)));
        }
        let [_, auths, status, extended, ..] = *data else {
            return Err(self.refused(LoginError::Malformed));
        };
        let is_extended = auths & 0x80 != 0;
        Ok(Capabilities {
            auths,
            has_rmcp_plus: is_extended && extended & 0x02 != 0,
            without_packet_auth: status & 0x10 != 0,
        })
    }

    async fn login_20(
        &mut self,
        suites: &[Option<CipherSuite>],
    ) -> Result<Established, SessionError> {
        let mut refusal = self.refused(LoginError::Suite);
        for suite in suites.iter().flatten() {
            match self.login_with(*suite).await {
                // A BMC that lacks a suite answers with an error, or drops the request.
                Err(error @ SessionError::Login { error: LoginError::Suite, .. }) => {
                    refusal = error;
                }
                // Anyone can forge the answer that RMCP+ is missing. It only names the error.
                Err(error @ SessionError::Timeout { .. }) => match self.capabilities().await {
                    Ok(offered) if offered.has_rmcp_plus => refusal = error,
                    Ok(_) => return Err(self.refused(LoginError::NoRmcpPlus)),
                    Err(_) => return Err(error),
                },
                other => return other.map(Established::V20),
            }
        }
        Err(refusal)
    }

    /// The key exchange of RMCP+.
    async fn login_with(&mut self, suite: CipherSuite) -> Result<Session20, SessionError> {
        let config: LanConfig = self.config.clone();
        let attempt = Attempt {
            config: &config,
            suite,
            tag: self.next_tag(),
            console_session: u32::from_le_bytes(random()?) | 1,
            console_random: random()?,
        };
        let request = attempt.open_request();
        let read = |body: &[u8]| attempt.on_open_response(body);
        let bmc_session =
            self.exchange_20(Payload::OpenRequest, &request, Payload::OpenResponse, read).await?;
        let verified = match self.verify_bmc(&attempt, bmc_session).await {
            // The packet is damaged, or the password is wrong. Ask once more: the BMC counts no
            // failed attempt, because we have not sent our proof.
            Err(SessionError::Login { error: LoginError::Password, .. }) => {
                self.verify_bmc(&attempt, bmc_session).await?
            }
            other => other?,
        };
        let read = |body: &[u8]| attempt.on_rakp4(bmc_session, &verified, body);
        let keys = self.exchange_20(Payload::Rakp3, verified.rakp3(), Payload::Rakp4, read).await?;
        tracing::debug!(bmc = config.name(), suite = suite.number(), "session opened");
        Ok(Session20::new(keys, bmc_session, attempt.console_session))
    }

    /// Requests the proof that the BMC has the password.
    async fn verify_bmc(
        &mut self,
        attempt: &Attempt<'_>,
        bmc_session: u32,
    ) -> Result<VerifiedBmc, SessionError> {
        let request = attempt.rakp1(bmc_session);
        let read = |body: &[u8]| attempt.on_rakp2(bmc_session, body);
        self.exchange_20(Payload::Rakp1, &request, Payload::Rakp2, read).await
    }

    /// One step of the key exchange: sends until the answer to this step comes.
    async fn exchange_20<T>(
        &mut self,
        send: Payload,
        body: &[u8],
        wanted: Payload,
        mut read: impl FnMut(&[u8]) -> Option<Result<T, LoginError>>,
    ) -> Result<T, SessionError> {
        let bytes = packet::encode_20_plain(send, body);
        let answer = self
            .exchange(
                |_| Ok(bytes.clone()),
                |bytes, _| match packet::decode(bytes)? {
                    Packet::V20(p) if p.payload == wanted && p.is_plain() => read(p.body),
                    _ => None,
                },
            )
            .await?;
        answer.map_err(|error| self.refused(error))
    }

    /// The login of IPMI 1.5: challenge, then activation.
    async fn login_15(&mut self, offered: &Capabilities) -> Result<Established, SessionError> {
        let config: LanConfig = self.config.clone();
        let has_password = !config.password.is_empty();
        let auth = Auth15::BEST_FIRST
            .into_iter()
            .find(|auth| {
                offered.auths & (1 << auth.code()) != 0 && has_password == (*auth != Auth15::None)
            })
            .ok_or_else(|| self.refused(LoginError::NoAuthentication))?;
        let password = padded::<PASSWORD_15_BYTES_MAX>(&config.password)
            .ok_or_else(|| self.refused(LoginError::LongPassword))?;
        let user =
            padded::<USER_BYTES_MAX>(&config.user).ok_or_else(|| self.refused(LoginError::User))?;
        let data = [&[auth.code()][..], &user].concat();
        let message = Message::new_request(NetFn::App, GET_CHALLENGE, data);
        let (code, answer) = self.call_15(&mut Session15::none(), &message).await?;
        match code {
            0 => {}
            0x81 | 0x82 => return Err(self.refused(LoginError::User)),
            code => return Err(self.refused(LoginError::Status(code))),
        }
        let (Some(id), Some(challenge)) = (answer.first_chunk(), answer.get(4..20)) else {
            return Err(self.refused(LoginError::Malformed));
        };
        let id = u32::from_le_bytes(*id);
        let mut session = Session15::inactive(auth, password, id, offered.without_packet_auth);
        let data = [&[auth.code(), config.privilege][..], challenge, &random::<4>()?].concat();
        let message = Message::new_request(NetFn::App, ACTIVATE_SESSION, data);
        let (code, data) = match self.call_15(&mut session, &message).await {
            // A BMC that rejects the proof does not answer.
            Err(SessionError::Timeout { .. }) => return Err(self.refused(LoginError::Password)),
            other => other?,
        };
        match code {
            0 => {}
            0x81 | 0x82 => return Err(self.refused(LoginError::Busy)),
            0x86 => return Err(self.refused(LoginError::Privilege)),
            _ => return Err(self.refused(LoginError::Password)),
        }
        let [_, a, b, c, d, e, f, g, h, ..] = *data else {
            return Err(self.refused(LoginError::Malformed));
        };
        let (id, next) = (u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h]));
        Ok(Established::V15(session.activate(id, next)))
    }

    /// A request in a packet of IPMI 1.5; completion code and data of its answer.
    async fn call_15(
        &mut self,
        session: &mut Session15,
        message: &Message,
    ) -> Result<(u8, Vec<u8>), SessionError> {
        let number = self.next_tag();
        let id = RequestId::of(message, Destination::BMC, number);
        let bytes = session.seal(&ipmb::encode_request(message, 0, number));
        let read = |bytes: &[u8], _: &mut Self| {
            let body = session.open(bytes)?;
            ipmb::decode_answer(&body).filter(|answer| answer.id == id)
        };
        let answer = self.exchange(|_| Ok(bytes.clone()), read).await?;
        Ok((answer.completion, answer.data))
    }
}

/// The text, padded with zeros; `None` if it is too long.
fn padded<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
    Some(bytes)
}
