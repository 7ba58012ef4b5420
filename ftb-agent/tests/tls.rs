//! Mutual TLS between agents: who has no certificate of the cluster's CA, or one of another host,
//! gets no link.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Lone, channel_over, soon, until};
use ftb_agent::agent::Agent;
use ftb_agent::config::Config;
use ftb_agent::system;
use ftb_proto::v1::link_client::LinkClient;
use ftb_transport::tls::{Tls, TlsFiles};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use tokio::net::TcpStream;

/// A CA and the folder that its certificates go to.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    fn new(dir: &Path) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap();
        std::fs::write(dir.join("ca.pem"), cert.pem()).unwrap();
        Self { issuer: Issuer::new(params, key), dir: dir.to_owned() }
    }

    /// Writes a certificate for a host.
    fn issue(&self, file: &str, host: &str) -> TlsFiles {
        self.issue_for(file, &[host])
    }

    /// One for a host of several names.
    fn issue_for(&self, file: &str, hosts: &[&str]) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let params = CertificateParams::new(hosts).unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            ca: self.dir.join("ca.pem"),
            cert: self.dir.join(format!("{file}.pem")),
            key: self.dir.join(format!("{file}.key")),
        };
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}

/// One agent of two, with certificates; `addresses` has where both listen.
fn config(dir: &Path, host: &str, files: &TlsFiles, addresses: &[(&str, u16)]) -> Config {
    let mut table = String::new();
    for (host, port) in addresses {
        table.push_str(&format!("{host} = \"127.0.0.1:{port}\"\n"));
    }
    let port = addresses.iter().find(|(name, _)| *name == host).map_or(0, |(_, port)| *port);
    let text = format!(
        "cluster = \"test\"\nmembers = \"node01,node02\"\nhost = \"{host}\"\n\
         listen = \"127.0.0.1:{port}\"\nsocket = \"{}\"\n[tls]\nca = \"{}\"\ncert = \"{}\"\n\
         key = \"{}\"\n[detection]\nsearch = \"200ms\"\nprobe = \"100ms\"\n[addresses]\n{table}",
        dir.join(format!("{host}.sock")).display(),
        files.ca.display(),
        files.cert.display(),
        files.key.display(),
    );
    Config::parse("test", &text).unwrap()
}

async fn start(config: Config) -> Agent {
    Agent::start(config, "ignored", 0, system::world()).await.unwrap()
}

fn port_of(agent: &Agent) -> u16 {
    agent.address.rsplit_once(':').unwrap().1.parse().unwrap()
}

fn counter(agent: &Agent, name: &str) -> u64 {
    let counters = agent.peer_errors().counters();
    counters.iter().find(|(kind, _)| *kind == name).map_or(0, |(_, count)| *count)
}

#[tokio::test]
async fn agents_with_certificates_of_their_hosts_link() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let first = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    let at = [("node01", port_of(&first))];
    let second = start(config(dir.path(), "node02", &ca.issue("2", "node02"), &at)).await;
    until("a link", async || {
        let status = second.handle().status().await.unwrap().node;
        status.parent.as_deref() == Some("node01")
    })
    .await;
    second.stop().await;
    first.stop().await;
}

#[tokio::test]
async fn a_host_that_calls_itself_another_gets_no_link() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let first = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    let at = [("node01", port_of(&first))];
    // The CA knows this host, but as node07.
    let second = start(config(dir.path(), "node02", &ca.issue("2", "node07"), &at)).await;
    until("a refusal", async || {
        let counters = first.handle().status().await.unwrap().node.counters;
        counters.iter().any(|(name, count)| *name == "refused" && *count > 0)
    })
    .await;
    assert_eq!(second.handle().status().await.unwrap().node.parent, None);
}

/// Being in no list is no way round the certificates: the host must be the one that they name.
#[tokio::test]
async fn a_host_that_is_not_listed_needs_a_certificate_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let first = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    let at = [("node01", port_of(&first))];
    let false_guest = start(config(dir.path(), "guest1", &ca.issue("2", "node02"), &at)).await;
    until("a refusal", async || {
        let counters = first.handle().status().await.unwrap().node.counters;
        counters.iter().any(|(name, count)| *name == "refused" && *count > 0)
    })
    .await;
    assert_eq!(false_guest.handle().status().await.unwrap().node.parent, None);
    let guest = start(config(dir.path(), "guest2", &ca.issue("3", "guest2"), &at)).await;
    until("a link", async || {
        let status = guest.handle().status().await.unwrap().node;
        status.parent.as_deref() == Some("node01") && status.rank.is_some_and(|r| r.is_unlisted())
    })
    .await;
}

