//! Keys and signatures of a CA.
//!
//! Keys are ECDSA with P-256: every TLS library has it, and ring signs and verifies with it in less
//! time than with Ed25519. The CA names its cluster, and each certificate cluster and host, so that
//! agents refuse a certificate in another cluster or for another host. Not responsible for: files.

use super::records::{DAY_S, Issued, Records};
use crate::failure::Failure;
use ftb_transport::tls::names;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName,
    DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, RevokedCertParams, SanType, SerialNumber,
};
use x509_parser::time::ASN1Time;

/// Random bytes of a serial number, of at most 20 (RFC 5280).
const SERIAL_BYTES: usize = 16;
/// A certificate counts from this time before it was made: clocks differ.
const BACKDATED_S: u64 = 3600;
/// Longest common name (X.520).
const COMMON_NAME_MAX: usize = 64;

/// A CA that can sign.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// A new key and its certificate, as PEM.
pub(super) struct Issuance {
    pub(super) key: String,
    pub(super) certificate: String,
}

impl Authority {
    /// Makes the key and the certificate of a CA.
    pub(super) fn create(records: &Records, now_s: u64) -> Result<(Self, Issuance), Failure> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(&format!("ftb of {}", records.cluster));
        params.subject_alt_names = vec![uri(names::ca_mark(&records.cluster))?];
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.serial_number = Some(serial()?);
        set_validity(&mut params, now_s, records.until_s)?;
        let key = new_key()?;
        let certificate = params.self_signed(&key).map_err(cannot("sign"))?.pem();
        let issuance = Issuance { key: key.serialize_pem(), certificate };
        Ok((Self { issuer: Issuer::new(params, key) }, issuance))
    }

    /// The CA of these files.
    pub(super) fn load(certificate: &str, key: &str) -> Result<Self, Failure> {
        let key = KeyPair::from_pem(key).map_err(cannot("read the key of the CA"))?;
        let public = |text: &str| {
            let (_, pem) = x509_parser::pem::parse_x509_pem(text.as_bytes()).ok()?;
            Some(pem.parse_x509().ok()?.public_key().raw.to_vec())
        };
        if public(certificate) != Some(rcgen::PublicKeyData::subject_public_key_info(&key)) {
            return Err(Failure::failed("the key of the CA is not that of its certificate"));
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, key);
        Ok(Self { issuer: issuer.map_err(cannot("read the certificate of the CA"))? })
    }

    /// Makes a key and a certificate of a host, which ends after `days`, at most with the CA.
    pub(super) fn issue(
        &self,
        records: &Records,
        host: &str,
        now_s: u64,
        days: u64,
    ) -> Result<(Issued, Issuance), Failure> {
        let until_s = now_s.saturating_add(days.saturating_mul(DAY_S)).min(records.until_s);
        let serial = serial()?;
        let dns = host.try_into().map_err(cannot("name a host"))?;
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(host);
        let binding = uri(names::binding(&records.cluster, host))?;
        params.subject_alt_names = vec![SanType::DnsName(dns), binding];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        let issued = Issued {
            host: host.to_owned(),
            serial: serial.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
            from_s: now_s,
            until_s,
            revoked_s: None,
        };
        params.serial_number = Some(serial);
        set_validity(&mut params, now_s, until_s)?;
        let key = new_key()?;
        let certificate = params.signed_by(&key, &self.issuer).map_err(cannot("sign"))?.pem();
        Ok((issued, Issuance { key: key.serialize_pem(), certificate }))
    }

    /// The revocation list, as PEM.
    pub(super) fn revocation_list(&self, records: &Records, now_s: u64) -> Result<String, Failure> {
        let revoked = |issued: &Issued| {
            let revoked_s = issued.revoked_s?;
            Some(time(revoked_s).and_then(|revoked| {
                let revocation_time = revoked.to_datetime();
                let serial_number = SerialNumber::from(digits(&issued.serial)?);
                let (reason_code, invalidity_date) = (None, None);
                Ok(RevokedCertParams {
                    serial_number,
                    revocation_time,
                    reason_code,
                    invalidity_date,
                })
            }))
        };
        let revoked = records.certificates.iter().filter_map(revoked);
        let list = CertificateRevocationListParams {
            this_update: time(now_s.saturating_sub(BACKDATED_S))?.to_datetime(),
            next_update: time(records.crl_until_s)?.to_datetime(),
            crl_number: SerialNumber::from(records.crl_number),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect::<Result<_, _>>()?,
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).map_err(cannot("sign"))?;
        list.pem().map_err(cannot("encode the revocation list"))
    }
}

fn new_key() -> Result<KeyPair, Failure> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(cannot("draw a key"))
}

/// A random serial number: positive, of the same length each.
fn serial() -> Result<SerialNumber, Failure> {
    let mut bytes = [0; SERIAL_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Failure::failed(format_args!("the system has no random numbers: {error}"))
    })?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn digits(serial: &str) -> Result<Vec<u8>, Failure> {
    let pairs = serial.as_bytes().chunks(2).map(|pair| core::str::from_utf8(pair).ok());
    let byte = |pair: Option<&str>| u8::from_str_radix(pair?, 16).ok();
    let bytes: Option<Vec<u8>> = pairs.map(byte).collect();
    let wrong = || Failure::failed(format_args!("the records have the serial number {serial:?}"));
    bytes.filter(|bytes| (1..=20).contains(&bytes.len())).ok_or_else(wrong)
}

/// Long names are shortened: nothing reads them.
fn common_name(name: &str) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    let name: String = name.chars().take(COMMON_NAME_MAX).collect();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn uri(uri: String) -> Result<SanType, Failure> {
    uri.try_into().map(SanType::URI).map_err(cannot("name a cluster"))
}

fn set_validity(params: &mut CertificateParams, from_s: u64, until_s: u64) -> Result<(), Failure> {
    params.not_before = time(from_s.saturating_sub(BACKDATED_S))?.to_datetime();
    params.not_after = time(until_s)?.to_datetime();
    Ok(())
}

fn time(unix_s: u64) -> Result<ASN1Time, Failure> {
    let time = i64::try_from(unix_s).ok().and_then(|s| ASN1Time::from_timestamp(s).ok());
    time.ok_or_else(|| Failure::failed(format_args!("{unix_s} s is no time")))
}

fn cannot(what: &'static str) -> impl Fn(rcgen::Error) -> Failure {
    move |error| Failure::failed(format_args!("cannot {what}: {error}"))
}
