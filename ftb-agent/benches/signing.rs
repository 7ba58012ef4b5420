//! What signatures cost: processor time of one thread for each event, by key and events together.
//! `cargo bench --profile bench-quick -p ftb-agent --bench signing`.
#![allow(clippy::unwrap_used, missing_docs)]

use arc_swap::ArcSwap;
use ftb_agent::access::Access;
use ftb_agent::signing::{Demands, Signing};
use ftb_core::{Event, EventId, PublisherId, Run, Sealed};
use ftb_proto::event::{Stamps, encode_event, seal};
use ftb_transport::tls::{Tls, TlsFiles};
use nix::time::{ClockId, clock_gettime};
use rcgen::{
    BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_ED25519, SignatureAlgorithm,
};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Events of one measurement, and measurements: the median counts.
const EVENTS: u64 = 2_000;
const ROUNDS: usize = 15;

fn signing(dir: &Path, kind: &'static SignatureAlgorithm) -> Signing {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate_for(kind).unwrap();
    let ca = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate_for(kind).unwrap();
    let params = CertificateParams::new(vec!["node01".to_owned()]).unwrap();
    let cert = params.signed_by(&key, &issuer).unwrap();
    let write = |name: &str, text: String| {
        let path = dir.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    };
    let files = TlsFiles {
        ca: write("ca.pem", ca.pem()),
        crl: None,
        cert: write("own.pem", cert.pem()),
        key: write("own.key", key.serialize_pem()),
    };
    let tls = Arc::new(Tls::load(&files, "bench").unwrap());
    let access = Arc::new(ArcSwap::from_pointee(Access::new(&[], 0)));
    let demands = Demands { is_required: true, monitors: None };
    Signing::new(Some(tls), "bench", access, Arc::default(), demands)
}

/// Faults as ftb-ipmi publishes them, near enough: 256 bytes of payload.
fn faults(first_seq: u64, count: u64) -> Run {
    let mut event = Event::new("ftb.ipmi".parse().unwrap(), "FTB_IPMI_FANFAIL".parse().unwrap());
    event.payload = vec![b'x'; 256].into();
    let bytes = encode_event(&event);
    let publisher = PublisherId { account: 1, token: 2 };
    let sealed = |seq: u64| {
        let id = EventId { publisher, seq: seq.into() };
        let stamps = Stamps { id, host: "node01", uid: 0, pid: 1, republished: false };
        seal(&stamps, &bytes, 4096).unwrap()
    };
    let events: Vec<Sealed> = (first_seq..first_seq + count).map(sealed).collect();
    Run::collect(events.iter().map(Sealed::as_ref)).unwrap()
}

fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
}

/// Microseconds of processor time for each event.
fn of_each(work: impl FnOnce()) -> f64 {
    let begun = cpu();
    work();
    (cpu() - begun).as_secs_f64() * 1e6 / EVENTS as f64
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let dir = tempfile::tempdir().unwrap();
    println!("microseconds of processor time for each event, median of {ROUNDS}");
    for (name, kind) in [("P-256", &PKCS_ECDSA_P256_SHA256), ("Ed25519", &PKCS_ED25519)] {
        let signing = signing(dir.path(), kind);
        let demands = signing.demands();
        for together in [1, 8, 64, 1_000] {
            let [mut sign, mut verify, mut again, mut bytes] = [const { Vec::new() }; 4];
            for round in 0..ROUNDS as u64 {
                let seqs = (0..EVENTS / together).map(|at| 1 + round * EVENTS + at * together);
                let plain: Vec<Run> = seqs.map(|seq| faults(seq, together)).collect();
                let before: usize = plain.iter().map(Run::len).sum();
                let mut signed = Vec::new();
                sign.push(of_each(|| {
                    signed.extend(plain.into_iter().map(|run| signing.sign(run)));
                }));
                let after: usize = signed.iter().map(Run::len).sum();
                bytes.push((after - before) as f64 / EVENTS as f64);
                for times in [&mut verify, &mut again] {
                    times.push(of_each(|| {
                        for run in &signed {
                            let verified = signing.prove(&demands, vec![(1.into(), run.clone())]).1;
                            assert_eq!(verified.len() as u64, together);
                        }
                    }));
                }
            }
            let [sign, verify, again, bytes] = [sign, verify, again, bytes].map(median);
            println!(
                "{name}, {together} together: sign {sign:.1}, verify {verify:.1}, \
                 again {again:.1}; {bytes:.0} bytes more"
            );
        }
    }
}
