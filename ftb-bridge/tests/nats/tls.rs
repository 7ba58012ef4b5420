//! NATS by TLS: who may vouch for the server, under which name, and for the bridge.

use super::said;
use super::site::Site;
use anyhow::Result;
use ftb_tests::cluster::Plan;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    ca: PathBuf,
}

impl Authority {
    fn new(folder: &Path, name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let ca = folder.join(format!("{name}.pem"));
        fs::write(&ca, params.self_signed(&key)?.pem())?;
        Ok(Self { issuer: Issuer::new(params, key), folder: folder.to_owned(), ca })
    }

    /// Certificate and key, valid for a name or an address.
    fn issue(&self, file: &str, name: &str) -> Result<[PathBuf; 2]> {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?;
        let files = ["pem", "key"].map(|kind| self.folder.join(format!("{file}.{kind}")));
        fs::write(&files[0], certificate.signed_by(&key, &self.issuer)?.pem())?;
        fs::write(&files[1], key.serialize_pem())?;
        fs::set_permissions(&files[1], fs::Permissions::from_mode(0o600))?;
        Ok(files)
    }
}

/// Runs a new bridge until the server has ended a connection for that reason; nothing is exported.
async fn is_refused(site: &mut Site, keys: &str, why: &str) -> Result<()> {
    let before = site.nats_log().matches(why).count();
    site.start_new_bridge(keys)?;
    site.wait(why, async || Ok((site.nats_log().matches(why).count() > before).then_some(())))
        .await?;
    site.kill_bridge(0)?;
    assert_eq!(site.state(0).export.exported, 0, "{keys}");
    Ok(())
}

/// Runs a new bridge until it has exported.
async fn exports(site: &mut Site, keys: &str) -> Result<()> {
    site.client(0)?.publish(said(0))?.confirmed().await?;
    site.start_new_bridge(keys)?;
    site.wait("the event", async || Ok((site.state(0).export.exported > 0).then_some(()))).await?;
    site.kill_bridge(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_server_that_the_ca_vouches_for_gets_events_and_only_a_known_bridge_may_send() {
    let mut site = Site::without_nats(Plan::new(1, 1)).await.unwrap();
    let folder = site.cluster.dir().to_owned();
    let ours = Authority::new(&folder, "ours").unwrap();
    let other = Authority::new(&folder, "other").unwrap();
    let (right, wrong) = (site.nats_ip().to_owned(), "nats.example.org".to_owned());
    let [cert, key] = ours.issue("server", &right).unwrap();
    let [misnamed, misnamed_key] = ours.issue("misnamed", &wrong).unwrap();
    let [bridge, bridge_key] = ours.issue("bridge", "bridge").unwrap();
    let [stranger, stranger_key] = other.issue("stranger", "bridge").unwrap();
    let ca = |authority: &Authority| format!("ca = {:?}\n", authority.ca);
    let with = |cert: &PathBuf, key: &PathBuf| format!("cert = {cert:?}\nkey = {key:?}\n");
    let server = |cert: &PathBuf, key: &PathBuf, more: &str| {
        format!("tls {{ cert_file: {cert:?}, key_file: {key:?} {more} }}\n")
    };

    site.configure_nats(&server(&misnamed, &misnamed_key, "")).unwrap();
    site.start_nats().unwrap();
    let bad = "remote error: tls: ";
    is_refused(&mut site, &ca(&ours), bad).await.unwrap();
    site.kill_nats().unwrap();

    site.configure_nats(&server(&cert, &key, "")).unwrap();
    site.start_nats().unwrap();
    is_refused(&mut site, &ca(&other), "unknown certificate authority").await.unwrap();
    exports(&mut site, &ca(&ours)).await.unwrap();
    site.kill_nats().unwrap();

    // The server wants to know the bridge.
    let knows = format!(", ca_file: {:?}, verify: true", ours.ca);
    site.configure_nats(&server(&cert, &key, &knows)).unwrap();
    site.start_nats().unwrap();
    let nameless = "client didn't provide a certificate";
    is_refused(&mut site, &ca(&ours), nameless).await.unwrap();
    let unknown = ca(&ours) + &with(&stranger, &stranger_key);
    let unknown_ca = "certificate signed by unknown authority";
    is_refused(&mut site, &unknown, unknown_ca).await.unwrap();
    exports(&mut site, &(ca(&ours) + &with(&bridge, &bridge_key))).await.unwrap();
}
