#![allow(clippy::unwrap_used)]

use super::*;

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new(""))
}

/// The sample with the keys of these tables, and what stands before the first, shown.
fn uncommented(tables: &[&str]) -> String {
    let sample = include_str!("../../../deploy/config/bridge.toml");
    let (mut text, mut is_shown) = (String::new(), false);
    for line in sample.lines() {
        let bare = line.strip_prefix('#').unwrap_or(line);
        if bare.starts_with('[') {
            is_shown = tables.iter().any(|table| bare.starts_with(table));
        }
        let is_code = bare.starts_with('[') || (bare.contains(" = ") && !bare.starts_with(' '));
        if is_shown && is_code {
            text.push_str(bare);
            text.push('\n');
        }
    }
    text
}

#[test]
fn the_sample_shows_the_defaults() {
    let defaults = parse("").unwrap();
    assert_eq!(parse(include_str!("../../../deploy/config/bridge.toml")), Ok(defaults.clone()));
    let export = parse(&uncommented(&["[export]"])).unwrap().export;
    let stream = Some("FTB_my-cluster".to_owned());
    assert_eq!(export, ExportConfig { stream, ..defaults.export });
}

#[test]
fn the_rules_of_the_sample_read_a_file_of_racks() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("racks.toml"), "r07 = \"node[01-16]\"\n").unwrap();
    let text = uncommented(&["[import]", "[[import.rule]]"]);
    let import = Config::parse(&text, folder.path()).unwrap().import.unwrap();
    assert_eq!((import.rules.len(), import.racks["r07"].len()), (6, 16));
    fs::write(folder.path().join("racks.toml"), "r07 = \"node[01-\"\n").unwrap();
    let problem = Config::parse(&text, folder.path()).unwrap_err();
    assert!(problem.contains("racks.toml: rack r07: "), "{problem}");
}

#[test]
fn none_leaves_out_a_space_or_all_others() {
    let space =
        |severity| format!("[[export.space]]\nspace = \"ftb.slurm\"\nseverity = {severity:?}\n");
    let text = format!("[export]\nseverity = \"none\"\n{}", space("none"));
    let spaces = vec![("ftb.slurm".to_owned(), None)];
    assert_eq!(parse(&text).unwrap().export.choice, Choice { spaces, elsewhere: None });
    let choice = parse(&space("error")).unwrap().export.choice;
    let spaces = vec![("ftb.slurm".to_owned(), Some(Severity::Error))];
    assert_eq!(choice, Choice { spaces, elsewhere: Some(Severity::Info) });
    assert!(parse(&space("some")).unwrap_err().starts_with("export.space: "));
}

#[test]
fn a_mistake_is_named_with_its_place() {
    assert!(parse("\nagnt = 1").unwrap_err().starts_with("line 2: unknown field `agnt`"));
    assert_eq!(parse("[export]\nreplicas = 9"), Err("export.replicas: must be 1 to 5".to_owned()));
    assert!(parse("[export]\nstream = \"a.b\"").unwrap_err().starts_with("export.stream: "));
    assert!(parse("[nats]\ncert = \"x\"").unwrap_err().contains("one needs the other"));
    let import = "[import]\nstream = \"F\"\nracks = \"r\"\nsubject = \"ftb.>\"";
    assert!(parse(import).unwrap_err().starts_with("import.subject: "));
    let rule = "[[import.rule]]\nsubject = \"a.{rack}\"\nevent = \"E\"\nseverity = \"info\"\n";
    let text = format!("{}\n{rule}clear = true", import.replace("ftb.>", "a.>"));
    assert_eq!(parse(&text).unwrap_err(), "import.rule of \"a.{rack}\": clear needs a condition");
}

#[test]
fn a_secret_that_other_users_can_read_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("nats.creds");
    fs::write(&file, "secret").unwrap();
    let text = "[nats]\ncredentials = \"nats.creds\"";
    for (mode, is_good) in [(0o640, false), (0o604, false), (0o600, true)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        let found = Config::parse(text, folder.path());
        assert_eq!(found.is_ok(), is_good, "{mode:o}: {found:?}");
    }
    let missing = Config::parse("[nats]\ncredentials = \"x\"", folder.path()).unwrap_err();
    assert!(missing.contains("No such file"), "{missing}");
}

#[test]
fn alarms_come_from_another_host_with_tls_only() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("racks.toml"), "r07 = \"node[01-16]\"\n").unwrap();
    fs::write(folder.path().join("ca.pem"), "").unwrap();
    let import = uncommented(&["[import]", "[[import.rule]]"]);
    let read = |nats: &str, import: &str| {
        Config::parse(&format!("[nats]\n{nats}\n{import}"), folder.path()).map(|_| ())
    };
    let remote = "servers = [\"nats://127.0.0.1\", \"nats://user:secret@nats7:4222\"]";
    let problem = read(remote, &import).unwrap_err();
    assert!(problem.contains("from nats7:4222 without TLS"), "{problem}");
    let permitted = import.replace("insecure = false", "insecure = true");
    assert_eq!(read(remote, &permitted), Ok(()));
    assert_eq!(read(remote, ""), Ok(()), "nothing is imported");
    for good in [
        "servers = [\"tls://nats7\"]",
        "servers = [\"localhost:4222\", \"nats://[::1]:4222\"]",
        "servers = [\"nats://nats7\"]\nca = \"ca.pem\"",
    ] {
        assert_eq!(read(good, &import), Ok(()), "{good}");
    }
    assert!(read("servers = [\"nats://localhost@nats7\"]", &import).is_err());
}

#[test]
fn traces_need_an_address_of_http_and_no_nats() {
    let url = |text: &str| parse(&format!("[otlp]\nurl = {text:?}\n"));
    let path = |text: &str| url(text).unwrap().otlp.unwrap().url.to_string();
    assert_eq!(path("http://127.0.0.1:4318"), "http://127.0.0.1:4318/v1/traces");
    assert_eq!(path("http://[::1]:4318/"), "http://[::1]:4318/v1/traces");
    assert_eq!(path("http://tempo/otlp/v1/traces"), "http://tempo/otlp/v1/traces");
    assert_eq!(path("https://tempo"), "https://tempo/v1/traces");
    let with_ca =
        |scheme: &str| parse(&format!("[otlp]\nurl = \"{scheme}://tempo\"\nca = \"no\"\n"));
    assert!(with_ca("https").unwrap_err().contains("no: No such file"));
    assert!(with_ca("http").unwrap_err().contains("otlp.ca"));
    for bad in ["tempo:4318", "ftp://tempo", "http://me:secret@tempo", "", "http:///x"] {
        assert!(url(bad).unwrap_err().contains("otlp.url"), "{bad}");
    }
    let alone = "[nats]\nservers = []\n";
    assert!(parse(alone).unwrap_err().contains("must name a server"));
    let traces = parse(&format!("{alone}[otlp]\nurl = \"http://127.0.0.1\"\n")).unwrap();
    assert_eq!(traces.nats, None);
    assert_eq!(parse("").unwrap().otlp, None);
}
