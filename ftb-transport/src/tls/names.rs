//! The names in a certificate: hosts, and the cluster that they belong to.
//!
//! A host is certified by a DNS name among the subject alternative names. A certificate of
//! `ftbctl ca` also has the URI `ftb://CLUSTER/HOST`, and its CA `ftb://CLUSTER`.
//! Such a CA is marked: below it every certificate must name cluster and host. Certificates of
//! other CAs may name hosts only. Dialing and accepting side apply the same rule. Not responsible
//! for: chains.

use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

/// Most names that are read from one certificate.
const NAMES_MAX: usize = 64;
/// The scheme of the names of clusters.
const SCHEME: &str = "ftb://";

/// The URI that binds a certificate to a cluster and a host.
pub fn binding(cluster: &str, host: &str) -> String {
    format!("{SCHEME}{cluster}/{host}")
}

/// The URI that marks a CA: all its certificates name cluster and host.
pub fn ca_mark(cluster: &str) -> String {
    format!("{SCHEME}{cluster}")
}

/// Why a certificate certifies no host of this cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// It is of another cluster.
    #[error("the certificate is for cluster {theirs:?}, this agent is in cluster {ours:?}")]
    Cluster {
        /// The cluster in the certificate.
        theirs: String,
        /// This agent's cluster.
        ours: String,
    },
    /// It names no cluster, but its CA promises one.
    #[error(
        "the certificate names no cluster, and its CA signs only certificates that do: make a new \
         one with the URI ftb://CLUSTER/HOST"
    )]
    Unbound,
    /// The dialed host is not among its hosts.
    #[error("the certificate is for {theirs}, not for {host}")]
    Host {
        /// The hosts in the certificate.
        theirs: String,
        /// The dialed host.
        host: String,
    },
}

/// The subjects of the marked CAs.
#[derive(Default)]
pub(super) struct MarkedCas(Vec<Vec<u8>>);

impl MarkedCas {
    /// The marked CAs among these.
    pub(super) fn among(cas: &[CertificateDer<'_>]) -> Self {
        let subject = |ca: &CertificateDer<'_>| {
            let (_, ca) = X509Certificate::from_der(ca).ok()?;
            let mut names = uris(&ca);
            names.any(|uri| uri.starts_with(SCHEME)).then(|| ca.subject().as_raw().to_vec())
        };
        Self(cas.iter().filter_map(subject).collect())
    }

