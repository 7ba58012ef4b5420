//! Mutual TLS between agents: who has no certificate of the cluster's CA, or one of another host,
//! gets no link.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Lone, channel_over, soon, until};
use ftb_agent::agent::Agent;
use ftb_agent::config::Config;
use ftb_agent::system;
use ftb_proto::v1::link_client::LinkClient;
use ftb_transport::tls::names;
use ftb_transport::tls::{self, Tls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer,
    KeyIdMethod, KeyPair, RevokedCertParams, SanType, SerialNumber, date_time_ymd,
};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// A CA and the folder that its certificates go to.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    dir: PathBuf,
}

impl Authority {
    fn new(dir: &Path) -> Self {
        Self::with_uris(dir, &[])
    }

    /// One that signs only certificates that name a cluster.
    fn marked(dir: &Path, cluster: &str) -> Self {
        Self::with_uris(dir, &[names::ca_mark(cluster)])
    }

    fn with_uris(dir: &Path, uris: &[String]) -> Self {
        std::fs::create_dir_all(dir).unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let uri = |uri: &String| SanType::URI(uri.as_str().try_into().unwrap());
        params.subject_alt_names = uris.iter().map(uri).collect();
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
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        self.sign(file, CertificateParams::new(hosts).unwrap())
    }

    /// One that names cluster and host.
    fn issue_in(&self, file: &str, cluster: &str, host: &str) -> TlsFiles {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let binding = names::binding(cluster, host);
        params.subject_alt_names.push(SanType::URI(binding.try_into().unwrap()));
        self.sign(file, params)
    }

