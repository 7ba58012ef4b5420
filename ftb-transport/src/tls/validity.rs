//! When the certificates and revocation lists of an agent end.
//!
//! Only what its own certificate rests on counts: other CAs in the file end for other agents.

use super::{TlsError, TlsFiles, certificates, failed, revocation_lists};
use rustls::pki_types::CertificateDer;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;
use x509_parser::prelude::{ASN1Time, CertificateRevocationList, FromDer as _, X509Certificate};

/// A file of certificates or revocation lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Its path.
    pub file: String,
    /// Its first certificate or list ends then, since the Unix epoch.
    pub until: Duration,
}

/// When the certificate of an agent, its CA, and their revocation lists end, each file once.
///
/// # Errors
/// [`TlsError`] names the file.
pub fn validities(files: &TlsFiles) -> Result<Vec<Validity>, TlsError> {
    let chain = certificates(&files.cert)?;
    let own = parse(&files.cert, &chain)?;
    let issuers: BTreeSet<&[u8]> = own.iter().map(|cert| cert.issuer().as_raw()).collect();
    let all = certificates(&files.ca)?;
    let cas = parse(&files.ca, &all)?;
    let cas = cas.iter().filter(|ca| issuers.contains(ca.subject().as_raw()));
    let mut found = vec![
        (&files.cert, first(own.iter().map(|cert| cert.validity().not_after))),
        (&files.ca, first(cas.map(|ca| ca.validity().not_after))),
    ];
    if let Some(crl) = &files.crl {
        let lists = revocation_lists(crl)?;
        let mut ends = Vec::new();
        for list in &lists {
            let list = CertificateRevocationList::from_der(list.as_ref());
            let (_, list) = list.map_err(|error| failed(crl, error))?;
            if issuers.contains(list.issuer().as_raw()) {
                ends.extend(list.next_update());
            }
        }
        found.push((crl, first(ends.into_iter())));
    }
    let validity = |(file, until): (&std::path::PathBuf, Option<Duration>)| -> Option<Validity> {
        Some(Validity { file: file.display().to_string(), until: until? })
    };
    Ok(found.into_iter().filter_map(validity).collect())
}

fn parse<'a>(
    path: &Path,
    certs: &'a [CertificateDer<'_>],
) -> Result<Vec<X509Certificate<'a>>, TlsError> {
    let read = |cert: &'a CertificateDer<'_>| X509Certificate::from_der(cert).map(|(_, cert)| cert);
    certs.iter().map(read).collect::<Result<_, _>>().map_err(|error| failed(path, error))
}

/// The first of these times; one before the Unix epoch is over.
fn first(ends: impl Iterator<Item = ASN1Time>) -> Option<Duration> {
    ends.map(|end| Duration::from_secs(u64::try_from(end.timestamp()).unwrap_or(0))).min()
}
