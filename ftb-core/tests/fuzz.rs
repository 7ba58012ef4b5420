//! Hostile filters and host lists (`ftb_fuzz` says how targets run).
#![allow(clippy::unwrap_used)]

use ftb_core::filter::Filter;
use ftb_core::hostlist::{Hostlist, fold};
use ftb_fuzz::Target;

/// Hosts of a list that are compared one by one.
const HOSTS_MAX: usize = 300;

#[test]
fn a_filter_prints_as_text_that_reads_as_the_same_filter() {
    let seeds = [
        "severity>=error",
        "event_space=ftb.ipmi|ftb.ib, event_name=FTB_IPMI_*",
        "hostname=node[01-16,32]|login?, jobid=4711, uid=0|1000",
        "client=ftb-ipmi, severity=info|fatal, tag.node=node07, condition=*",
    ];
    Target::new("filter").seeds(seeds).check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        match Filter::parse(text) {
            Ok(filter) => {
                let printed = filter.to_string();
                let again = Filter::parse(&printed).unwrap();
                assert_eq!(filter.to_string(), again.to_string(), "{text:?}");
                assert!(filter.covers(&again) && again.covers(&filter), "{text:?}: {printed}");
                assert!(filter.widened().covers(&filter), "{text:?}");
                let _ = (filter.weight(), filter.subject_hosts(), filter.literal_spaces());
            }
            Err(error) => {
                error.pointed(text);
            }
        }
    });
}

#[test]
fn a_host_list_knows_each_of_its_hosts_and_folds_back() {
    let seeds = ["login,node[001-128],gpu[1-4,07]", "rack[1-3]n[01-16]", "a,b-c.d,e[0-9][0-9]"];
    Target::new("hostlist").seeds(seeds).check(|bytes| {
        let Ok(text) = str::from_utf8(bytes) else { return };
        let Ok(list) = Hostlist::parse(text) else { return };
        assert_eq!(list.get(list.len()), None);
        if list.len() > HOSTS_MAX {
            return;
        }
        let hosts: Vec<String> = list.iter().collect();
        for (index, host) in hosts.iter().enumerate() {
            assert_eq!(list.position(host), Some(index), "{text:?}");
            assert_eq!(list.get(index).as_ref(), Some(host), "{text:?}");
        }
        let folded = fold(hosts.iter().map(String::as_str));
        let again = Hostlist::parse(&folded).unwrap();
        assert!(again.contains_all(&list) && list.contains_all(&again), "{text:?}: {folded}");
    });
}
