//! The certificates of connected peers: checked at the handshake, and again at each reload.
//!
//! Not responsible for: reading files, handshakes.

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use std::sync::{Arc, Weak};
use tokio_util::sync::CancellationToken;

/// The certificate of one connected peer.
pub struct PeerTrust {
    pub(super) chain: Vec<CertificateDer<'static>>,
    /// The host that was dialed; `None` on the accepting side.
    pub(super) dialed: Option<String>,
    state: Mutex<Ending>,
}

#[derive(Default)]
struct Ending {
    distrust: Option<String>,
    end: Option<CancellationToken>,
}

impl PeerTrust {
    pub(super) fn new(chain: &[CertificateDer<'_>], dialed: Option<&str>) -> Arc<Self> {
        let chain = chain.iter().map(|cert| cert.clone().into_owned()).collect();
        let dialed = dialed.map(str::to_owned);
        Arc::new(Self { chain, dialed, state: Mutex::default() })
    }

    /// Cancels `end` as soon as the certificate does not verify any more.
    pub fn bind(&self, end: &CancellationToken) {
        let mut state = self.state.lock();
        if state.distrust.is_some() {
            end.cancel();
        }
        state.end = Some(end.clone());
    }

    /// Why the certificate does not verify any more.
    pub fn distrust(&self) -> Option<String> {
        self.state.lock().distrust.clone()
    }

    fn end(&self, why: String) {
        let mut state = self.state.lock();
        state.distrust = Some(why);
        if let Some(end) = &state.end {
            end.cancel();
        }
    }
}

/// All connected peers. The limiter of connections bounds their number.
#[derive(Default)]
pub(super) struct Peers(Mutex<Vec<Weak<PeerTrust>>>);

impl Peers {
    pub(super) fn add(&self, peer: &Arc<PeerTrust>) {
        let mut peers = self.0.lock();
        peers.retain(|known| known.strong_count() > 0);
        peers.push(Arc::downgrade(peer));
    }

    /// Ends the connections of all peers that `check` rejects.
    pub(super) fn check(&self, check: impl Fn(&PeerTrust) -> Result<(), String>) {
        for peer in self.0.lock().iter().filter_map(Weak::upgrade) {
            if let Err(why) = check(&peer) {
                peer.end(why);
            }
        }
    }
}
