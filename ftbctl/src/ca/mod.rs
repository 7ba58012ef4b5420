//! `ftbctl ca`: the certificates of a cluster.
//!
//! A folder holds the CA (`ca.pem`, `ca.key`), its revocation list (`crl.pem`), what it has issued
//! (`issued.json`), and for each host `hosts/HOST/agent.pem` and `agent.key`. Records are written
//! before certificates: what is not recorded cannot be revoked.

mod args;
mod authority;
mod folder;
mod records;
mod show;

pub(crate) use args::{CaArgs, cluster, hosts};

use crate::failure::Failure;
use crate::output::Output;
use crate::text;
use args::{CA_DAYS, CRL_DAYS, CaCommand, HOST_DAYS, Init, Issue, Revoke};
use authority::{Authority, Issuance};
use folder::{Folder, Lock, Secrecy};
use ftb_core::condition::is_host_name;
use ftb_core::hostlist::Hostlist;
use records::{DAY_S, RECORDS_MAX, Records, VERSION};
use serde_json::json;
use std::path::Path;

const CA_PEM: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
const CRL_PEM: &str = "crl.pem";
const RECORDS: &str = "issued.json";
const HOSTS: &str = "hosts";
const AGENT_PEM: &str = "agent.pem";
const AGENT_KEY: &str = "agent.key";
/// Largest certificate or key that is read.
const PEM_BYTES_MAX: u64 = 64 * 1024;
/// Largest file of records: [`RECORDS_MAX`] of them, with long names.
const RECORDS_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Nanoseconds of a second.
const SECOND_NS: u64 = 1_000_000_000;

/// Runs a command. It needs no agent.
pub(crate) fn run(args: &CaArgs, mut output: Output) -> Result<(), Failure> {
    let now_s = ftb_client::now_ns() / SECOND_NS;
    match &args.command {
        CaCommand::Init(init) => create(&Folder::open(&args.dir, true)?, init, now_s, &mut output)?,
        CaCommand::Issue(issue) => Ca::open(&args.dir)?.issue(issue, now_s, &mut output)?,
        CaCommand::Revoke(revoke) => Ca::open(&args.dir)?.revoke(revoke, now_s, &mut output)?,
        CaCommand::Show(show) => {
            let folder = Folder::open(&args.dir, false)?;
            show::run(&read_records(&folder)?, show.hosts.as_ref(), now_s, &mut output)?;
        }
    }
    output.flush()
}

/// Issues certificates of hosts, of the CA in a folder. Makes the CA if there is none.
///
/// # Errors
/// The CA is of another cluster, or cannot be read or written.
pub(crate) fn provide(
    dir: &Path,
    cluster: &str,
    hosts: &Hostlist,
    output: &mut Output,
) -> Result<(), Failure> {
    let now_s = ftb_client::now_ns() / SECOND_NS;
    check_names(hosts)?;
    if !dir.join(RECORDS).exists() {
        let cluster = cluster.to_owned();
        let init = Init { cluster, days: CA_DAYS, crl_days: CRL_DAYS, force: false };
        create(&Folder::open(dir, true)?, &init, now_s, output)?;
    }
    let ca = Ca::open(dir)?;
    if ca.records.cluster != cluster {
        let (dir, other) = (dir.display(), &ca.records.cluster);
        return Err(Failure::failed(format_args!("the CA in {dir} is of cluster {other}")));
    }
    ca.issue(&Issue { hosts: hosts.clone(), days: HOST_DAYS, force: false }, now_s, output)
}

/// Makes a CA.
fn create(folder: &Folder, init: &Init, now_s: u64, output: &mut Output) -> Result<(), Failure> {
    let _lock = folder.lock()?;
    for name in [CA_KEY, CA_PEM, RECORDS, CRL_PEM] {
        if !init.force && folder.has(name)? {
            return Err(Failure::failed(format_args!(
                "{} exists: with --force it is replaced, and all certificates of the CA with it",
                folder.path().join(name).display()
            )));
        }
    }
    let until_s = now_s.saturating_add(init.days.saturating_mul(DAY_S));
    let mut records = Records::new(&init.cluster, until_s, init.crl_days);
    let (authority, Issuance { key, certificate }) = Authority::create(&records, now_s)?;
    // A new key beside an old certificate is refused later; so is a CA without records.
    folder.remove(RECORDS)?;
    folder.write(CA_KEY, Secrecy::Private, &key)?;
    folder.write(CA_PEM, Secrecy::Public, &certificate)?;
    write_list(folder, &authority, &mut records, now_s)?;
    folder.sync()?;
    match output.is_json() {
        true => output.json(&show::ca_object(&records)),
        false => output.line(&format!(
            "CA of cluster {} in {}, until {}",
            init.cluster,
            folder.path().display(),
            text::date(until_s.saturating_mul(SECOND_NS), output.utc)
        )),
    }
}

/// Saves the records and writes a new revocation list.
fn write_list(
    folder: &Folder,
    authority: &Authority,
    records: &mut Records,
    now_s: u64,
) -> Result<(), Failure> {
    records.forget_ended(now_s);
    records.next_crl(now_s);
    let list = authority.revocation_list(records, now_s)?;
    let text = serde_json::to_string(records)?;
    folder.write(RECORDS, Secrecy::Private, &text)?;
    folder.write(CRL_PEM, Secrecy::Public, &list)
}

