//! Mutual TLS between agents.
//!
//! Responsible for: certificates from files (read again on SIGHUP), handshakes, and the host names
//! that a peer's certificate vouches for. Both sides present a certificate of the cluster's own CA;
//! the one that dials demands the name of the host it meant, the one that accepts hands the names
//! on, so that the tree can refuse a host that calls itself another. Not responsible for: what the
//! names allow.

use crate::gate::{Guarded, Served};
use crate::world::BoxIo;
use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::{CipherSuite, ClientConfig, RootCertStore, ServerConfig};
use serde::Deserialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, BufReader};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Most host names that one certificate is believed to vouch for.
const CERTIFIED_HOSTS_MAX: usize = 64;
/// What both sides speak inside: HTTP/2.
const ALPN: &[u8] = b"h2";

/// What is read at once, in bytes: eight records of TLS. A link's buffer of that size takes memory as far
/// as it was ever filled.
const READ_BYTES: usize = 128 * 1024;

/// What is encrypted at most before it is written, in bytes: a whole frame of a link goes out with one
/// call of the system. Who writes more waits until that is on its way.
const WRITE_BYTES: usize = 256 * 1024;

/// Where the certificates are.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// PEM: the CA (or several) that signs the certificates of agents.
    pub ca: PathBuf,
    /// PEM: this agent's certificate chain, its own first; its subject alternative names must have
    /// this host's name as it stands in the member list.
    pub cert: PathBuf,
    /// PEM: the private key of `cert`.
    pub key: PathBuf,
}

/// Why certificates cannot be used: one line that names the file.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct TlsError {
    path: String,
    reason: String,
}

fn failed(path: &Path, reason: impl ToString) -> TlsError {
    TlsError { path: path.display().to_string(), reason: reason.to_string() }
}

/// The agent's side of every handshake.
pub struct Tls {
    current: ArcSwap<Configs>,
}

struct Configs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`] names the file and what is wrong with it.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        Ok(Self { current: ArcSwap::from_pointee(configs(files)?) })
    }

    /// Reads the files again; links that are up stay up. What [`examine`] says of them is given back.
    ///
    /// # Errors
    /// As [`Tls::load`] and [`examine`]; what was read before stays in use.
    pub fn reload(&self, files: &TlsFiles, host: &str) -> Result<Option<String>, TlsError> {
        let configs = configs(files)?;
        let doubt = examine(files, host)?;
        self.current.store(Arc::new(configs));
        Ok(doubt)
    }

    /// The handshake as the one that dialed: the peer must be `host`.
    ///
    /// # Errors
    /// The peer is not who it should be, does not know us, or speaks no TLS.
    pub async fn connect(&self, io: BoxIo, host: &str) -> io::Result<BoxIo> {
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| io::Error::other(format!("{host:?} can stand in no certificate")))?;
        let connector = TlsConnector::from(Arc::clone(&self.current.load().client));
        let mut stream = connector.connect(name, ahead(io)).await?;
        stream.get_mut().1.set_buffer_limit(Some(WRITE_BYTES));
        Ok(Box::new(stream))
    }

    /// The handshake as the one that was dialed.
    ///
    /// # Errors
    /// The peer has no certificate of our CA, speaks no TLS, or its hello was late.
    pub async fn accept(&self, guarded: Guarded) -> io::Result<Served> {
        let peer = guarded.peer().clone();
        let acceptor = TlsAcceptor::from(Arc::clone(&self.current.load().server));
        let mut stream = acceptor.accept(ahead(guarded)).await?;
        stream.get_mut().1.set_buffer_limit(Some(WRITE_BYTES));
        let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let hosts = chain.first().map(certified_hosts).unwrap_or_default();
        Ok(Served::certified(Box::new(stream), peer, hosts))
    }
}

/// Reads ahead: TLS itself reads 4 KiB at a time, and each would be a call of the system.
fn ahead<I: AsyncRead>(io: I) -> BufReader<I> {
    BufReader::with_capacity(READ_BYTES, io)
}

fn configs(files: &TlsFiles) -> Result<Configs, TlsError> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(&files.ca)? {
        roots.add(cert).map_err(|error| failed(&files.ca, error))?;
    }
    let roots = Arc::new(roots);
    let chain = certificates(&files.cert)?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| failed(&files.key, error))?;
    let provider = Arc::new(provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| failed(&files.ca, error))?;
    let unfit = |error: rustls::Error| failed(&files.cert, unfit(&error));
    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(unfit)?;
    server.alpn_protocols = vec![ALPN.to_vec()];
    let mut client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(unfit)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .map_err(unfit)?;
    client.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Configs { server: Arc::new(server), client: Arc::new(client) })
}

/// Why this agent cannot use its own certificate. Version 1 is what `openssl x509` makes where nobody says
/// which names are to be in it.
fn unfit(error: &rustls::Error) -> String {
    let text = error.to_string();
    match text.contains("UnsupportedCertVersion") {
        true => "it is of X.509 version 1, which has no subject alternative names: make one with the name of \
                 this host among them"
            .to_owned(),
        false => format!("with its key: {text}"),
    }
}

/// Looks at this agent's own certificate as other agents will: it must be for `host`. What else they would
/// hold against it is given as words and no error: it may be right in a moment (the clock is not set yet) or
/// elsewhere (a CA that is being changed).
///
/// # Errors
/// [`TlsError`] says whom it is for.
pub fn examine(files: &TlsFiles, host: &str) -> Result<Option<String>, TlsError> {
    let chain = certificates(&files.cert)?;
    let Some((own, above)) = chain.split_first() else { return Ok(None) };
    let names = certified_hosts(own);
    if !names.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        let whom = match names.is_empty() {
            true => "no host".to_owned(),
            false => names.join(", "),
        };
        let reason = format!(
            "it is for {whom}, and other agents would refuse {host} with it: make one with \
             {host} among its subject alternative names"
        );
        return Err(failed(&files.cert, reason));
    }
    let mut roots = RootCertStore::empty();
    for cert in certificates(&files.ca)? {
        roots.add(cert).map_err(|error| failed(&files.ca, error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()))
            .build()
            .map_err(|error| failed(&files.ca, error))?;
    let judged = verifier.verify_client_cert(own, above, UnixTime::now());
    Ok(judged.err().map(|error| {
        format!(
            "{}: agents with {} would refuse it: {error}",
            files.cert.display(),
            files.ca.display()
        )
    }))
}

/// AES with 128 bits first, as most servers and browsers have it: nobody breaks that either, and it takes a
/// quarter less time than 256 bits. A peer that knows only others gets one of those.
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

/// The DNS names among the subject alternative names.
fn certified_hosts(cert: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, cert)) = X509Certificate::from_der(cert) else { return Vec::new() };
    let Ok(Some(names)) = cert.subject_alternative_name() else { return Vec::new() };
    let dns = |name: &GeneralName<'_>| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    };
    names.value.general_names.iter().filter_map(dns).take(CERTIFIED_HOSTS_MAX).collect()
}
