//! The container image of the agent: a static binary that forms a tree from an empty root.
#![allow(clippy::unwrap_used)]

use ftb_tests::cluster::{Plan, binary, outside_cargo, wait_for};
use ftb_tests::pages::shell_lines;
use ftb_tests::repository::files;
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, Uid};
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

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

fn names(root: &Path) -> Vec<String> {
    files(root).iter().map(|path| path.display().to_string()).collect()
}

/// Buildah without a daemon and without mounts of overlays, with folders of the test.
fn buildah(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let storage = folder.join("storage.conf");
    let text = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = {:?}\n",
        folder.join("images"),
        folder.join("run"),
    );
    std::fs::write(&storage, text).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).env("CONTAINERS_STORAGE_CONF", storage);
    let output = command.env("BUILDAH_ISOLATION", "chroot").output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {errors}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_container_image_has_the_files_the_user_and_the_command_of_its_definition() {
    if !Uid::effective().is_root() {
        return skip("buildah without root needs user namespaces");
    }
    if Command::new("buildah").arg("--version").output().is_err() {
        return skip("buildah is not installed (apt-get install buildah)");
    }
    let folder = tempfile::tempdir().unwrap();
    let own = |name: &str| folder.path().join(name);
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image");
    let out = own("out");
    std::fs::create_dir_all(out.join("root/usr/bin")).unwrap();
    // What the agent is does not matter here.
    std::fs::copy(binary("ftb-agent", "ftb-agent").unwrap(), out.join("root/usr/bin/ftb-agent"))
        .unwrap();
    std::fs::create_dir_all(out.join("root/etc")).unwrap();
    std::fs::write(out.join("root/etc/passwd"), "ftb:x:65532:65532::/:\n").unwrap();
    std::fs::copy(image.join("Containerfile"), out.join("Containerfile")).unwrap();
    let pack = image.join("pack.sh").display().to_string();
    buildah(folder.path(), &pack, &[out.to_str().unwrap(), "ftb-agent:test"]);

    let container = buildah(folder.path(), "buildah", &["from", "ftb-agent:test"]);
    let root = buildah(folder.path(), "buildah", &["mount", &container]);
    assert_eq!(names(Path::new(&root)), ["etc/passwd", "usr/bin/ftb-agent"]);
    let of = |path: &Path| std::fs::read(path.join("usr/bin/ftb-agent")).unwrap();
    assert!(of(Path::new(&root)) == of(&out.join("root")), "another agent");
    let about =
        buildah(folder.path(), "buildah", &["inspect", "--type", "image", "ftb-agent:test"]);
    let about: serde_json::Value = serde_json::from_str(&about).unwrap();
    let config = &about["OCIv1"]["config"];
    // Kubernetes' runAsNonRoot takes a number alone.
    assert_eq!(config["User"], "65532:65532", "{config}");
    assert_eq!(config["Entrypoint"], serde_json::json!(["/usr/bin/ftb-agent"]));
    assert_eq!(config["Cmd"], serde_json::json!(["--config", "/etc/ftb/agent.toml"]));
    assert_eq!(config["StopSignal"], "SIGTERM");
    let volumes = serde_json::json!({"/run/ftb": {}, "/var/lib/ftb": {}});
    assert_eq!(config["Volumes"], volumes);
}

/// The volumes of the install page's command: where each is on the host, and in the container.
fn volumes() -> Vec<(String, String)> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/book/install.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = shell_lines(&page, "The container image").join(" ");
    let (_, command) = lines.split_once("podman run").unwrap();
    let mut words = command.split_whitespace();
    let mut volumes = Vec::new();
    while words.find(|word| *word == "--volume").is_some() {
        let (host, inside) = words.next().unwrap().split_once(':').unwrap();
        volumes.push((host.to_owned(), inside.to_owned()));
    }
    volumes
}

/// An image with the agent of this build, which is not static, and its libraries.
fn build_with_libraries(folder: &Path) -> String {
    let out = folder.join("out");
    let copy = |from: &Path, to: &str| {
        let to = out.join("root").join(to.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().unwrap()).unwrap();
        std::fs::copy(from, to).unwrap();
    };
    let agent = binary("ftb-agent", "ftb-agent").unwrap();
    copy(&agent, "usr/bin/ftb-agent");
    let libraries = Command::new("ldd").arg(&agent).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    paths.for_each(|library| copy(Path::new(library), library));
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/image");
    std::fs::copy(image.join("Containerfile"), out.join("Containerfile")).unwrap();
    let pack = image.join("pack.sh").display().to_string();
    buildah(folder, &pack, &[out.to_str().unwrap(), "ftb-agent:test"]);
    buildah(folder, "buildah", &["from", "ftb-agent:test"])
}

