//! Adapters, ports and counters from `/sys/class`. Needs no library and no privilege, and also
//! covers adapters without a verbs provider.
//!
//! The contents are not trusted: sizes and numbers are bounded, and an unreadable or malformed file
//! counts as missing.

use crate::facts::{AdapterFacts, PortFacts, PortReading, PortState, natural_order};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Most bytes of one file.
const FILE_BYTES_MAX: u64 = 4096;
/// Longest name of an adapter or an interface (the kernel's IB_DEVICE_NAME_MAX).
const NAME_BYTES_MAX: usize = 64;
/// Most entries of one directory.
const ENTRIES_MAX: usize = 4096;

/// A sysfs tree.
#[derive(Clone, Debug)]
pub struct Sysfs {
    root: PathBuf,
    /// `adapter/port` to the other end of the cable, if sysfs does not have it.
    neighbours: BTreeMap<String, String>,
}

impl Sysfs {
    /// The tree at `root`: `/sys`, or another folder in tests.
    pub fn new(root: &Path, neighbours: BTreeMap<String, String>) -> Self {
        Self { root: root.to_owned(), neighbours }
    }

    /// The adapters, in natural order.
    ///
    /// If the kernel has user verbs, only adapters with user verbs. An adapter in removal loses
    /// them first, and stays visible until its last user closes it.
    pub fn adapters(&self) -> Vec<String> {
        let mut names = entries(&self.root.join("class/infiniband"));
        let verbs = self.root.join("class/infiniband_verbs");
        if verbs.is_dir() {
            let offered: BTreeSet<_> = entries(&verbs)
                .iter()
                .filter_map(|entry| text(&verbs.join(entry).join("ibdev")))
                .collect();
            names.retain(|name| offered.contains(name));
        }
        names.sort_by(|a, b| natural_order(a, b));
        names
    }

    /// The node GUID of an adapter; empty if it is unreadable.
    pub fn guid(&self, name: &str) -> String {
        text(&self.base(name).join("node_guid")).unwrap_or_default()
    }

    /// All facts about an adapter; `None` if it is gone.
    pub fn adapter(&self, name: &str) -> Option<AdapterFacts> {
        let base = self.base(name);
        let mut ports: Vec<_> = entries(&base.join("ports"))
            .iter()
            .filter_map(|entry| entry.parse().ok())
            .filter(|number| *number > 0)
            .filter_map(|number| self.port(name, number))
            .collect();
        ports.sort_by_key(|port| port.number);
        base.is_dir().then(|| AdapterFacts { name: name.to_owned(), guid: self.guid(name), ports })
    }

    fn port(&self, adapter: &str, number: u8) -> Option<PortFacts> {
        let base = self.base(adapter).join("ports").join(number.to_string());
        let word = |file: &str| text(&base.join(file)).unwrap_or_default();
        let lid = |file: &str| {
            let text = word(file);
            u32::from_str_radix(text.trim_start_matches("0x"), 16).unwrap_or(0)
        };
        let netdev = text(&base.join("gid_attrs/ndevs/0")).filter(|name| is_name(name));
        Some(PortFacts {
            number,
            reading: PortReading {
                state: PortState::from_sysfs(&text(&base.join("state"))?)?,
                lid: lid("lid"),
                sm_lid: lid("sm_lid"),
                link_layer: word("link_layer"),
                speed: word("rate"),
            },
            neighbour: self.neighbour(adapter, number, netdev.as_deref()),
            netdev,
        })
    }

    /// The configured neighbour, else the switch (and its port) of the network interface.
    fn neighbour(&self, adapter: &str, port: u8, netdev: Option<&str>) -> Option<String> {
        if let Some(configured) = self.neighbours.get(&format!("{adapter}/{port}")) {
            return Some(configured.clone());
        }
        let net = self.root.join("class/net").join(netdev?);
        let switch = text(&net.join("phys_switch_id"))?;
        match text(&net.join("phys_port_name")) {
            Some(port) => Some(format!("{switch}/{port}")),
            None => Some(switch),
        }
    }

    /// The named counters that the port has and that are readable.
    pub fn counters<'a>(
        &self,
        adapter: &str,
        port: u8,
        names: impl IntoIterator<Item = &'a str>,
    ) -> Vec<(String, u64)> {
        let base = self.base(adapter).join("ports").join(port.to_string());
        let read = |name: &str| {
            ["counters", "hw_counters"]
                .iter()
                .find_map(|folder| counter(&text(&base.join(folder).join(name))?))
        };
        names.into_iter().filter_map(|name| Some((name.to_owned(), read(name)?))).collect()
    }

    fn base(&self, adapter: &str) -> PathBuf {
        self.root.join("class/infiniband").join(adapter)
    }
}

/// A counter as drivers write it: a decimal number.
fn counter(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

fn is_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

fn entries(folder: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| is_name(name))
        .collect()
}

