//! `ftbctl init`: a working configuration of the agent, with certificates.
//!
//! Responsible for: `agent.toml`, and the certificate of this host beside it. Replaces no file.
//! Not responsible for: other hosts, whose files it names; certificates ([`crate::ca`]); all other
//! keys of the file (`agent.toml.sample`).

use crate::ca;
use crate::cli::InitArgs;
use crate::common::Common;
use crate::doctor;
use crate::failure::Failure;
use crate::output::{Output, STRONG, styled};
use ftb_core::hostlist::{Hostlist, fold};
use nix::unistd::{Gid, Group, chown, gethostname};
use serde_json::json;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The file of the agent.
const CONFIG: &str = "agent.toml";
/// How the line begins that is not the same on every host.
const HOST_KEY: &str = "host = ";
/// What monitoring of all hosts needs.
const METRICS: &str = "\n# Metrics and health, on loopback: /usr/share/ftb/monitoring.\n\
                       [metrics]\nlisten = \"127.0.0.1:9464\"\n";
/// The group of the agent's user, which reads the key.
const GROUP: &str = "ftb";

/// Writes the configuration.
pub(crate) fn run(common: &Common, args: &InitArgs, mut output: Output) -> Result<(), Failure> {
    let here = gethostname().map_err(io::Error::from)?.to_string_lossy().into_owned();
    let members = match &args.hosts {
        Some(hosts) => hosts.clone(),
        None => Hostlist::parse(short(&here))
            .map_err(|error| Failure::failed(format_args!("the name of this host: {error}")))?,
    };
    let own = own_name(&members, &here, args.host.as_deref())?;
    create_folder(&args.dir)?;
    let dir = args.dir.canonicalize()?;
    let file = dir.join(CONFIG);
    if file.exists() {
        return Err(exists(&file));
    }
    if !args.insecure {
        ca::provide(&args.ca_dir, &args.cluster, &members, &mut output)?;
    }
    let has_key = match &own {
        Some(own) if !args.insecure => install(&args.ca_dir, own, &dir.join("tls"))?,
        _ => false,
    };
    let socket = args.socket.as_deref().or(common.agent.as_deref());
    let places = (&*dir.join("tls"), socket);
    write_new(&file, 0o644, &text(args, &members, own.as_deref(), &here, places))?;
    let findings = match own {
        Some(_) => doctor::configuration(&file, socket.unwrap_or(&common.socket())),
        None => Vec::new(),
    };
    if output.is_json() {
        output.json(&json!({
            "type": "init",
            "config": file,
            "cluster": args.cluster,
            "members": members.len(),
            "host": own,
            "ca": (!args.insecure).then_some(&args.ca_dir),
        }))?;
        return output.flush();
    }
    output.line(&format!(
        "{}: cluster {}, {} members",
        file.display(),
        args.cluster,
        members.len()
    ))?;
    for finding in &findings {
        doctor::show(&mut output, finding)?;
    }
    let is_named = named(own.as_deref(), &here).is_some();
    next_steps(&mut output, args, (&members, own.as_deref(), is_named), (&file, has_key))?;
    output.flush()
}

/// The name without its domain.
fn short(host: &str) -> &str {
    host.split('.').next().unwrap_or(host)
}

/// This host as it stands in the list, if it does.
fn own_name(
    members: &Hostlist,
    here: &str,
    given: Option<&str>,
) -> Result<Option<String>, Failure> {
    let listed = |name: &str| members.iter().find(|member| member.eq_ignore_ascii_case(name));
    match given {
        None => Ok(listed(here).or_else(|| listed(short(here)))),
        Some(given) => match listed(given) {
            Some(name) => Ok(Some(name)),
            None => Err(Failure::usage(format_args!("--host {given} is not in the host list"))),
        },
    }
}

fn exists(path: &Path) -> Failure {
    Failure::failed(format_args!(
        "{} exists, and nothing is replaced: remove it first, or give another --dir",
        path.display()
    ))
}

fn create_folder(path: &Path) -> Result<(), Failure> {
    let created = DirBuilder::new().recursive(true).mode(0o755).create(path);
    created.map_err(|error| Failure::failed(format_args!("{}: {error}", path.display())))
}

fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
    let created = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let written = created.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => exists(path),
        _ => Failure::failed(format_args!("{}: {error}", path.display())),
    })
}

/// Copies the files of this host beside its configuration. Gives whether the agent's group can read
/// the key.
fn install(ca_dir: &Path, own: &str, tls: &Path) -> Result<bool, Failure> {
    create_folder(tls)?;
    let copy = |from: PathBuf, name: &str, mode: u32| {
        let read = fs::read_to_string(&from);
        let text =
            read.map_err(|error| Failure::failed(format_args!("{}: {error}", from.display())))?;
        write_new(&tls.join(name), mode, &text)
    };
    for name in ["ca.pem", "crl.pem"] {
        copy(ca_dir.join(name), name, 0o644)?;
    }
    let host = ca_dir.join("hosts").join(own);
    copy(host.join("agent.pem"), "agent.pem", 0o644)?;
    copy(host.join("agent.key"), "agent.key", 0o640)?;
    let group: Option<Gid> = Group::from_name(GROUP).ok().flatten().map(|group| group.gid);
    Ok(group.is_some_and(|group| chown(&tls.join("agent.key"), None, Some(group)).is_ok()))
}

