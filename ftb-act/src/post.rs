//! Requests to web servers: HTTP/1.1, with TLS for https.

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_rustls::TlsConnector;

/// The bundle of the system, as Debian and its kin, then as RHEL and its kin have it.
const SYSTEM: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];
/// The pause before a request is sent again, for the first time; each further one is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Longest attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(20);

/// Checks an address.
///
/// # Errors
/// What is wrong with it.
pub fn check_url(url: &str) -> Result<Uri, String> {
    let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    match (uri.scheme_str(), uri.host()) {
        (Some("http" | "https"), Some(_)) if has_user => {
            Err("an address with a user or password is not supported: remove what is before @"
                .into())
        }
        (Some("http" | "https"), Some(_)) => Ok(uri),
        _ => Err(format!("{url:?} is no address: expected http://HOST/ or https://HOST/")),
    }
}

/// The server of an address. The rest of an address is often a secret; what happened to a request
/// is published.
fn server_of(url: &str) -> String {
    let uri = check_url(url).ok();
    let authority = uri.and_then(|uri| uri.authority().map(|authority| authority.to_string()));
    authority.unwrap_or_default()
}

/// Sends requests.
#[derive(Clone)]
pub struct Poster {
    tls: TlsConnector,
}

impl Poster {
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

    /// Posts JSON, again and again until the server takes it (2xx) or the time is over. `key` makes
    /// repetitions known to the server. Gives whether it was taken, and what happened, without the
    /// path of the address.
    pub async fn post(
        &self,
        url: &str,
        key: &str,
        body: &str,
        time_limit: Duration,
    ) -> (bool, String) {
        let deadline = Instant::now() + time_limit;
        let server = server_of(url);
        let mut pause = RETRY_FIRST;
        let mut why = String::new();
        loop {
            let end = deadline.min(Instant::now() + ATTEMPT_MAX);
            match timeout_at(end, self.attempt(url, key, body)).await {
                Ok(Ok(status)) if (200..300).contains(&status) => {
                    return (true, format!("{server}: {status}"));
                }
                Ok(Ok(status)) => why = format!("status {status}"),
                Ok(Err(problem)) => why = problem,
                Err(_) if why.is_empty() => why = "no answer".to_owned(),
                Err(_) => {}
            }
            if Instant::now() + pause >= deadline {
                return (false, format!("{server}: {why}; given up after {time_limit:?}"));
            }
            sleep(pause).await;
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    async fn attempt(&self, url: &str, key: &str, body: &str) -> Result<u16, String> {
        let uri = check_url(url)?;
        let is_tls = uri.scheme_str() == Some("https");
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
        let stream = TcpStream::connect((&host[..], port)).await.map_err(|e| e.to_string())?;
        let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
        let request = http::Request::post(uri.path_and_query().map_or("/", |path| path.as_str()))
            .header("host", authority)
            .header("content-type", "application/json")
            .header("idempotency-key", key)
            .header("user-agent", "ftb-act")
            .body(body.to_owned())
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_happened_does_not_show_the_secret_in_an_address() {
        assert_eq!(server_of("https://hooks.example.org:8443/T0/SECRET"), "hooks.example.org:8443");
        assert!(check_url("https://token@hooks.example.org/").is_err());
    }
}