#[tokio::test]
async fn the_one_that_dials_demands_the_host_it_meant() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let server = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    let tls = Tls::load(&ca.issue("2", "node02")).unwrap();
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    assert!(soon("a handshake", tls.connect(Box::new(tcp), "node01")).await.is_ok());
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    let error = soon("a handshake", tls.connect(Box::new(tcp), "node03")).await.err().unwrap();
    assert!(error.to_string().contains("not valid for name"), "{error}");
}

#[tokio::test]
async fn a_stranger_and_a_plain_speaker_are_dropped_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let server = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;

    // Another CA that the stranger trusts beside ours.
    let other = Authority::new(&dir.path().join("other"));
    let mut files = other.issue("2", "node02");
    files.ca = dir.path().join("ca.pem");
    let tls = Tls::load(&files).unwrap();
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    // In TLS 1.3 the client learns of its refusal with the first answer.
    if let Ok(io) = soon("a handshake", tls.connect(Box::new(tcp), "node01")).await
        && let Ok(channel) = channel_over(io).await
    {
        let exchange = LinkClient::new(channel).exchange(tokio_stream::pending()).await;
        assert!(exchange.is_err());
    }
    until("the stranger to be counted", async || counter(&server, "handshake_failed") == 1).await;

    let tcp = TcpStream::connect(&server.address).await.unwrap();
    let plain = async {
        let channel = channel_over(Box::new(tcp)).await?;
        let exchange = LinkClient::new(channel).exchange(tokio_stream::pending()).await;
        exchange.map_err(std::io::Error::other)
    };
    assert!(soon("an end", plain).await.is_err());
    until("the other to be counted", async || counter(&server, "handshake_failed") == 2).await;
}

/// No agent dials it, so nothing else shows its administrator why it is alone.
#[tokio::test]
async fn the_one_that_dials_says_that_it_does_not_trust_whom_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let first = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    let at = [("node01", port_of(&first))];
    let other = Authority::new(&dir.path().join("other"));
    let second = start(config(dir.path(), "node02", &other.issue("2", "node02"), &at)).await;
    until("the handshake", async || counter(&second, "handshake_failed") > 0).await;
    assert_eq!(second.handle().status().await.unwrap().node.parent, None);
}

#[tokio::test]
async fn new_certificates_count_from_the_reload_and_bad_ones_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let files = ca.issue("1", "node01");
    let mut server = start(config(dir.path(), "node01", &files, &[])).await;
    let address = server.address.clone();
    let tls = Tls::load(&ca.issue("2", "node02")).unwrap();
    let is = async |host: &str| {
        let tcp = TcpStream::connect(&address).await.unwrap();
        soon("a handshake", tls.connect(Box::new(tcp), host)).await.is_ok()
    };
    assert!(is("node01").await && !is("renamed").await);
    ca.issue_for("1", &["node01", "renamed"]);
    server.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    assert!(is("node01").await && is("renamed").await);
    std::fs::write(&files.key, "no key").unwrap();
    server.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    assert!(is("renamed").await);
    // A certificate for another host is not taken either.
    ca.issue("1", "another");
    server.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    assert!(is("node01").await && !is("another").await);
}

#[tokio::test]
async fn a_plain_agent_does_not_link_over_tls_by_mistake() {
    // The other way round: a server that speaks in the clear, dialed with TLS.
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let lone = Lone::start("[limits]\nhello = \"500ms\"\n").await;
    let tls = Tls::load(&ca.issue("2", "node02")).unwrap();
    let tcp = TcpStream::connect(&lone.agent.address).await.unwrap();
    assert!(soon("an end", tls.connect(Box::new(tcp), "node01")).await.is_err());
}

/// What an administrator asks before the agent is started: whether the others would take this
/// certificate.
#[test]
fn the_check_refuses_a_certificate_of_another_host() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let check = |files: &TlsFiles| {
        let path = dir.path().join("agent.toml");
        let text = format!(
            "cluster = \"test\"\nmembers = \"node01,node02\"\nhost = \"node02\"\n[tls]\n\
             ca = {:?}\ncert = {:?}\nkey = {:?}\n",
            files.ca, files.cert, files.key
        );
        std::fs::write(&path, text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ftb-agent"));
        let output = command.arg("--check-config").arg("--config").arg(&path).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(check(&ca.issue("2", "node02")), (Some(0), String::new()));
    assert_eq!(check(&ca.issue("3", "NODE02")), (Some(0), String::new()));
    let (code, output) = check(&ca.issue("1", "node01"));
    assert_eq!(code, Some(2), "{output}");
    assert!(
        output.contains("1.pem: it is for node01, and other agents would refuse node02"),
        "{output}"
    );
    assert_eq!(output.lines().count(), 1, "{output}");
    // Of another CA: reported, and no mistake for sure, since the others may know both.
    let other = Authority::new(&dir.path().join("other"));
    let mut files = other.issue("2", "node02");
    files.ca = dir.path().join("ca.pem");
    let (code, output) = check(&files);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("would refuse it") && output.lines().count() == 1, "{output}");
}
