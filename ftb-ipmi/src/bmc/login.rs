//! Logging in to a BMC over UDP: which messages go out in which order, for RMCP+ and for IPMI 1.5.

use super::ipmb::{self, Expected};
use super::lan::{Lan, LanConfig, Protocol, Session, Session15, Session20};
use super::numbers::Window;
use super::packet::{self, Auth15, Packet, Payload};
use super::rakp::{Attempt, LoginError, Proven};
use super::suite::PASSWORD_BYTES_MAX;
use super::{BmcError, CipherSuite, Destination};
use ipmi_rs::connection::{Message, NetFn};

/// Channel number that means "the one that this came in on".
const CHANNEL_CURRENT: u8 = 0x0E;

/// What a BMC says before anyone has logged in.
struct Capabilities {
    auths: u8,
    speaks_rmcp_plus: bool,
    /// Packets inside a session need no proof of their own.
    without_packet_auth: bool,
}

impl Lan {
    /// Opens the session that the configuration wants, or the best that both sides have.
    ///
    /// A refusal must come twice to be believed, since a damaged packet of the key exchange looks
    /// like one. A wrong password is the exception: BMCs count attempts and lock the user out.
    pub(super) async fn login(&mut self) -> Result<Session, BmcError> {
        match self.try_login().await {
            Err(BmcError::Login { error, .. })
                if error.is_permanent() && error != LoginError::Password =>
            {
                self.try_login().await
            }
            other => other,
        }
    }

    async fn try_login(&mut self) -> Result<Session, BmcError> {
        match self.config().protocol {
            Protocol::RmcpPlus(suites) => self.login_plus(&suites).await,
            Protocol::Ipmi15 => {
                let offered = self.capabilities().await?;
                self.login_15(&offered).await
            }
            Protocol::Auto => {
                let offered = self.capabilities().await?;
                match offered.speaks_rmcp_plus {
                    true => {
                        self.login_plus(&[Some(CipherSuite::Seventeen), Some(CipherSuite::Three)])
                            .await
                    }
                    false => self.login_15(&offered).await,
                }
            }
        }
    }

    fn refused(&self, error: LoginError) -> BmcError {
        BmcError::Login { target: self.config().name(), error }
    }

    /// Get Channel Authentication Capabilities, outside any session.
    async fn capabilities(&mut self) -> Result<Capabilities, BmcError> {
        let privilege = self.config().privilege;
        let data = vec![0x80 | CHANNEL_CURRENT, privilege];
        let message = Message::new_request(NetFn::App, 0x38, data);
        let data = self.call_unsigned(&message, 0).await?;
        let [_, auths, status, extended, ..] = *data else {
            return Err(BmcError::Short { command: 0x38 });
        };
        let is_extended = auths & 0x80 != 0;
        Ok(Capabilities {
            auths,
            speaks_rmcp_plus: is_extended && extended & 0x02 != 0,
            without_packet_auth: status & 0x10 != 0,
        })
    }

    async fn login_plus(&mut self, suites: &[Option<CipherSuite>]) -> Result<Session, BmcError> {
        let mut refusal = self.refused(LoginError::Suite);
        for suite in suites.iter().flatten() {
            match self.login_with(*suite).await {
                // A BMC that lacks a suite says so, or drops the packet where it should say so.
                Err(error @ BmcError::Login { error: LoginError::Suite, .. }) => refusal = error,
                Err(error @ BmcError::Timeout { .. }) if *suite == CipherSuite::Seventeen => {
                    refusal = error;
                }
                other => return other,
            }
        }
        Err(refusal)
    }

    async fn login_with(&mut self, suite: CipherSuite) -> Result<Session, BmcError> {
        let config: LanConfig = self.config().clone();
        let attempt = Attempt {
            suite,
            user: config.user.as_bytes(),
            password: config.password.as_bytes(),
            group_key: config.group_key.as_deref(),
            privilege: config.privilege,
            tag: self.next_tag(),
            console_session: u32::from_le_bytes(self.random()?) | 1,
            console_random: self.random()?,
        };
        let bmc_session = self
            .exchange_plain(
                Payload::OpenRequest,
                &attempt.open_request(),
                Payload::OpenAnswer,
                |b| attempt.on_open(b),
            )
            .await?;
        let proven = match self.ask_for_proof(&attempt, bmc_session).await {
            // Damaged on its way, or the password is wrong: the BMC's proof once more. Ours has
            // not been sent, so this is no attempt that the BMC counts.
            Err(BmcError::Login { error: LoginError::Password, .. }) => {
                self.ask_for_proof(&attempt, bmc_session).await?
            }
            other => other?,
        };
        let keys = self
            .exchange_plain(Payload::Rakp3, &proven.rakp3, Payload::Rakp4, |body| {
                attempt.on_rakp4(bmc_session, &proven, body)
            })
            .await?;
        tracing::debug!(bmc = config.name(), suite = keys.suite().number(), "session open");
        Ok(Session::Plus(Session20 {
            keys,
            bmc_session,
            console_session: attempt.console_session,
            sent: 0,
            window: Window::new(),
        }))
    }

    /// Asks the BMC to prove that it has the password.
    async fn ask_for_proof(
        &mut self,
        attempt: &Attempt<'_>,
        bmc_session: u32,
    ) -> Result<Proven, BmcError> {
        let request = attempt.rakp1(bmc_session);
        let read = |body: &[u8]| attempt.on_rakp2(bmc_session, body);
        self.exchange_plain(Payload::Rakp1, &request, Payload::Rakp2, read).await
    }

