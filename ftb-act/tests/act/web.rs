//! Web servers with TLS: who may vouch for them, and under which name.

use crate::next;
use crate::site::{Pager, Site};
use ftb_client::{Start, Truth};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::sync::Arc;

/// An authority of that name; its certificate as PEM.
fn authority(name: &str) -> (Issuer<'static, KeyPair>, String) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = params.self_signed(&key).unwrap().pem();
    (Issuer::new(params, key), pem)
}

/// A server with a certificate for that name.
fn server(name: &str, issuer: &Issuer<'static, KeyPair>) -> Pager {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let chain = vec![params.signed_by(&key, issuer).unwrap().der().clone()];
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Pager::secure(builder.with_single_cert(chain, key).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_server_of_an_unknown_authority_or_another_name_gets_nothing() {
    let (issuer, pem) = authority("site");
    let (unknown, _) = authority("unknown");
    let good = server("localhost", &issuer);
    let other = server("pager.example.org", &issuer);
    let stranger = server("localhost", &unknown);
    let mut site = Site::new("").await;
    let ca = site.cluster.dir().join("web-ca.pem");
    std::fs::write(&ca, pem).unwrap();
    let text = std::fs::read_to_string(&site.config).unwrap();
    std::fs::write(&site.config, format!("ca = {ca:?}\n{text}")).unwrap();
    for (name, pager) in [("other", &other), ("stranger", &stranger), ("good", &good)] {
        let port = pager.address.rsplit(':').next().unwrap();
        // The good one has the time that a slow machine needs.
        let limit = if name == "good" { "10m" } else { "20s" };
        site.add(&format!(
            "[[rule]]\nname = \"{name}\"\nconditions = [\"{name}\"]\nthen = \"webhook\"\n\
             url = \"https://localhost:{port}/page\"\nwithin = \"1ms\"\n\
             time_limit = \"{limit}\"\n"
        ));
    }
    let mut events = site.client.subscribe("event_space=ftb.act", Start::Now).await.unwrap();
    site.start();
    let wrong = [
        (&other, "OTHER", "certificate not valid for name \"localhost\""),
        (&stranger, "STRANGER", "invalid peer certificate: UnknownIssuer"),
    ];
    for (pager, key, why) in wrong {
        site.state("n01", key, Truth::True).await;
        let [_, rule, result] = next(&mut events, "FTB_ACT_FAILED").await;
        assert_eq!(rule, key.to_ascii_lowercase());
        assert!(result.contains(why), "{result}");
        // It was reached, and has seen the end of a handshake, but no request.
        assert!(!pager.refusals().is_empty());
        assert_eq!(pager.requests(), []);
    }
    site.state("n02", "GOOD", Truth::True).await;
    site.wait("the page", async || (!good.requests().is_empty()).then_some(())).await;
    let requests = good.requests();
    assert_eq!(requests[0].1["hosts"], "n02", "{requests:?}");
    site.wait("the end", async || (site.orders("over") == 3).then_some(())).await;
}
