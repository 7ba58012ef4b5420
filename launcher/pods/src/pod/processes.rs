//! The processes of a pod as this host sees them, and how much memory they have.

use std::fs;

/// The processes of a pod, by their ids on this host.
pub(super) fn processes(pause: u32) -> impl Iterator<Item = u32> {
    let space = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let pod = space(pause);
    let entries = fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(move |pid| pod.is_some() && space(*pid) == pod)
}

/// Bytes of the resident memory of a pod.
pub(super) fn memory_bytes(pause: u32) -> u64 {
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    let page = page.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096);
    let pages = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
        text.split(' ').nth(1)?.parse::<u64>().ok()
    };
    processes(pause).filter_map(pages).sum::<u64>().saturating_mul(page)
}

/// Bytes of the memory of a pod that files do not back: nearly all of its image. Memory that
/// processes share counts for each of them.
pub(super) fn own_bytes(pause: u32) -> u64 {
    let kib = |pid: u32| {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let of = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok())
        };
        of("RssAnon:").unwrap_or(0).saturating_add(of("RssShmem:").unwrap_or(0))
    };
    processes(pause).map(kib).sum::<u64>().saturating_mul(1024)
}
