//! Requests to web servers: HTTP/1.1, with TLS for https. One connection for each request.
//!
//! Responsible for: which servers are trusted, and one attempt. Not responsible for: deadlines,
//! repetitions, what a status code means.

use http::Uri;
use http::request::Builder;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The bundle of the system, as Debian and its kin, then as RHEL and its kin have it.
const SYSTEM: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Sends requests.
#[derive(Clone)]
pub struct WebClient {
    tls: TlsConnector,
}

impl WebClient {
    /// Trusts these CAs; without a file those of the system, if it has any.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(ca: Option<&Path>) -> Result<Self, String> {
        let system = SYSTEM.iter().map(Path::new).find(|path| path.exists());
        let mut roots = RootCertStore::empty();
        if let Some(path) = ca.or(system) {
            let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
            let found = CertificateDer::pem_file_iter(path).map_err(|error| wrong(&error))?;
            let found: Result<Vec<_>, _> = found.collect();
            roots.add_parsable_certificates(found.map_err(|error| wrong(&error))?);
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { tls: TlsConnector::from(Arc::new(config)) })
    }

    /// Posts a body of JSON; gives the status code. `headers` has what the request needs besides
    /// host and type. Over https the server must have a certificate for the host of the address.
    ///
    /// # Errors
    /// What failed on the way: the name, the connection, the certificate, the answer.
    pub async fn post(&self, url: &Uri, headers: Builder, body: String) -> Result<u16, String> {
        let is_tls = url.scheme_str() == Some("https");
        let host = url.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((&host[..], port)).await.map_err(|e| e.to_string())?;
        let authority = url.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let request = headers
            .method("POST")
            .uri(url.path_and_query().map_or("/", |path| path.as_str()))
            .header("host", authority)
            .header("content-type", "application/json")
            .body(body)
            .map_err(|error| error.to_string())?;
        if !is_tls {
            return send(stream, request).await;
        }
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let stream = self.tls.connect(name, stream).await.map_err(|e| e.to_string())?;
        send(stream, request).await
    }
}

async fn send(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: http::Request<String>,
) -> Result<u16, String> {
    let opened = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = opened.map_err(|error| error.to_string())?;
    // It ends when the sender is gone.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await;
    connection.abort();
    Ok(answer.map_err(|error| error.to_string())?.status().as_u16())
}
