//! Hostile configurations of ftb-ib, and files of drivers (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_fuzz::{Parts, Target, piece};
use ftb_ib::config::Config;
use ftb_ib::sysfs::Sysfs;
use std::collections::BTreeMap;
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

/// The files of one port that ftb-ib reads, below `class/infiniband/mlx5_0`.
const FILES: [&str; 8] = [
    "ports/1/state",
    "ports/1/lid",
    "ports/1/sm_lid",
    "ports/1/link_layer",
    "ports/1/rate",
    "ports/1/gid_attrs/ndevs/0",
    "ports/1/counters/symbol_error",
    "node_guid",
];

#[test]
fn no_file_of_a_driver_panics_and_what_is_read_is_bounded() {
    let files = |texts: [&[u8]; 8]| texts.into_iter().flat_map(piece).collect::<Vec<u8>>();
    let seeds = [
        files([
            b"4: ACTIVE\n",
            b"0x1f\n",
            b"0x1\n",
            b"InfiniBand\n",
            b"100 Gb/sec (4X EDR)\n",
            b"eth2\n",
            b"17\n",
            b"0002:c903:00a1:b2c3\n",
        ]),
        files([b"1: DOWN\n", b"", b"0xffff", b"Ethernet", b"", b"../..", b"-1", b"\xff"]),
    ];
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("class/infiniband/mlx5_0");
    for file in FILES {
        std::fs::create_dir_all(base.join(file).parent().unwrap()).unwrap();
    }
    Target::new("sysfs").seeds(seeds).rounds(500).check(move |bytes| {
        let mut parts = Parts(bytes);
        for file in FILES {
            std::fs::write(base.join(file), parts.piece().unwrap_or_default()).unwrap();
        }
        let sysfs = Sysfs::new(root.path(), BTreeMap::new());
        assert_eq!(sysfs.adapters(), ["mlx5_0"]);
        let adapter = sysfs.adapter("mlx5_0").unwrap();
        assert!(adapter.ports.len() <= 1 && adapter.guid.len() <= 4096);
        for port in &adapter.ports {
            assert!(port.netdev.as_deref().is_none_or(|name| !name.contains('/')));
            assert!(!port.reading.speed.contains('\n') && port.neighbour.is_none());
        }
        assert!(sysfs.counters("mlx5_0", 1, ["symbol_error"]).len() <= 1);
    });
}
