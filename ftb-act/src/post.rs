//! Requests to web servers, repeated until one is taken.

use ftb_transport::web::WebClient;
use http::Uri;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep, timeout_at};

/// The pause before a request is sent again, for the first time; each further one is twice as long.
const RETRY_FIRST: Duration = Duration::from_millis(200);
/// The longest pause.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// Longest attempt.
const ATTEMPT_MAX: Duration = Duration::from_secs(20);
/// A request that no server has taken for this time is reported. It is repeated all the same.
const LATE_AFTER: Duration = Duration::from_secs(60);
/// Most attempts at a time for one server: one that does not answer holds up no other.
const ATTEMPTS_MAX: usize = 4;

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
    late_after: Duration,
    /// By server: those of the rules.
    attempts: Arc<Mutex<BTreeMap<String, Arc<Semaphore>>>>,
}

impl Poster {
    /// Trusts these CAs; without a file those of the system, if it has any.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn new(ca: Option<&Path>) -> Result<Self, String> {
        let web = WebClient::new(ca)?;
        Ok(Self { web, late_after: LATE_AFTER, attempts: Arc::default() })
    }

    /// What limits the attempts for a server.
    fn attempts_of(&self, server: &str) -> Arc<Semaphore> {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(Semaphore::new(ATTEMPTS_MAX));
        Arc::clone(attempts.entry(server.to_owned()).or_insert_with(made))
    }

    /// Posts JSON, again and again until the server takes it (2xx) or the time is over. `key` makes
    /// repetitions known to the server. Gives whether it was taken, and what happened, without the
    /// path of the address. `late` is called once, with the same, if it is not taken for a minute.
    pub async fn post(
        &self,
        url: &str,
        key: &str,
        body: &str,
        time_limit: Duration,
        late: impl FnOnce(String),
    ) -> (bool, String) {
        let began = Instant::now();
        let deadline = began + time_limit;
        let mut late = Some(late);
        let server = server_of(url);
        let attempts = self.attempts_of(&server);
        let mut pause = RETRY_FIRST;
        let mut why = String::new();
        loop {
            let turn = timeout_at(deadline, attempts.acquire()).await;
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
            drop(turn);
            if began.elapsed() >= self.late_after
                && let Some(late) = late.take()
            {
                late(format!("{server}: {why}; it is repeated"));
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

    #[tokio::test]
    async fn a_server_that_does_not_answer_holds_up_no_other() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (closed, limit) = ("http://127.0.0.1:1/", Duration::from_secs(3_600));
        let url = format!("http://{}/", silent.local_addr().unwrap());
        let poster = Poster::new(None).unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..3 * ATTEMPTS_MAX {
            let (poster, url) = (poster.clone(), url.clone());
            tasks.spawn(async move { poster.post(&url, "k", "{}", limit, drop).await });
        }
        let of_silent = poster.attempts_of(&server_of(&url));
        while of_silent.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let (is_done, text) = poster.post(closed, "k", "{}", Duration::from_millis(1), drop).await;
        assert!(!is_done && text.starts_with("127.0.0.1:1: "), "{text}");
        assert_eq!(of_silent.available_permits(), 0, "it still waits for the silent one");
    }

    #[tokio::test]
    async fn a_request_that_is_not_taken_is_reported_once_while_it_is_repeated() {
        let mut poster = Poster::new(None).unwrap();
        let post = async |poster: &Poster| {
            let mut said = Vec::new();
            let url = "http://127.0.0.1:1/SECRET";
            let limit = Duration::from_secs(1);
            let (is_done, _) = poster.post(url, "k", "{}", limit, |why| said.push(why)).await;
            assert!(!is_done);
            said
        };
        assert_eq!(post(&poster).await, [""; 0], "a minute is not over");
        poster.late_after = Duration::ZERO;
        let said = post(&poster).await;
        assert!(said.len() == 1 && said[0].starts_with("127.0.0.1:1: "), "{said:?}");
        assert!(!said[0].contains("SECRET"), "{said:?}");
    }

    #[test]
    fn what_happened_does_not_show_the_secret_in_an_address() {
        assert_eq!(server_of("https://hooks.example.org:8443/T0/SECRET"), "hooks.example.org:8443");
        assert!(check_url("https://token@hooks.example.org/").is_err());
    }
}
