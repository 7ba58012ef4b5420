//! Requests to web servers, repeated until one is taken.

use ftb_transport::web::WebClient;
use http::Uri;
use std::path::Path;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

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

/// The server of an address. The rest of an address is often a secret; what happens to a request is
/// published, logged and printed.
pub(crate) fn server_of(url: &str) -> String {
    let uri = check_url(url).ok();
    let authority = uri.and_then(|uri| uri.authority().map(|authority| authority.to_string()));
    authority.unwrap_or_default()
}

/// Sends requests.
#[derive(Clone)]
pub struct Poster {
    web: WebClient,
}

impl Poster {
    /// Trusts these CAs; without a file those of the system, if it has any.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(ca: Option<&Path>) -> Result<Self, String> {
        Ok(Self { web: WebClient::new(ca)? })
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
        let headers =
            http::Request::builder().header("idempotency-key", key).header("user-agent", "ftb-act");
        self.web.post(&check_url(url)?, headers, body.to_owned()).await
    }
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
