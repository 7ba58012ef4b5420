//! The container image of the agent: a static binary that forms a tree from an empty root.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Plan, outside_cargo};
use ftb_tests::skip::skip;
use nix::unistd::Uid;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shows the folder of the test within the root, which is the first argument, at its own place.
/// Then the agent of that root takes the place of the one that the test would start.
const SCRIPT: &str = "
mkdir -p \"$1$2\"
mount --bind \"$2\" \"$1$2\"
root=$1
shift 3
exec chroot \"$root\" /usr/bin/ftb-agent \"$@\"";

/// The files of the image.
fn build(out: &Path) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image/build.sh");
    let mut command = Command::new(script);
    let output = outside_cargo(&mut command).arg(out).args(["--profile", "dev"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    out.join("root")
}

fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).unwrap().display().to_string());
            }
        }
    }
    found.sort();
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds the agent once more, static: make test-long"]
async fn the_image_has_nothing_but_a_static_agent_that_forms_a_tree() {
    if !Uid::effective().is_root() {
        return skip("chroot and mount namespaces need root");
    }
    let out = tempfile::tempdir().unwrap();
    let root = build(out.path());
    let expected = [
        "etc/ftb/agent.toml.sample",
        "etc/group",
        "etc/nsswitch.conf",
        "etc/passwd",
        "usr/bin/ftb-agent",
        "usr/share/doc/ftb/LICENSE",
        "usr/share/doc/ftb/NOTICE",
    ];
    assert_eq!(files(&root), expected);
    let headers = Command::new("readelf").arg("-ld").arg(root.join("usr/bin/ftb-agent")).output();
    let headers = String::from_utf8(headers.unwrap().stdout).unwrap();
    assert!(headers.contains("LOAD") && !headers.contains("INTERP"), "{headers}");
    assert!(!headers.contains("NEEDED"), "{headers}");

    let mut cluster = Plan::new(2, 2).prepare().unwrap();
    let dir = cluster.dir().to_str().unwrap().to_owned();
    // The agents find each other by name: the binary resolves names without libraries.
    let mut hosts = String::new();
    for rank in 0..2 {
        let address = cluster.address(rank).unwrap();
        let (ip, port) = address.rsplit_once(':').unwrap();
        let host = cluster.host(rank);
        writeln!(hosts, "{ip} image-{host}").unwrap();
        for other in 0..2 {
            let text = std::fs::read_to_string(cluster.config(other)).unwrap();
            let line = format!("\"{host}\" = \"{address}\"");
            assert!(text.contains(&line), "{text}");
            let text = text.replace(&line, &format!("\"{host}\" = \"image-{host}:{port}\""));
            std::fs::write(cluster.config(other), text).unwrap();
        }
    }
    std::fs::write(root.join("etc/hosts"), hosts).unwrap();
    let around = ["unshare", "--mount", "sh", "-ec", SCRIPT, "sh", root.to_str().unwrap(), &dir];
    for rank in 0..2 {
        cluster.through(rank, &around.map(str::to_owned));
        cluster.run(rank).unwrap();
    }
    let whole = cluster.wait_whole().await;
    cluster.must(whole).await;
    assert_eq!(cluster.tree(1).await.unwrap().nodes.len(), 2);
}
