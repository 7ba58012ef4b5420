//! The memory that a program protects: regions with names, given as addresses. The only place that
//! reads and writes memory of the program.

use super::LoopError;
use crate::image::{ImageError, Reader, Writer};
use crate::limits::{REGIONS_MAX, SECTION_NAME_BYTES_MAX};
use std::ptr::NonNull;

/// The section with names and sizes.
const LIST: &str = "ftb.regions";
/// Names that a message shows.
const SHOWN: usize = 8;

#[derive(Debug)]
struct Region {
    name: String,
    start: NonNull<u8>,
    bytes: usize,
}

#[expect(unsafe_code, reason = "an address may be sent to any thread")]
// SAFETY: who protects a region promises that it may be used until the process ends, from the
// thread that calls `ftb_loop`.
unsafe impl Send for Region {}

/// Every region, in the order of protection.
#[derive(Debug, Default)]
pub(crate) struct Regions(Vec<Region>);

impl Regions {
    /// Adds a region.
    ///
    /// # Safety
    /// The memory must stay as it is mapped until the process ends, and must not be in use while
    /// [`Regions::save`] and [`Regions::restore`] run.
    #[expect(unsafe_code, reason = "a promise of the program about its memory")]
    pub(crate) unsafe fn add(
        &mut self,
        name: &str,
        start: *mut u8,
        bytes: usize,
    ) -> Result<(), LoopError> {
        let refuse = |problem: String| Err(LoopError::Invalid(format!("{name:.64?}: {problem}")));
        if name.is_empty() || name.len() > SECTION_NAME_BYTES_MAX || name.contains(char::is_control)
        {
            let max = SECTION_NAME_BYTES_MAX;
            return refuse(format!("a name has 1 to {max} bytes, and no control characters"));
        }
        if self.0.iter().any(|region| region.name == name) {
            return refuse("this name is protected already".to_owned());
        }
        if self.0.len() >= REGIONS_MAX {
            return refuse(format!("{REGIONS_MAX} regions are protected, which is the limit"));
        }
        let Some(start) = NonNull::new(start) else { return refuse("the address is NULL".into()) };
        if bytes == 0 {
            return refuse("it has 0 bytes: there is nothing to protect".to_owned());
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        if !is_writable(&maps, start.addr().get(), bytes) {
            return refuse(format!(
                "the {bytes} bytes from {start:p} on are not writable memory of this process"
            ));
        }
        self.0.push(Region { name: name.to_owned(), start, bytes });
        Ok(())
    }

    /// Whether these are the regions, in this order.
    pub(crate) fn are(&self, memory: &[(*mut u8, usize)]) -> bool {
        let region = |of: &Region| (of.start.as_ptr(), of.bytes);
        self.0.len() == memory.len() && self.0.iter().map(region).eq(memory.iter().copied())
    }

    fn list(&self) -> String {
        self.0.iter().map(|Region { name, bytes, .. }| format!("{name} {bytes}\n")).collect()
    }

    #[expect(unsafe_code, reason = "memory of the program")]
    pub(crate) fn save(&self, writer: &mut Writer) -> Result<(), ImageError> {
        writer.bytes(LIST, self.list().as_bytes())?;
        for Region { name, start, bytes } in &self.0 {
            // SAFETY: the promise of `add`.
            let memory = unsafe { std::slice::from_raw_parts(start.as_ptr(), *bytes) };
            writer.bytes(name, memory)?;
        }
        Ok(())
    }

    /// Nothing is written where names or sizes differ.
    #[expect(unsafe_code, reason = "memory of the program")]
    pub(crate) fn restore(&mut self, reader: &mut Reader) -> Result<(), ImageError> {
        let saved = reader.bytes(LIST)?;
        if saved != self.list().as_bytes() {
            let problem = difference(&String::from_utf8_lossy(&saved), &self.list());
            return Err(reader.refuse(problem));
        }
        for Region { name, start, bytes } in &mut self.0 {
            // SAFETY: the promise of `add`.
            let memory = unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), *bytes) };
            reader.bytes_into(name, memory)?;
        }
        Ok(())
    }
}