/// The trimmed line of a file; `None` for an empty, long or unreadable file.
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return None;
    }
    let text = String::from_utf8(bytes).ok()?;
    let text = text.trim();
    (!text.is_empty() && !text.contains('\n')).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().expect("a folder"))
        }

        fn with(self, path: &str, text: impl AsRef<[u8]>) -> Self {
            let path = self.0.path().join("class").join(path);
            fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
            fs::write(path, text).expect("a file");
            self
        }

        fn mlx5() -> Self {
            Self::new()
                .with("infiniband/mlx5_0/node_guid", "0002:c903:00a1:b2c3\n")
                .with("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
                .with("infiniband/mlx5_0/ports/1/lid", "0x1f\n")
                .with("infiniband/mlx5_0/ports/1/sm_lid", "0x1\n")
                .with("infiniband/mlx5_0/ports/1/link_layer", "InfiniBand\n")
                .with("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n")
                .with("infiniband/mlx5_0/ports/1/counters/symbol_error", "17\n")
                .with("infiniband/mlx5_0/ports/1/hw_counters/packet_seq_err", "3\n")
        }

        fn sysfs(&self) -> Sysfs {
            Sysfs::new(self.0.path(), BTreeMap::new())
        }
    }

    #[test]
    fn all_facts_about_an_adapter_are_read() {
        let tree = Tree::mlx5();
        let sysfs = tree.sysfs();
        assert_eq!(sysfs.adapters(), ["mlx5_0"]);
        let facts = sysfs.adapter("mlx5_0").expect("it is there");
        assert_eq!(facts.guid, "0002:c903:00a1:b2c3");
        let port = &facts.ports[0];
        assert_eq!((port.number, port.reading.state), (1, PortState::Active));
        assert_eq!((port.reading.lid, port.reading.sm_lid), (31, 1));
        assert_eq!(port.reading.speed, "100 Gb/sec (4X EDR)");
        assert_eq!((&port.netdev, &port.neighbour), (&None, &None));
        assert_eq!(sysfs.adapter("mlx5_1"), None);
        assert_eq!(
            sysfs.counters("mlx5_0", 1, ["symbol_error", "packet_seq_err", "no_such"]),
            [("symbol_error".to_owned(), 17), ("packet_seq_err".to_owned(), 3)]
        );
    }

    #[test]
    fn a_tree_without_adapters_lists_none() {
        assert!(Tree::new().sysfs().adapters().is_empty());
    }

    #[test]
    fn an_adapter_without_user_verbs_is_not_listed() {
        let tree = Tree::mlx5().with("infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
        assert_eq!(tree.sysfs().adapters(), ["mlx5_0"]);
        fs::remove_dir_all(tree.0.path().join("class/infiniband_verbs/uverbs0")).expect("gone");
        assert!(tree.sysfs().adapters().is_empty());
    }

    #[test]
    fn the_configured_neighbour_replaces_that_of_the_interface() {
        let tree = Tree::mlx5()
            .with("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "eth2\n")
            .with("net/eth2/phys_switch_id", "e41d2d1234\n")
            .with("net/eth2/phys_port_name", "p7\n");
        let port = |sysfs: Sysfs| sysfs.adapter("mlx5_0").expect("there").ports.remove(0);
        let found = port(tree.sysfs());
        assert_eq!(found.netdev.as_deref(), Some("eth2"));
        assert_eq!(found.neighbour.as_deref(), Some("e41d2d1234/p7"));
        let table = BTreeMap::from([("mlx5_0/1".to_owned(), "leaf07/12".to_owned())]);
        let found = port(Sysfs::new(tree.0.path(), table));
        assert_eq!(found.neighbour.as_deref(), Some("leaf07/12"));
    }

    #[test]
    fn a_malformed_file_counts_as_missing() {
        let tree = Tree::mlx5()
            .with("infiniband/mlx5_0/ports/1/counters/link_downed", "-4\n")
            .with("infiniband/mlx5_0/ports/1/counters/VL15_dropped", "9".repeat(9000))
            .with("infiniband/mlx5_0/ports/1/counters/port_rcv_errors", [0xff, 0xfe])
            .with("infiniband/mlx5_0/ports/2/state", "up and running\n")
            .with("infiniband/mlx5_0/ports/300/state", "4: ACTIVE\n")
            .with("infiniband/mlx5_0/ports/1/gid_attrs/ndevs/0", "../../../etc\n");
        let sysfs = tree.sysfs();
        let facts = sysfs.adapter("mlx5_0").expect("it is there");
        assert_eq!(facts.ports.len(), 1);
        assert_eq!(facts.ports[0].netdev, None);
        let names = ["link_downed", "VL15_dropped", "port_rcv_errors"];
        assert!(sysfs.counters("mlx5_0", 1, names).is_empty());
    }

    proptest! {
        #[test]
        fn any_bytes_in_any_file_are_bounded(
            state in proptest::collection::vec(any::<u8>(), 0..64),
            value in proptest::collection::vec(any::<u8>(), 0..64),
            lid in ".{0,20}"
        ) {
            let tree = Tree::mlx5()
                .with("infiniband/mlx5_0/ports/1/state", &state)
                .with("infiniband/mlx5_0/ports/1/lid", &lid)
                .with("infiniband/mlx5_0/ports/1/counters/symbol_error", &value);
            let sysfs = tree.sysfs();
            let facts = sysfs.adapter("mlx5_0").expect("it is there");
            prop_assert!(facts.ports.len() <= 1);
            for (_, number) in sysfs.counters("mlx5_0", 1, ["symbol_error"]) {
                prop_assert_eq!(
                    std::str::from_utf8(&value).map(|text| text.trim().parse().ok()),
                    Ok(Some(number))
                );
            }
        }
    }
}
