//! Mutual TLS between agents: certificate files, handshakes, certified host names.
//!
//! Both sides present a certificate of the cluster's own CA. The dialing side requires the name of
//! the host it dialed. The accepting side reports the certified names, so that the tree can refuse
//! a host that claims another name. TLS 1.3 only. Not responsible for: what a name permits.

pub mod names;
pub mod signature;
pub mod trust;
pub mod validity;

use crate::BoxIo;
use crate::limiter::{InspectedIo, LimitedIo};
use arc_swap::ArcSwap;
use names::{MarkedCas, NameError, certified_hosts, check_host};
use rustls::client::Resumption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{
    CertificateDer, CertificateRevocationListDer, PrivateKeyDer, ServerName, UnixTime,
};
use rustls::server::NoServerSessionStorage;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::version::TLS13;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use signature::{SignatureError, Signed, Signer, Signers};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, BufReader};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use trust::{PeerTrust, Peers};

/// The protocol inside: HTTP/2.
const ALPN: &[u8] = b"h2";

/// Read buffer of a connection, in bytes: eight TLS records. The system provides its memory as far
/// as it was ever filled.
const READ_BYTES: usize = 128 * 1024;

/// Encrypted bytes before a write to the socket: a whole frame of a link goes out with one system
/// call. Further writes wait.
const WRITE_BYTES: usize = 256 * 1024;

/// Certificate files, all PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// One or more CAs that sign the certificates of agents.
    pub ca: PathBuf,
    /// Certificates that the CAs have revoked: one or more revocation lists.
    pub crl: Option<PathBuf>,
    /// This agent's certificate chain, its own certificate first. The subject alternative names
    /// must contain this host's name as in the member list.
    pub cert: PathBuf,
    /// The private key of `cert`. The agent refuses a key that every user can read.
    pub key: PathBuf,
}

/// A certificate file is unusable: one line that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct TlsError {
    path: String,
    reason: String,
}

fn failed(path: &Path, reason: impl ToString) -> TlsError {
    TlsError { path: path.display().to_string(), reason: reason.to_string() }
}

/// Certificates of this agent, for handshakes.
pub struct Tls {
    cluster: String,
    current: ArcSwap<Configs>,
    peers: Peers,
}

struct Configs {
    verifiers: Verifiers,
    marked: MarkedCas,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    signer: Arc<Signer>,
    /// The certificates of signatures that were checked since the last reload.
    signers: Signers,
}

