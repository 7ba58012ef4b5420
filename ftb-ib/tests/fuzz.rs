//! Hostile configurations of ftb-ib (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_fuzz::Target;
use ftb_ib::config::Config;
use std::path::Path;

#[test]
fn a_configuration_is_good_or_says_in_one_line_what_is_wrong() {
    let target = Target::new("ib_config").files("deploy/config", "toml").rounds(1_500);
    target.files("tests/hardware/ib", "toml").check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        match Config::parse(text, Path::new("ib.toml")) {
            Ok(config) => drop(config.longest_window()),
            Err(error) => {
                let words = error.to_string();
                assert!(words.contains("ib.toml") && words.lines().count() == 1, "{words}");
            }
        }
    });
}