/// How two lists differ, in words for the user.
fn difference(saved: &str, now: &str) -> String {
    fn parse(list: &str) -> Vec<(&str, &str)> {
        list.lines().filter_map(|line| line.rsplit_once(' ')).collect()
    }
    let (saved, now) = (parse(saved), parse(now));
    let size = |list: &[(&str, &str)], name: &str| {
        list.iter().find(|(of, _)| *of == name).map(|(_, bytes)| (*bytes).to_owned())
    };
    let mut words = Vec::new();
    for (name, bytes) in &saved {
        match size(&now, name) {
            None => words.push(format!("{name} ({bytes} bytes) is not protected now")),
            Some(other) if other != *bytes => {
                words.push(format!("{name} had {bytes} bytes and has {other} now"));
            }
            Some(_) => {}
        }
    }
    let new = now.iter().filter(|(name, _)| size(&saved, name).is_none());
    words.extend(new.map(|(name, bytes)| format!("{name} ({bytes} bytes) was not protected then")));
    if words.is_empty() {
        let order = |list: &[(&str, &str)]| {
            list.iter().take(SHOWN).map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
        };
        let (then, now) = (order(&saved), order(&now));
        words.push(format!("the order was {then} and is {now} now"));
    }
    words.truncate(SHOWN);
    format!("the program protects other memory than when it was saved: {}", words.join("; "))
}

/// Whether all of this memory is mapped for writing, by the text of `/proc/self/maps`; without a
/// text it counts as such.
fn is_writable(maps: &str, start: usize, bytes: usize) -> bool {
    let fits = isize::try_from(bytes).is_ok();
    let Some(end) = start.checked_add(bytes).filter(|_| fits) else { return false };
    let mut at = start;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let range = words.next().and_then(|range| range.split_once('-'));
        let parse = |text| usize::from_str_radix(text, 16).ok();
        let Some((Some(first), Some(last))) = range.map(|(a, b)| (parse(a), parse(b))) else {
            continue;
        };
        let is_for_writing = words.next().is_some_and(|rights| rights.starts_with("rw"));
        if first <= at && at < last && is_for_writing {
            at = last;
        }
        if at >= end {
            return true;
        }
    }
    maps.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "1000-3000 rw-p 0 0:0 0 [heap]\n3000-4000 rw-p 0 0:0 0\n\
                        4000-5000 r--p 0 0:0 0 /lib/x\n8000-9000 rw-p 0 0:0 0 [stack]\n";

    #[test]
    fn memory_that_is_not_mapped_for_writing_as_a_whole_is_found() {
        for (start, bytes) in [(0x1000, 1), (0x1000, 0x3000), (0x2fff, 2), (0x8fff, 1)] {
            assert!(is_writable(MAPS, start, bytes), "{start:x} {bytes:x}");
        }
        for (start, bytes) in [
            (0x0, 1),
            (0x3fff, 2),
            (0x4000, 1),
            (0x8fff, 2),
            (0x1000, usize::MAX),
            (usize::MAX, 2),
            (0x1000, 1 << 62),
        ] {
            assert!(!is_writable(MAPS, start, bytes), "{start:x} {bytes:x}");
        }
        assert!(is_writable("", 1, 1), "without /proc");
    }

    #[test]
    fn a_difference_names_what_differs() {
        for (saved, now, words) in [
            ("grid 8\n", "grid 16\n", "grid had 8 bytes and has 16 now"),
            ("a 1\nb 2\n", "a 1\n", "b (2 bytes) is not protected now"),
            ("a 1\n", "a 1\nthe rest 7\n", "the rest (7 bytes) was not protected then"),
            ("a 1\nb 1\n", "b 1\na 1\n", "the order was a, b and is b, a now"),
        ] {
            let found = difference(saved, now);
            assert!(found.contains(words), "{found}");
        }
    }
}