impl Tls {
    /// Reads the files of an agent of this cluster.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(files: &TlsFiles, cluster: &str) -> Result<Self, TlsError> {
        let current = ArcSwap::from_pointee(configs(files)?);
        Ok(Self { cluster: cluster.to_owned(), current, peers: Peers::default() })
    }

    /// Reads the files again and returns the warning of [`examine`]. A connection whose
    /// peer does not verify any more is ended ([`PeerTrust::bind`]); the others stay.
    ///
    /// # Errors
    /// As [`Tls::load`] and [`examine`]; the old certificates stay in use.
    pub fn reload(&self, files: &TlsFiles, host: &str) -> Result<Option<String>, TlsError> {
        let configs = configs(files)?;
        let warning = examine(files, &self.cluster, host)?;
        self.current.store(Arc::new(configs));
        self.check_peers();
        Ok(warning)
    }

    /// Signs with the key of this agent's certificate.
    pub fn signer(&self) -> Arc<Signer> {
        Arc::clone(&self.current.load().signer)
    }

    /// Checks that the key of a certificate of this cluster for `host` has made a signature. `at`:
    /// when, by the signer; that counts if the certificate was valid then, else now. A revoked
    /// certificate is rejected whenever it signed.
    ///
    /// # Errors
    /// [`SignatureError`] says what does not verify.
    pub fn check_signature(
        &self,
        signed: &Signed<'_>,
        host: &str,
        at: Option<UnixTime>,
    ) -> Result<(), SignatureError> {
        let configs = self.current.load();
        let Configs { verifiers, marked, signers, .. } = &**configs;
        let check = |chain: &[CertificateDer<'_>], at| {
            let (own, above) = chain.split_first().ok_or(SignatureError::Form)?;
            let verified = verifiers.client.verify_client_cert(own, above, at);
            verified.map_err(|error| SignatureError::Chain(error.to_string()))?;
            let hosts = certified_hosts(chain, marked, &self.cluster);
            hosts.map_err(|error| SignatureError::Chain(error.to_string()))
        };
        signers.check(signed, host, at, check)
    }

    fn check_peers(&self) {
        let configs = self.current.load_full();
        self.peers.check(|peer| configs.check(peer, &self.cluster));
    }

    /// Follows a peer after its handshake. A reload during the handshake applies to it too.
    fn follow(&self, configs: &Arc<Configs>, peer: &Arc<PeerTrust>) {
        self.peers.add(peer);
        if !Arc::ptr_eq(configs, &self.current.load()) {
            self.check_peers();
        }
    }

    /// The handshake of the dialing side. The peer must be `host` of this cluster.
    ///
    /// # Errors
    /// The certificate is not for `host`, the peer rejects ours, or it does not speak TLS.
    pub async fn connect(&self, io: BoxIo, host: &str) -> io::Result<(BoxIo, Arc<PeerTrust>)> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| {
            io::Error::other(format!("{host:?} is not a valid name in a certificate"))
        })?;
        let configs = self.current.load_full();
        let connector = TlsConnector::from(Arc::clone(&configs.client));
        let mut stream = connector.connect(name, buffered(io)).await?;
        stream.get_mut().1.set_buffer_limit(Some(WRITE_BYTES));
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let hosts = certified_hosts(chain, &configs.marked, &self.cluster);
        hosts.and_then(|hosts| check_host(&hosts, host)).map_err(io::Error::other)?;
        let trust = PeerTrust::new(chain, Some(host));
        self.follow(&configs, &trust);
        Ok((Box::new(stream), trust))
    }

    /// The handshake of the accepting side.
    ///
    /// # Errors
    /// The peer has no certificate of our CA and cluster, does not speak TLS, or is late.
    pub async fn accept(&self, limited: LimitedIo) -> io::Result<InspectedIo> {
        let peer = limited.peer().clone();
        let configs = self.current.load_full();
        let acceptor = TlsAcceptor::from(Arc::clone(&configs.server));
        let mut stream = acceptor.accept(buffered(limited)).await?;
        stream.get_mut().1.set_buffer_limit(Some(WRITE_BYTES));
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let hosts = certified_hosts(chain, &configs.marked, &self.cluster);
        let hosts = hosts.map_err(io::Error::other)?;
        let trust = PeerTrust::new(chain, None);
        self.follow(&configs, &trust);
        Ok(InspectedIo::certified(Box::new(stream), peer, hosts, trust))
    }
}

impl Configs {
    /// Checks a peer as a handshake does now.
    fn check(&self, peer: &PeerTrust, cluster: &str) -> Result<(), String> {
        let Some((own, above)) = peer.chain.split_first() else { return Ok(()) };
        let (now, Verifiers { client, server }) = (UnixTime::now(), &self.verifiers);
        match peer.dialed.as_deref().map(ServerName::try_from) {
            None => client.verify_client_cert(own, above, now).map(drop),
            Some(Ok(name)) => server.verify_server_cert(own, above, &name, &[], now).map(drop),
            Some(Err(_)) => Ok(()),
        }
        .map_err(|error| {
            format!("the certificate of the peer does not verify any more: {error}")
        })?;
        let hosts = certified_hosts(&peer.chain, &self.marked, cluster);
        let checked = hosts.and_then(|hosts| match &peer.dialed {
            Some(host) => check_host(&hosts, host),
            None => Ok(()),
        });
        checked.map_err(|error| error.to_string())
    }
}

/// What checks the certificates of peers.
struct Verifiers {
    client: Arc<dyn ClientCertVerifier>,
    server: Arc<WebPkiServerVerifier>,
}

impl Verifiers {
    /// By these CAs, and the revocation lists if there are some. A CA needs no list.
    fn new(files: &TlsFiles, cas: Vec<CertificateDer<'static>>) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        for ca in cas {
            roots.add(ca).map_err(|error| failed(&files.ca, error))?;
        }
        let (roots, provider) = (Arc::new(roots), Arc::new(provider()));
        let lists = match &files.crl {
            Some(file) => revocation_lists(file)?,
            None => Vec::new(),
        };
        let file = files.crl.as_ref().unwrap_or(&files.ca);
        let unfit = |error| failed(file, error);
        let client =
            WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
                .with_crls(lists.clone())
                .allow_unknown_revocation_status()
                .build()
                .map_err(unfit)?;
        let server = WebPkiServerVerifier::builder_with_provider(roots, provider)
            .with_crls(lists)
            .allow_unknown_revocation_status()
            .build()
            .map_err(unfit)?;
        Ok(Self { client, server })
    }
}