fn read_records(folder: &Folder) -> Result<Records, Failure> {
    let path = folder.path().join(RECORDS);
    let text = folder.read(RECORDS, Secrecy::Private, RECORDS_BYTES_MAX)?;
    let wrong = |reason: &dyn core::fmt::Display| {
        Failure::failed(format_args!("{}: {reason}", path.display()))
    };
    let records: Records = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    match records.version {
        VERSION => Ok(records),
        other => Err(wrong(&format_args!("it is of version {other}, this ftbctl reads {VERSION}"))),
    }
}

/// A CA that this command alone uses.
struct Ca {
    folder: Folder,
    authority: Authority,
    records: Records,
    _lock: Lock,
}

impl Ca {
    fn open(dir: &Path) -> Result<Self, Failure> {
        let folder = Folder::open(dir, false)?;
        let lock = folder.lock()?;
        let records = read_records(&folder)?;
        let certificate = folder.read(CA_PEM, Secrecy::Public, PEM_BYTES_MAX)?;
        let key = folder.read(CA_KEY, Secrecy::Private, PEM_BYTES_MAX)?;
        let authority = Authority::load(&certificate, &key)?;
        Ok(Self { folder, authority, records, _lock: lock })
    }

    fn issue(mut self, args: &Issue, now_s: u64, output: &mut Output) -> Result<(), Failure> {
        if self.records.until_s <= now_s {
            return Err(Failure::failed(
                "the CA has ended: make one in another folder, and list both in ca.pem for a while",
            ));
        }
        check_names(&args.hosts)?;
        let plan = self.records.plan(&args.hosts, now_s, args.force);
        if self.records.certificates.len().saturating_add(plan.issue.len()) > RECORDS_MAX {
            return Err(Failure::failed(format_args!(
                "a CA has at most {RECORDS_MAX} certificates that have not ended or are revoked"
            )));
        }
        let hosts = self.folder.below(HOSTS)?;
        if !args.force {
            self.check_origin(&hosts, &plan.issue)?;
        }
        let mut issuances = Vec::new();
        for host in &plan.issue {
            let (issued, issuance) = self.authority.issue(&self.records, host, now_s, args.days)?;
            self.records.certificates.push(issued);
            issuances.push(issuance);
        }
        let first = self.records.certificates.len() - issuances.len();
        let issued = self.records.certificates[first..].to_vec();
        write_list(&self.folder, &self.authority, &mut self.records, now_s)?;
        self.folder.sync()?;
        for (host, Issuance { key, certificate }) in plan.issue.iter().zip(&issuances) {
            let folder = hosts.below(host)?;
            folder.write(AGENT_KEY, Secrecy::Private, key)?;
            folder.write(AGENT_PEM, Secrecy::Public, certificate)?;
        }
        self.folder.sync()?;
        if output.is_json() {
            return issued.iter().try_for_each(|issued| {
                output.json(&show::certificate_object(issued, records::State::Valid))
            });
        }
        let until =
            issued.iter().map(|issued| issued.until_s).min().map_or_else(String::new, |s| {
                format!(", until {}", text::date(s.saturating_mul(SECOND_NS), output.utc))
            });
        let (count, kept, place) = (issued.len(), plan.kept, hosts.path().display());
        output.line(&format!("new certificates: {count} in {place}{until}; {kept} need no renewal"))
    }

    /// Files of hosts that have no record were made by another program, or for another CA.
    fn check_origin(&self, hosts: &Folder, issue: &[String]) -> Result<(), Failure> {
        let knows = self.records.knows();
        for host in issue.iter().filter(|host| !knows(host)) {
            if !hosts.has(host)? {
                continue;
            }
            let folder = hosts.below(host)?;
            for name in [AGENT_KEY, AGENT_PEM] {
                if folder.has(name)? {
                    return Err(Failure::failed(format_args!(
                        "{} exists and is not of this CA: with --force it is replaced",
                        folder.path().join(name).display()
                    )));
                }
            }
        }
        Ok(())
    }

    fn revoke(mut self, args: &Revoke, now_s: u64, output: &mut Output) -> Result<(), Failure> {
        let count = match &args.hosts {
            Some(hosts) => self.records.revoke(hosts, now_s).map_err(|host| {
                Failure::failed(format_args!(
                    "{host} has no certificate of this CA; nothing is revoked"
                ))
            })?,
            None => 0,
        };
        write_list(&self.folder, &self.authority, &mut self.records, now_s)?;
        // So that no revoked certificate is installed by mistake.
        let hosts = self.folder.below(HOSTS)?;
        for host in args.hosts.iter().flat_map(Hostlist::iter) {
            if hosts.has(&host)? {
                let folder = hosts.below(&host)?;
                folder.remove(AGENT_KEY)?;
                folder.remove(AGENT_PEM)?;
            }
        }
        self.folder.sync()?;
        let list = self.folder.path().join(CRL_PEM);
        let until_ns = self.records.crl_until_s.saturating_mul(SECOND_NS);
        if output.is_json() {
            return output.json(&json!({
                "type": "revocation", "revoked": count, "crl": list, "crl_until_ns": until_ns,
            }));
        }
        let until = text::date(until_ns, output.utc);
        output.line(&format!(
            "certificates revoked: {count}; install {} on every host before {until}, and reload",
            list.display()
        ))
    }
}

/// A name that no certificate can have, or that is no file name, is refused.
fn check_names(hosts: &Hostlist) -> Result<(), Failure> {
    match hosts.iter().find(|host| !is_host_name(host)) {
        Some(host) => Err(Failure::usage(format_args!("{host:?} is no host name"))),
        None => Ok(()),
    }
}
