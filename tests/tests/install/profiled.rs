//! `deploy/dev/profiled-agent.sh`, with small programs in the place of the agent and of what puts it under load: the
//! real ones take a quarter of an hour.

use ftb_tests::cluster::outside_cargo;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::SystemTime;

const WORKSPACE: &str = "[workspace]\nmembers = [\"agent\", \"tests/bench\"]\nresolver = \"2\"\n";
/// Says whether the flag that its builder has configured has reached it.
const AGENT: &str =
    "fn main() { println!(\"{} {}\", cfg!(mine), WORD) }\nconst WORD: &str = \"one\";\n";
/// Runs the agent as `ftb-bench train` does.
const BENCH: &str = r#"fn main() {
    assert_eq!(std::env::args().nth(1).as_deref(), Some("train"));
    let dir = std::env::var_os("FTB_BIN_DIR").unwrap();
    let agent = std::path::PathBuf::from(dir).join("ftb-agent");
    assert!(std::process::Command::new(agent).status().unwrap().success());
    println!("trained");
}
"#;

struct Toy(PathBuf);

impl Toy {
    /// In a folder whose name is two words.
    fn new(dir: &Path) -> Self {
        let root = dir.join("two words");
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("Cargo.toml", WORKSPACE);
        for (name, folder) in [("ftb-agent", "agent"), ("ftb-bench", "tests/bench")] {
            let manifest = format!("[package]\nname = \"{name}\"\nedition = \"2021\"\n");
            write(&format!("{folder}/Cargo.toml"), &manifest);
        }
        write("agent/src/main.rs", AGENT);
        write("tests/bench/src/main.rs", BENCH);
        write("tests/bench/src/train.rs", "");
        write(".cargo/config.toml", "[build]\nrustflags = [\"--cfg\", \"mine\"]\n");
        // Notes how the agent is compiled each time.
        let compiler = "#!/bin/sh\ncase \"$*\" in *ftb_agent*) echo \"$*\" >compiled ;; esac\nexec rustc \"$@\"\n";
        write("compiler", compiler);
        fs::set_permissions(root.join("compiler"), fs::Permissions::from_mode(0o755)).unwrap();
        let script = "deploy/dev/profiled-agent.sh";
        fs::create_dir_all(root.join("deploy/dev")).unwrap();
        let this = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        symlink(this.join(script), root.join(script)).unwrap();
        Self(root)
    }

    /// Builds it; gives what it was told.
    fn build(&self, profile: &str) -> String {
        let (built, told) = self.try_to_build(profile);
        assert!(built, "{told}");
        told
    }

    /// Whether it could be built, and what was told.
    fn try_to_build(&self, profile: &str) -> (bool, String) {
        let mut command = Command::new("deploy/dev/profiled-agent.sh");
        command.arg("target").current_dir(&self.0).env("PROFILE", profile);
        command.env("RUSTC", self.0.join("compiler"));
        for name in ["CARGO", "CARGO_TARGET_DIR", "RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            command.env_remove(name);
        }
        let Output { status, stdout, stderr } = outside_cargo(&mut command).output().unwrap();
        let told = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
        (status.success(), told)
    }

    /// Whether the agent was last compiled with such a flag.
    fn compiled_with(&self, flag: &str) -> bool {
        fs::read_to_string(self.0.join("compiled")).unwrap().contains(flag)
    }

    fn agent(&self) -> PathBuf {
        self.0.join("target/profiled/ftb-agent")
    }

    fn built_at(&self) -> SystemTime {
        fs::metadata(self.agent()).unwrap().modified().unwrap()
    }

    fn said(&self) -> String {
        let output = Command::new(self.agent()).current_dir(&self.0).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn has_profile(&self) -> bool {
        self.0.join("target/training/agent.profdata").is_file()
    }
}

#[test]
fn the_agent_is_compiled_with_what_it_was_seen_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let toy = Toy::new(dir.path());
    let told = toy.build("no");
    assert!(!told.contains("trained") && !toy.has_profile(), "{told}");
    assert_eq!(toy.said(), "true one\n", "the flags of who builds it reach it");
    let plain = toy.built_at();
    assert!(!toy.compiled_with("-Cprofile"));

    let told = toy.build("yes");
    assert_eq!(toy.said(), "true one\n");
    if told.contains("llvm-profdata") && !toy.has_profile() {
        assert!(told.contains("built without a profile, since llvm-profdata of LLVM"), "{told}");
        eprintln!("skipped in part: the toolchain has no llvm-profdata, and it cannot be added");
        return;
    }
    assert!(told.contains("trained") && toy.has_profile(), "{told}");
    assert!(toy.compiled_with("-Cprofile-use="), "what was counted is not used");
    let profiled = toy.built_at();
    assert!(profiled > plain, "one without a profile was taken for one with it");
    let left: Vec<_> =
        fs::read_dir(&toy.0).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().ends_with("profraw")), "{left:?}");

    let told = toy.build("yes");
    assert!(!told.contains("trained") && toy.built_at() == profiled, "nothing has changed: {told}");
    fs::write(toy.0.join("tests/bench/src/train.rs"), "// Another load.\n").unwrap();
    assert!(toy.build("yes").contains("trained"), "what was counted is of other loads");
    fs::write(toy.0.join("agent/src/main.rs"), AGENT.replace("one", "two")).unwrap();
    assert!(toy.build("yes").contains("trained"), "what was counted is of another agent");
    assert_eq!(toy.said(), "true two\n");

    fs::write(toy.0.join("tests/bench/src/main.rs"), "fn main() { std::process::exit(1) }")
        .unwrap();
    fs::write(toy.0.join("agent/src/main.rs"), AGENT.replace("one", "three")).unwrap();
    let told = toy.build("yes");
    assert!(told.contains("without a profile, since it could not be put under load"), "{told}");
    assert_eq!(toy.said(), "true three\n");
    assert!(!toy.compiled_with("-Cprofile"));

    let checked =
        || fs::metadata(toy.0.join("target/profiled/checked")).unwrap().modified().unwrap();
    let before = checked();
    fs::write(toy.0.join("agent/src/main.rs"), "no program").unwrap();
    let (built, told) = toy.try_to_build("yes");
    assert!(!built && checked() == before, "{told}");
}