fn revocation_lists(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsError> {
    let read = CertificateRevocationListDer::pem_file_iter(path);
    let lists = read.and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let lists = lists.map_err(|error| failed(path, error))?;
    match lists.is_empty() {
        true => Err(failed(path, "there is no revocation list in it: expected PEM")),
        false => Ok(lists),
    }
}

/// Whether a handshake failed because of a certificate.
pub fn is_distrust(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>() || inner.is::<NameError>())
}

/// A read buffer: rustls reads 4 KiB at a time, one system call each.
fn buffered<I: AsyncRead>(io: I) -> BufReader<I> {
    BufReader::with_capacity(READ_BYTES, io)
}

fn configs(files: &TlsFiles) -> Result<Configs, TlsError> {
    let cas = certificates(&files.ca)?;
    let marked = MarkedCas::among(&cas);
    let verifiers = Verifiers::new(files, cas)?;
    let chain = certificates(&files.cert)?;
    check_mode(&files.key)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failed(&files.key, error))?;
    let provider = Arc::new(provider());
    let unfit = |error: rustls::Error| failed(&files.cert, unfit(&error));
    let signing_key = provider.key_provider.load_private_key(key.clone_key()).map_err(unfit)?;
    let signer = Signer::new(&*signing_key, &chain).map_err(|error| failed(&files.cert, error))?;
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(unfit)?
        .with_client_cert_verifier(Arc::clone(&verifiers.client))
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unfit)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    // A resumed session would pass over the check of the certificate. Links are long.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(unfit)?
        .with_webpki_verifier(Arc::clone(&verifiers.server))
        .with_client_auth_cert(chain, key)
        .map_err(unfit)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    client.resumption = Resumption::disabled();
    Ok(Configs {
        verifiers,
        marked,
        server: Arc::new(server),
        client: Arc::new(client),
        signer: Arc::new(signer),
        signers: Signers::default(),
    })
}

/// Refuses a key that every user can read. Its group may: the service's user must.
fn check_mode(key: &Path) -> Result<(), TlsError> {
    const OTHERS: u32 = 0o007;
    let mode = fs::metadata(key).map_err(|error| failed(key, error))?.mode() & 0o777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    let place = key.display();
    Err(failed(
        key,
        format!(
            "every user can use this private key (mode {mode:04o}): change its group to the \
             group of the agent (chgrp) and run: chmod 640 {place}"
        ),
    ))
}

/// Why this agent cannot use its own certificate. `openssl x509` makes version 1 if no names are
/// given.
fn unfit(error: &rustls::Error) -> String {
    let text = error.to_string();
    match text.contains("UnsupportedCertVersion") {
        true => "it is of X.509 version 1, which has no subject alternative names: make one with \
                 the name of this host among them"
            .to_owned(),
        false => format!("with its key: {text}"),
    }
}

/// Checks this agent's own certificate as other agents do: it must be for `host`. Other problems
/// are returned as a warning, because they may be temporary (the clock is not set yet) or local
/// (the CA is being replaced).
///
/// # Errors
/// [`TlsError`] names the hosts or the cluster in the certificate.
pub fn examine(files: &TlsFiles, cluster: &str, host: &str) -> Result<Option<String>, TlsError> {
    let chain = certificates(&files.cert)?;
    let Some((own, above)) = chain.split_first() else { return Ok(None) };
    let cas = certificates(&files.ca)?;
    let names = certified_hosts(&chain, &MarkedCas::among(&cas), cluster);
    let names = names.map_err(|error| failed(&files.cert, error))?;
    if check_host(&names, host).is_err() {
        let reason = format!(
            "it is for {}, and other agents would refuse {host} with it: make one with {host} \
             among its subject alternative names",
            names::in_words(&names)
        );
        return Err(failed(&files.cert, reason));
    }
    let verifier = Verifiers::new(files, cas)?.client;
    let verified = verifier.verify_client_cert(own, above, UnixTime::now());
    Ok(verified.err().map(|error| {
        format!(
            "{}: agents with {} would refuse it: {error}",
            files.cert.display(),
            files.ca.display()
        )
    }))
}

/// Prefers AES with 128 bits, as most servers and browsers do: it is secure, and takes a quarter
/// less time than 256 bits.
fn provider() -> CryptoProvider {
    let mut provider = rustls::crypto::ring::default_provider();
    let preferred = CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != preferred);
    provider
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certs = read.map_err(|error| failed(path, error))?;
    match certs.is_empty() {
        true => Err(failed(path, "there is no certificate in it: expected PEM")),
        false => Ok(certs),
    }
}
