//! The rack file, which several programs read: `r07 = "node[097-112]"` for each rack.
//!
//! Responsible for: what is a good table. Not responsible for: reading the file, TOML.

use crate::condition::is_host_name;
use crate::hostlist::Hostlist;
use std::collections::BTreeMap;

/// Where it is.
pub const PATH: &str = "/etc/ftb/racks.toml";
/// Most racks.
pub const RACKS_MAX: usize = 16_384;
/// Most hosts of all racks.
pub const HOSTS_MAX: usize = 131_072;

/// The hosts of each rack, from the host lists of a file.
///
/// # Errors
/// A host list is none, a host has no valid name, or a limit is exceeded; with the rack.
pub fn check(file: &BTreeMap<String, String>) -> Result<BTreeMap<String, Hostlist>, String> {
    if file.len() > RACKS_MAX {
        return Err(format!("more than {RACKS_MAX} racks"));
    }
    let (mut racks, mut count) = (BTreeMap::new(), 0);
    for (rack, list) in file {
        let hosts = Hostlist::parse(list).map_err(|error| format!("rack {rack}: {error}"))?;
        count += hosts.len();
        if count > HOSTS_MAX {
            return Err(format!("more than {HOSTS_MAX} hosts"));
        }
        if let Some(host) = hosts.iter().find(|host| !is_host_name(host)) {
            return Err(format!("rack {rack}: {host:?} is no host name"));
        }
        racks.insert(rack.clone(), hosts);
    }
    Ok(racks)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_good_table_has_hosts_and_a_bad_one_is_named_with_its_rack() {
        let file = |rack: &str, list: &str| BTreeMap::from([(rack.to_owned(), list.to_owned())]);
        let racks = check(&file("r07", "node[097-112]")).unwrap();
        assert_eq!((racks.len(), racks["r07"].len()), (1, 16));
        assert!(check(&BTreeMap::new()).unwrap().is_empty());
        let problem = |list| check(&file("r07", list)).unwrap_err();
        assert!(problem("node[01-").starts_with("rack r07: "));
        assert_eq!(problem("-x"), "rack r07: \"-x\" is no host name");
        assert_eq!(problem("n[1-131073]"), "more than 131072 hosts");
    }
}
