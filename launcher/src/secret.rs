//! The secret of a job. A client of the job's TCP services proves that it knows the secret without
//! sending it.
//!
//! The server sends `FTB1 NONCE\n`. The client answers with a line of words whose last word is the
//! HMAC-SHA256 of nonce and words under the secret, in hex. A line is valid on its own connection
//! only. What follows is neither encrypted nor signed: the network of a job is trusted as far as
//! MPI trusts it.

use core::time::Duration;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;
use std::fmt::Write as _;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// Longest greeting or answer in bytes.
pub const LINE_BYTES_MAX: usize = 512;
/// Deadline of the client's line.
pub const HELLO_WAIT: Duration = Duration::from_secs(10);
/// First word of a server.
const GREETING: &str = "FTB1";

#[derive(Clone)]
pub struct Secret(String);

impl core::fmt::Debug for Secret {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Secret {
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// A key for another purpose, named by `label`.
    pub fn derive(&self, label: &str) -> [u8; 32] {
        self.mac("", label).finalize().into_bytes().into()
    }

    /// The last word of a signed line.
    fn mac(&self, nonce: &str, words: &str) -> Hmac<Sha256> {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(self.0.as_bytes())
            .expect("HMAC takes keys of any length");
        mac.update(nonce.as_bytes());
        mac.update(b" ");
        mac.update(words.as_bytes());
        mac
    }

    /// The client's line (without newline) in answer to `greeting`.
    ///
    /// # Errors
    /// It is not a server of ftb.
    pub fn sign(&self, greeting: &str, words: &str) -> Result<String, String> {
        let nonce = greeting.trim_end().strip_prefix(GREETING).and_then(|r| r.strip_prefix(' '));
        let nonce = nonce.ok_or_else(|| format!("{:.40?} is no greeting of ftb", greeting))?;
        let mac = self.mac(nonce, words).finalize().into_bytes();
        Ok(format!("{words} {}", hex(&mac)))
    }

    /// The words of a client's line, if it is signed.
    ///
    /// # Errors
    /// One line for the client.
    pub fn verify<'a>(&self, nonce: &str, line: &'a str) -> Result<&'a str, String> {
        let wrong = || "wrong key".to_owned();
        let (words, shown) = line.trim_end().rsplit_once(' ').ok_or_else(wrong)?;
        let shown = unhex(shown).ok_or_else(wrong)?;
        self.mac(nonce, words).verify_slice(&shown).map_err(|_| wrong())?;
        Ok(words)
    }

    /// The server's side: the client's words if they are signed, otherwise the refusal.
    ///
    /// # Errors
    /// The connection breaks, or no line comes within [`HELLO_WAIT`].
    pub async fn hear(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    ) -> io::Result<Result<String, String>> {
        let hello = async {
            let (nonce, greeting) = greeting().map_err(io::Error::other)?;
            stream.write_all(greeting.as_bytes()).await?;
            let line = read_line(stream).await?;
            Ok(self.verify(&nonce, &line).map(ToOwned::to_owned))
        };
        tokio::time::timeout(HELLO_WAIT, hello).await?
    }

    /// The client's side: sends signed words.
    ///
    /// # Errors
    /// The connection breaks, or it is not a server of ftb.
    pub async fn say(
        &self,
        stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
        words: &str,
    ) -> io::Result<()> {
        let greeting = read_line(stream).await?;
        let line = self.sign(&greeting, words).map_err(io::Error::other)?;
        stream.write_all(format!("{line}\n").as_bytes()).await
    }
}

/// Reads one short line and no byte beyond it.
///
/// # Errors
/// The stream ends or breaks before the line does, or the line is too long.
pub async fn read_line(from: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut line = Vec::new();
    while line.len() < LINE_BYTES_MAX {
        match from.read_u8().await? {
            b'\n' => return String::from_utf8(line).map_err(io::Error::other),
            byte => line.push(byte),
        }
    }
    Err(io::Error::other("the peer sent no whole line"))
}

/// A fresh nonce, and the greeting with it (with the newline).
///
/// # Errors
/// The system has no randomness.
pub fn greeting() -> Result<(String, String), String> {
    let nonce = random_hex()?;
    let line = format!("{GREETING} {nonce}\n");
    Ok((nonce, line))
}

/// 128 random bits from the system, in hex.
///
/// # Errors
/// The system has none.
pub fn random_hex() -> Result<String, String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|error| format!("no randomness: {error}"))?;
    Ok(hex(&bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    let pair = |at| u8::from_str_radix(&text[at..at + 2], 16).ok();
    (0..text.len()).step_by(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_client_with_the_secret_is_accepted_and_only_once() {
        let secret = Secret::new("s3cret");
        let (nonce, line) = greeting().unwrap();
        let signed = secret.sign(&line, "INPUT node01").unwrap();
        assert_eq!(secret.verify(&nonce, &signed), Ok("INPUT node01"));
        assert!(Secret::new("other").verify(&nonce, &signed).is_err());
        let (another, _) = greeting().unwrap();
        assert!(secret.verify(&another, &signed).is_err(), "a line of another connection");
        let forged = signed.replace("node01", "node02");
        for bad in [forged.as_str(), "", "INPUT", "INPUT x", "INPUT \u{e9}1", "INPUT abc"] {
            assert!(secret.verify(&nonce, bad).is_err(), "{bad}");
        }
        assert!(secret.sign("SSH-2.0-OpenSSH\n", "x").is_err());
    }
}