/// The file.
fn text(
    args: &InitArgs,
    members: &Hostlist,
    own: Option<&str>,
    here: &str,
    (tls, socket): (&Path, Option<&Path>),
) -> String {
    let own = named(own, here);
    let same = if own.is_some() { "but for host the same" } else { "the same" };
    let mut text = format!(
        "# Written by ftbctl init; {same} on every host. agent.toml.sample explains all keys.\n\
         cluster = {:?}\nmembers = {:?}\n",
        args.cluster,
        members.to_string()
    );
    // Writing to a String cannot fail, here and below.
    if let Some(own) = own {
        let _ = writeln!(text, "{HOST_KEY}{own:?}");
    }
    if let Some(socket) = socket {
        let _ = writeln!(text, "agent_socket = {:?}", socket.display().to_string());
    }
    if args.insecure {
        text.push_str("# Every process that reaches the port can act as an agent.\n");
        text.push_str("insecure = true\n");
        if members.len() == 1 {
            text.push_str("listen = \"127.0.0.1:14451\"\n");
        }
        return text + METRICS;
    }
    text.push_str(
        "# Hosts whose programs may state conditions of others, the same on all hosts: mgmt[1-2]\n",
    );
    text.push_str("monitors = \"\"\n\n[tls]\n");
    for (key, name) in
        [("ca", "ca.pem"), ("crl", "crl.pem"), ("cert", "agent.pem"), ("key", "agent.key")]
    {
        let path = tls.join(name).display().to_string();
        let _ = writeln!(text, "{key} = {path:?}");
    }
    text + METRICS
}

/// This host as it stands in the list, where that is not what the agent finds by itself.
fn named<'a>(own: Option<&'a str>, here: &str) -> Option<&'a str> {
    own.filter(|own| !own.eq_ignore_ascii_case(here) && !own.eq_ignore_ascii_case(short(here)))
}

/// The text as one word of a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:@%,=".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn next_steps(
    output: &mut Output,
    args: &InitArgs,
    (members, own, is_named): (&Hostlist, Option<&str>, bool),
    (file, has_key): (&Path, bool),
) -> Result<(), Failure> {
    output.line(&styled(STRONG, "next"))?;
    let shown = |path: &Path| quoted(&path.display().to_string());
    let (tls, dir) = (file.with_file_name("tls"), file.with_file_name(""));
    let (file, tls, dir, ca) = (shown(file), shown(&tls), shown(&dir), shown(&args.ca_dir));
    if own.is_some() {
        if !args.insecure && !has_key {
            output.line(&format!("  chown root:{GROUP} {tls}/agent.key"))?;
        }
        output.line("  systemctl enable --now ftb-agent")?;
    }
    let others: Vec<String> = members.iter().filter(|name| Some(&**name) != own).collect();
    if !others.is_empty() {
        let list = fold(others.iter().map(String::as_str));
        output.line(&format!("  for h in $(ftbctl hosts expand '{list}'); do"))?;
        let made = format!("mkdir -p {}", if args.insecure { &dir } else { &tls });
        // The shell of the other host reads the line again.
        let made = if made.contains('\'') { quoted(&made) } else { made };
        output.line(&format!("    ssh $h {made}"))?;
        output.line(&match is_named {
            true => {
                let kept = quoted(&format!("cat >{file}"));
                format!("    sed '/^{HOST_KEY}/d' {file} | ssh $h {kept}")
            }
            false => format!("    scp {file} $h:{file}"),
        })?;
        if !args.insecure {
            let files = format!("{ca}/ca.pem {ca}/crl.pem {ca}/hosts/$h/agent.pem");
            output.line(&format!("    scp {files} {ca}/hosts/$h/agent.key $h:{tls}"))?;
            let key = format!("{tls}/agent.key");
            let closed = quoted(&format!("chown root:{GROUP} {key}; chmod 640 {key}"));
            output.line(&format!("    ssh $h {closed}"))?;
        }
        output.line("    ssh $h systemctl enable --now ftb-agent")?;
        output.line("  done")?;
    }
    output.line("  ftbctl tree --wait=full && ftbctl doctor")?;
    match args.insecure {
        true => Ok(()),
        false => {
            output.line(&format!("{ca} has the key of the cluster: keep it where only you read"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted("/etc/ftb/tls"), "/etc/ftb/tls");
        assert_eq!(quoted("/my files/$x"), "'/my files/$x'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn this_host_is_found_in_the_list_by_its_long_or_short_name() {
        let members = Hostlist::parse("login,node[01-02],far.example.org").unwrap();
        let own = |here: &str| own_name(&members, here, None).unwrap();
        assert_eq!(own("node02.example.org").as_deref(), Some("node02"));
        assert_eq!(own("FAR.example.org").as_deref(), Some("far.example.org"));
        assert_eq!(own("elsewhere"), None);
        assert_eq!(own_name(&members, "x", Some("login")).unwrap().as_deref(), Some("login"));
        assert!(own_name(&members, "x", Some("y")).is_err());
    }
}