    /// Whether a marked CA has signed a certificate of this chain.
    fn have_signed(&self, chain: &[CertificateDer<'_>]) -> bool {
        chain.iter().any(|cert| match X509Certificate::from_der(cert) {
            Ok((_, cert)) => self.0.iter().any(|subject| cert.issuer().as_raw() == subject),
            Err(_) => false,
        })
    }
}

/// The hosts of this cluster that a chain certifies; its own certificate comes first.
///
/// # Errors
/// [`NameError::Cluster`], [`NameError::Unbound`].
pub(super) fn certified_hosts(
    chain: &[CertificateDer<'_>],
    marked: &MarkedCas,
    cluster: &str,
) -> Result<Vec<String>, NameError> {
    let Some(Ok((_, cert))) = chain.first().map(|cert| X509Certificate::from_der(cert)) else {
        return Ok(Vec::new());
    };
    let bound = uris(&cert).filter_map(|uri| uri.strip_prefix(SCHEME)?.rsplit_once('/'));
    let bound: Vec<(&str, &str)> = bound.take(NAMES_MAX).collect();
    let hosts = names(&cert).filter_map(|name| match name {
        GeneralName::DNSName(name) => Some(*name),
        _ => None,
    });
    let hosts = hosts.take(NAMES_MAX);
    let Some((theirs, _)) = bound.first() else {
        return match marked.have_signed(chain) {
            true => Err(NameError::Unbound),
            false => Ok(hosts.map(str::to_owned).collect()),
        };
    };
    if bound.iter().all(|(theirs, _)| *theirs != cluster) {
        return Err(NameError::Cluster { theirs: (*theirs).to_owned(), ours: cluster.to_owned() });
    }
    let is_bound = |host: &&str| {
        bound.iter().any(|(theirs, name)| *theirs == cluster && name.eq_ignore_ascii_case(host))
    };
    Ok(hosts.filter(is_bound).map(str::to_owned).collect())
}

/// Whether a host is among the certified ones: as it stands, without wildcards.
pub(super) fn check_host(hosts: &[String], host: &str) -> Result<(), NameError> {
    match hosts.iter().any(|name| name.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => Err(NameError::Host { theirs: in_words(hosts), host: host.to_owned() }),
    }
}

/// The hosts of a certificate for a message.
pub(super) fn in_words(hosts: &[String]) -> String {
    match hosts.is_empty() {
        true => "no host".to_owned(),
        false => hosts.join(", "),
    }
}

fn names<'a>(cert: &'a X509Certificate<'a>) -> impl Iterator<Item = &'a GeneralName<'a>> {
    let names = cert.subject_alternative_name().ok().flatten();
    names.into_iter().flat_map(|names| &names.value.general_names)
}

fn uris<'a>(cert: &'a X509Certificate<'a>) -> impl Iterator<Item = &'a str> {
    names(cert).filter_map(|name| match name {
        GeneralName::URI(uri) => Some(*uri),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};

    struct Ca(Issuer<'static, KeyPair>, CertificateDer<'static>);

    fn with_uris(dns: &[&str], uris: &[&str]) -> CertificateParams {
        let dns: Vec<String> = dns.iter().map(|&name| name.to_owned()).collect();
        let mut params = CertificateParams::new(dns).unwrap();
        let uri = |uri: &&str| SanType::URI((*uri).try_into().unwrap());
        params.subject_alt_names.extend(uris.iter().map(uri));
        params
    }

    fn ca(uris: &[&str]) -> Ca {
        let mut params = with_uris(&[], uris);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let cert = params.self_signed(&key).unwrap().der().clone();
        Ca(Issuer::new(params, key), cert)
    }

    fn hosts(ca: &Ca, dns: &[&str], uris: &[&str]) -> Result<Vec<String>, NameError> {
        let key = KeyPair::generate().unwrap();
        let cert = with_uris(dns, uris).signed_by(&key, &ca.0).unwrap().der().clone();
        certified_hosts(&[cert], &MarkedCas::among(core::slice::from_ref(&ca.1)), "our/cluster")
    }

    #[test]
    fn a_certificate_of_a_marked_ca_must_name_cluster_and_host() {
        let marked = ca(&["ftb://our/cluster"]);
        assert_eq!(hosts(&marked, &["node1"], &[]), Err(NameError::Unbound));
        let ours = binding("our/cluster", "node1");
        assert_eq!(hosts(&marked, &["node1"], &[&ours]).unwrap(), ["node1"]);
        // Only a host that both names certify.
        assert_eq!(hosts(&marked, &["node1", "node2"], &[&ours]).unwrap(), ["node1"]);
        assert_eq!(hosts(&marked, &["*.site"], &[&ours]).unwrap(), [""; 0]);
        let refused = hosts(&marked, &["node1"], &["ftb://other/node1"]).unwrap_err();
        assert!(refused.to_string().contains("for cluster \"other\""), "{refused}");
    }

    #[test]
    fn an_old_ca_may_sign_both_kinds() {
        let old = ca(&[]);
        assert_eq!(hosts(&old, &["node1"], &[]).unwrap(), ["node1"]);
        assert_eq!(hosts(&old, &["node1"], &["https://site/x"]).unwrap(), ["node1"]);
        assert_eq!(hosts(&old, &["node1"], &["ftb://our/cluster/node1"]).unwrap(), ["node1"]);
        assert!(hosts(&old, &["node1"], &["ftb://other/node1"]).is_err());
    }

    #[test]
    fn a_wildcard_certifies_no_host() {
        let wild = ["*.site".to_owned(), "Node1".to_owned()];
        assert_eq!(check_host(&wild, "node1"), Ok(()));
        let refused = check_host(&wild, "node1.site").unwrap_err();
        assert_eq!(refused.to_string(), "the certificate is for *.site, Node1, not for node1.site");
    }
}