/// Ends a program and its children with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(group) = i32::try_from(self.0.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_image_runs_as_its_user_on_the_volumes_of_the_install_page() {
    if !Uid::effective().is_root() {
        return skip("buildah without root needs user namespaces");
    }
    if Command::new("buildah").arg("--version").output().is_err() {
        return skip("buildah is not installed (apt-get install buildah)");
    }
    let folder = tempfile::tempdir().unwrap();
    let own = |name: &str| folder.path().join(name);
    let container = build_with_libraries(folder.path());
    let mut arguments = vec!["run".to_owned(), "--network=host".to_owned()];
    for (host, inside) in volumes() {
        let at = own("host").join(host.trim_start_matches('/'));
        std::fs::create_dir_all(&at).unwrap();
        if !inside.ends_with(":ro") {
            std::os::unix::fs::chown(&at, Some(65_532), Some(65_532)).unwrap();
            // As buildah runs it, the volumes of the image would lie above those of the command.
            let place = format!("{inside}-");
            buildah(folder.path(), "buildah", &["config", "--volume", &place, &container]);
        }
        arguments.push(format!("--volume={}:{inside}", at.display()));
    }
    let config = "cluster = \"c\"\nmembers = \"n1\"\nhost = \"n1\"\ninsecure = true\n\
                  listen = \"127.0.0.1:0\"\n";
    std::fs::write(own("host/etc/ftb/agent.toml"), config).unwrap();
    arguments.extend([container, "--".to_owned(), "/usr/bin/ftb-agent".to_owned()]);
    let log = std::fs::File::create(own("log")).unwrap();
    let mut command = Command::new("buildah");
    command.args(arguments).env("CONTAINERS_STORAGE_CONF", own("storage.conf"));
    command.env("BUILDAH_ISOLATION", "chroot").stderr(log).stdin(Stdio::null());
    let _running = Running(command.process_group(0).spawn().unwrap());
    let socket = own("host/run/ftb/agent.sock");
    let journaled = wait_for("an event in the log on the volume", async || {
        let mut ftbctl = Command::new(binary("ftbctl", "ftbctl")?);
        ftbctl.args(["publish", "site.test", "X", "--agent-socket"]).arg(&socket);
        let is_published = ftbctl.output()?.status.success();
        let files = std::fs::read_dir(own("host/var/lib/ftb/journal")).map(Iterator::count);
        Ok((is_published && files.is_ok_and(|files| files > 0)).then_some(()))
    });
    let journaled = journaled.await;
    assert!(journaled.is_ok(), "{journaled:?}: {}", std::fs::read_to_string(own("log")).unwrap());
}

/// The words of the install page's `podman run` but for its first ones, with folders of the test
/// for those of the host, and without what a test cannot have.
fn words_of_the_page(host: &Path, image: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/book/install.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines = shell_lines(&page, "The container image").join(" ");
    let (_, command) = lines.split_once("podman run").unwrap();
    let words = command.split_whitespace().filter(|word| *word != "\\");
    let words = words.take_while(|word| *word != "systemctl");
    let words = words.filter(|word| !["--detach", "--restart=always"].contains(word));
    let ours = words.map(|word| match word {
        "ftb-agent:VERSION" => image.to_owned(),
        word if word.starts_with("/etc/passwd") || word.starts_with("/etc/group") => {
            word.to_owned()
        }
        word if word.starts_with('/') => format!("{}{word}", host.display()),
        word => word.to_owned(),
    });
    ours.collect()
}

#[tokio::test]
#[ignore = "builds the agent once more, static, and downloads a Debian: make test-long"]
async fn podman_runs_the_static_image_with_the_command_of_the_install_page() {
    if !Uid::effective().is_root() {
        return skip("mount namespaces need root");
    }
    let folder = tempfile::tempdir().unwrap();
    let own = |name: &str| folder.path().join(name);
    build(&own("out"));
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pack = tests.join("../deploy/image/pack.sh").display().to_string();
    buildah(folder.path(), &pack, &[own("out").to_str().unwrap(), "ftb-agent:test"]);
    let archive = format!("oci-archive:{}:ftb-agent:test", own("image.tar").display());
    buildah(folder.path(), "buildah", &["push", "ftb-agent:test", &archive]);
    for (host, inside) in volumes() {
        let at = own("host").join(host.trim_start_matches('/'));
        std::fs::create_dir_all(&at).unwrap();
        if !inside.ends_with(":ro") {
            std::os::unix::fs::chown(&at, Some(65_532), Some(65_532)).unwrap();
        }
    }
    let config = "cluster = \"c\"\nmembers = \"n1\"\nhost = \"n1\"\ninsecure = true\n\
                  listen = \"127.0.0.1:0\"\n";
    std::fs::write(own("host/etc/ftb/agent.toml"), config).unwrap();
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let log = std::fs::File::create(own("log")).unwrap();
    let mut command = Command::new(tests.join("debian.sh"));
    command.arg(suite.unwrap_or("stable")).arg("podman,crun").arg("bash");
    command.arg(tests.join("packages/podman.sh")).arg(folder.path());
    command.args(words_of_the_page(&own("host"), "localhost/ftb-agent:test"));
    command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log);
    let mut running = Running(command.process_group(0).spawn().unwrap());
    let socket = own("host/run/ftb/agent.sock");
    let published = wait_for("an event in the log on the volume", async || {
        let mut ftbctl = Command::new(binary("ftbctl", "ftbctl")?);
        ftbctl.args(["publish", "site.test", "X", "--agent-socket"]).arg(&socket);
        let is_published = ftbctl.output()?.status.success();
        let files = std::fs::read_dir(own("host/var/lib/ftb/journal")).map(Iterator::count);
        Ok((is_published && files.is_ok_and(|files| files > 0)).then_some(()))
    });
    let published = published.await;
    let log = std::fs::read_to_string(own("log")).unwrap();
    assert!(published.is_ok(), "{published:?}: {log}");
    drop(running.0.stdin.take());
    let ended = running.0.wait().unwrap();
    assert!(ended.success(), "{}", std::fs::read_to_string(own("log")).unwrap());
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
    assert_eq!(names(&root), expected);
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