    /// Revokes the certificates of these files, and no other.
    fn revoke(&self, files: &[&str]) -> PathBuf {
        let revoked = |file: &&str| RevokedCertParams {
            serial_number: SerialNumber::from_slice(file.as_bytes()),
            revocation_time: date_time_ymd(2026, 1, 1),
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2026, 1, 1),
            next_update: date_time_ymd(2099, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: files.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let path = self.dir.join("crl.pem");
        std::fs::write(&path, list.signed_by(&self.issuer).unwrap().pem().unwrap()).unwrap();
        path
    }

    fn sign(&self, file: &str, mut params: CertificateParams) -> TlsFiles {
        params.serial_number = Some(SerialNumber::from_slice(file.as_bytes()));
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let files = TlsFiles {
            ca: self.dir.join("ca.pem"),
            crl: None,
            cert: self.dir.join(format!("{file}.pem")),
            key: self.dir.join(format!("{file}.key")),
        };
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        allow(&files.key, 0o600);
        files
    }
}

fn allow(file: &Path, mode: u32) {
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// One agent of two, with certificates; `addresses` has where both listen.
fn config(dir: &Path, host: &str, files: &TlsFiles, addresses: &[(&str, u16)]) -> Config {
    let mut table = String::new();
    for (host, port) in addresses {
        table.push_str(&format!("{host} = \"127.0.0.1:{port}\"\n"));
    }
    let port = addresses.iter().find(|(name, _)| *name == host).map_or(0, |(_, port)| *port);
    let crl = files.crl.as_ref().map_or(String::new(), |crl| format!("crl = {crl:?}\n"));
    let text = format!(
        "cluster = \"test\"\nmembers = \"node[01-03]\"\nhost = \"{host}\"\n\
         listen = \"127.0.0.1:{port}\"\nsocket = \"{}\"\n[tls]\nca = \"{}\"\ncert = \"{}\"\n\
         key = \"{}\"\n{crl}[detection]\nsearch = \"200ms\"\n\
         probe = \"100ms\"\n[addresses]\n{table}",
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
    let tls = Tls::load(&ca.issue("2", "node02"), "test").unwrap();
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    assert!(soon("a handshake", tls.connect(Box::new(tcp), "node01")).await.is_ok());
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    let error = soon("a handshake", tls.connect(Box::new(tcp), "node03")).await.err().unwrap();
    assert!(error.to_string().contains("not valid for name"), "{error}");
    // A wildcard does not count here either.
    let wild = Authority::new(&dir.path().join("wild"));
    let wild_server =
        start(config(wild.dir.as_path(), "node01", &wild.issue_for("1", &["*.site.org"]), &[]));
    let (wild_server, tls) =
        (wild_server.await, Tls::load(&wild.issue("2", "node02"), "test").unwrap());
    let tcp = TcpStream::connect(&wild_server.address).await.unwrap();
    let error = soon("a handshake", tls.connect(Box::new(tcp), "a.site.org")).await.err().unwrap();
    assert!(error.to_string().contains("for *.site.org, not for a.site.org"), "{error}");
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
    let tls = Tls::load(&files, "test").unwrap();
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    // In TLS 1.3 the client learns of its refusal with the first answer.
    if let Ok((io, _)) = soon("a handshake", tls.connect(Box::new(tcp), "node01")).await
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
    let tls = Tls::load(&ca.issue("2", "node02"), "test").unwrap();
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
    let tls = Tls::load(&ca.issue("2", "node02"), "test").unwrap();
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
    assert_eq!(code, Some(64), "{output}");
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

/// One CA, two clusters: a host of one is no host of the other, and an old certificate without a
/// cluster is none at all below a CA that always names one.
#[tokio::test]
async fn a_certificate_of_another_cluster_of_the_same_ca_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::marked(dir.path(), "test");
    let first = ca.issue_in("1", "test", "node01");
    let first = start(config(dir.path(), "node01", &first, &[])).await;
    let at = [("node01", port_of(&first))];
    let mut refusals = 0;
    let cases = [
        (ca.issue_in("2", "other", "node02"), "for cluster \"other\", this agent is in cluster"),
        (ca.issue("4", "node02"), "names no cluster"),
    ];
    for (files, reason) in cases {
        // The agent itself says what is wrong with its certificate.
        let error = tls::examine(&files, "test", "node02").unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        let second = start(config(dir.path(), "node02", &files, &at)).await;
        until("a refusal", async || counter(&first, "handshake_failed") > refusals).await;
        assert_eq!(second.handle().status().await.unwrap().node.parent, None);
        second.stop().await;
        refusals = counter(&first, "handshake_failed");
    }
    // The one that dials looks for the cluster too.
    let tls = Tls::load(&ca.issue_in("3", "other", "node02"), "other").unwrap();
    let tcp = TcpStream::connect(&first.address).await.unwrap();
    let error = soon("a handshake", tls.connect(Box::new(tcp), "node01")).await.err().unwrap();
    assert!(error.to_string().contains("for cluster \"test\""), "{error}");
    let second = ca.issue_in("2", "test", "node02");
    let second = start(config(dir.path(), "node02", &second, &at)).await;
    until("a link", async || {
        let status = second.handle().status().await.unwrap().node;
        status.parent.as_deref() == Some("node01")
    })
    .await;
}

#[tokio::test]
async fn tls_before_version_1_3_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let server = start(config(dir.path(), "node01", &ca.issue("1", "node01"), &[])).await;
    // A ClientHello of TLS 1.2: two suites, P-256, ECDSA with SHA-256, ALPN is left out.
    let suites: &[u8] = &[0, 4, 0xc0, 0x2b, 0xc0, 0x2f];
    let extensions: &[u8] = &[
        0, 10, 0, 4, 0, 2, 0, 23, // supported_groups
        0, 11, 0, 2, 1, 0, // ec_point_formats
        0, 13, 0, 4, 0, 2, 4, 3, // signature_algorithms
        0, 23, 0, 0, // extended_master_secret
    ];
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).unwrap().to_be_bytes();
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.push(0);
    body.extend(suites);
    body.extend([1, 0]);
    body.extend(length(extensions));
    body.extend(extensions);
    let hello = [&[1, 0][..], &length(&body), &body].concat();
    let record = [&[22, 3, 1][..], &length(&hello), &hello].concat();
    let mut tcp = TcpStream::connect(&server.address).await.unwrap();
    tcp.write_all(&record).await.unwrap();
    let mut answer = [0; 7];
    soon("an answer", tcp.read_exact(&mut answer)).await.unwrap();
    // An alert: fatal, protocol_version.
    assert_eq!((answer[0], &answer[5..]), (21, &[2, 70][..]), "{answer:?}");
}

#[tokio::test]
async fn a_key_that_every_user_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let files = ca.issue("1", "node01");
    let mut server = start(config(dir.path(), "node01", &files, &[])).await;
    let tls = Tls::load(&ca.issue("2", "node02"), "test").unwrap();
    // At a reload the old certificate stays.
    ca.issue_for("1", &["node01", "renamed"]);
    allow(&files.key, 0o644);
    server.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    assert!(soon("a handshake", tls.connect(Box::new(tcp), "node01")).await.is_ok());
    let tcp = TcpStream::connect(&server.address).await.unwrap();
    assert!(soon("a handshake", tls.connect(Box::new(tcp), "renamed")).await.is_err());
    // At the start nothing listens.
    let refused = Agent::start(config(dir.path(), "node02", &files, &[]), "x", 0, system::world());
    let error = refused.await.err().unwrap().to_string();
    assert!(error.contains("(mode 0644)") && error.contains("chmod 640"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    allow(&files.key, 0o640);
    assert!(Tls::load(&files, "test").is_ok());
}

async fn is_below(agent: &Agent, parent: &str) -> bool {
    agent.handle().status().await.unwrap().node.parent.as_deref() == Some(parent)
}

#[tokio::test]
async fn a_reload_closes_the_links_of_revoked_certificates_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let ca = Authority::new(dir.path());
    let crl = ca.revoke(&[]);
    let issue = |file, host| TlsFiles { crl: Some(crl.clone()), ..ca.issue(file, host) };
    let files = issue("1", "node01");
    let mut first = start(config(dir.path(), "node01", &files, &[])).await;
    let at = [("node01", port_of(&first))];
    let second = start(config(dir.path(), "node02", &issue("2", "node02"), &at)).await;
    let third_files = issue("3", "node03");
    let mut third = start(config(dir.path(), "node03", &third_files, &at)).await;
    until("the tree", async || {
        is_below(&second, "node01").await && is_below(&third, "node01").await
    })
    .await;
    // A list that revokes none of them changes nothing.
    first.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    assert_eq!(counter(&first, "link_distrusted"), 0);
    ca.revoke(&["2"]);
    first.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    until("the end of the link", async || !is_below(&second, "node01").await).await;
    assert_eq!(counter(&first, "link_distrusted"), 1);
    // It tries again, and is refused.
    until("a refusal", async || counter(&first, "handshake_failed") > 0).await;
    assert!(!is_below(&second, "node01").await && is_below(&third, "node01").await);
    // The one that dialed closes too, when its parent is revoked.
    ca.revoke(&["1", "2"]);
    third.reload(config(dir.path(), "node03", &third_files, &at), 0).await;
    until("the end of the other", async || !is_below(&third, "node01").await).await;
    assert_eq!(counter(&third, "link_distrusted"), 1);
    // A broken list changes nothing.
    std::fs::write(&crl, "no list").unwrap();
    let error = Tls::load(&files, "test").err().unwrap().to_string();
    assert!(error.contains("crl.pem"), "{error}");
}

#[tokio::test]
async fn a_reload_closes_the_links_of_a_ca_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(dir.path()), Authority::new(&dir.path().join("new")));
    let both = dir.path().join("both.pem");
    let pem = |ca: &Authority| std::fs::read_to_string(ca.dir.join("ca.pem")).unwrap();
    std::fs::write(&both, pem(&old) + &pem(&new)).unwrap();
    let trusts_both = |files: TlsFiles| TlsFiles { ca: both.clone(), ..files };
    let files = trusts_both(new.issue("1", "node01"));
    let mut first = start(config(dir.path(), "node01", &files, &[])).await;
    let at = [("node01", port_of(&first))];
    let second = trusts_both(old.issue("2", "node02"));
    let second = start(config(dir.path(), "node02", &second, &at)).await;
    let third = trusts_both(new.issue("3", "node03"));
    let third = start(config(dir.path(), "node03", &third, &at)).await;
    until("the tree", async || {
        is_below(&second, "node01").await && is_below(&third, "node01").await
    })
    .await;
    std::fs::write(&both, pem(&new)).unwrap();
    first.reload(config(dir.path(), "node01", &files, &[]), 0).await;
    until("the end of the link", async || !is_below(&second, "node01").await).await;
    assert_eq!(counter(&first, "link_distrusted"), 1);
    assert!(is_below(&third, "node01").await);
}