    /// One step of the key exchange: sends until an answer to this very step comes.
    async fn exchange_plain<T>(
        &mut self,
        send: Payload,
        body: &[u8],
        wanted: Payload,
        mut read: impl FnMut(&[u8]) -> Option<Result<T, LoginError>>,
    ) -> Result<T, BmcError> {
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

    /// A command outside any session, in the unsigned packet of IPMI 1.5.
    async fn call_unsigned(&mut self, message: &Message, lun: u8) -> Result<Box<[u8]>, BmcError> {
        let number = self.next_tag();
        let expected = Expected::of(message, Destination { lun, ..Destination::BMC }, number);
        let body = ipmb::encode_request(message, lun, number);
        let bytes = packet::encode_15(Auth15::None, &[0; 16], 0, 0, &body);
        let answer = self
            .exchange(
                |_| Ok(bytes.clone()),
                |bytes, _| match packet::decode(bytes)? {
                    Packet::V15(p) if p.is_unsigned() && p.session == 0 => {
                        ipmb::decode_answer(p.body).filter(|answer| answer.to == expected)
                    }
                    _ => None,
                },
            )
            .await?;
        match answer.completion {
            0 => Ok(answer.data.into()),
            code => Err(BmcError::Refused { command: message.cmd(), code }),
        }
    }

    /// The session of IPMI 1.5: challenge, activation.
    async fn login_15(&mut self, offered: &Capabilities) -> Result<Session, BmcError> {
        let config: LanConfig = self.config().clone();
        let has_password = !config.password.is_empty();
        let auth = Auth15::BEST_FIRST
            .into_iter()
            .find(|auth| {
                offered.auths & (1 << auth.code()) != 0 && has_password == (*auth != Auth15::None)
            })
            .ok_or_else(|| self.refused(LoginError::Protocol))?;
        // With "auto" it is only known now which protocol it is.
        if config.password.len() > PASSWORD_15_BYTES_MAX {
            return Err(self.refused(LoginError::LongPassword));
        }
        let mut password = [0_u8; PASSWORD_15_BYTES_MAX];
        for (slot, byte) in password.iter_mut().zip(config.password.bytes()) {
            *slot = byte;
        }
        let mut challenge = vec![auth.code()];
        let mut user = config.user.clone().into_bytes();
        user.resize(16, 0);
        challenge.extend_from_slice(&user);
        let message = Message::new_request(NetFn::App, 0x39, challenge);
        let answer = match self.call_unsigned(&message, 0).await {
            Err(BmcError::Refused { code: 0x81 | 0x82, .. }) => {
                return Err(self.refused(LoginError::User));
            }
            other => other?,
        };
        let short = || BmcError::Short { command: 0x39 };
        let temporary = u32::from_le_bytes(*answer.first_chunk().ok_or_else(short)?);
        let challenge = answer.get(4..20).ok_or_else(short)?;
        let mut session = Session15 {
            auth,
            password,
            session: temporary,
            sent: 0,
            is_active: false,
            without_packet_auth: offered.without_packet_auth,
            window: Window::new(),
        };
        let mut data = vec![auth.code(), config.privilege];
        data.extend_from_slice(challenge);
        data.extend_from_slice(&self.random::<4>()?);
        let message = Message::new_request(NetFn::App, 0x3A, data);
        let (code, data) = self.call_in_15(&mut session, &message).await?;
        match code {
            0 => {}
            0x81 | 0x82 => return Err(self.refused(LoginError::Busy)),
            0x86 => return Err(self.refused(LoginError::Privilege)),
            _ => return Err(self.refused(LoginError::Password)),
        }
        let [_, a, b, c, d, e, f, g, h, ..] = *data else {
            return Err(BmcError::Short { command: 0x3A });
        };
        session.session = u32::from_le_bytes([a, b, c, d]);
        session.sent = u32::from_le_bytes([e, f, g, h]);
        session.is_active = true;
        Ok(Session::Old(session))
    }

    async fn call_in_15(
        &mut self,
        session: &mut Session15,
        message: &Message,
    ) -> Result<(u8, Vec<u8>), BmcError> {
        let number = self.next_tag();
        let expected = Expected::of(message, Destination::BMC, number);
        let body = ipmb::encode_request(message, 0, number);
        let bytes = session.seal(&body);
        let answer = self
            .exchange(
                |_| Ok(bytes.clone()),
                |bytes, _| {
                    let body = session.open(bytes)?;
                    ipmb::decode_answer(&body).filter(|answer| answer.to == expected)
                },
            )
            .await;
        match answer {
            Ok(answer) => Ok((answer.completion, answer.data)),
            // A BMC that finds the proof wrong does not answer at all, though it has just talked.
            Err(BmcError::Timeout { .. }) => Err(self.refused(LoginError::Password)),
            Err(error) => Err(error),
        }
    }
}

/// Longest user name in bytes.
pub(crate) const USER_BYTES_MAX: usize = 16;
/// Longest password of IPMI 1.5 in bytes; shorter ones are filled with zeros.
pub(crate) const PASSWORD_15_BYTES_MAX: usize = 16;
/// Longest password in bytes, by protocol.
pub(crate) fn password_bytes_max(protocol: &Protocol) -> usize {
    match protocol {
        Protocol::Ipmi15 => PASSWORD_15_BYTES_MAX,
        _ => PASSWORD_BYTES_MAX,
    }
}
