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
        if name.is_empty() || name.len() > SECTION_NAME_BYTES_MAX || name.contains(char::is_control)
        {
            let max = SECTION_NAME_BYTES_MAX;
            let problem = format!("a name has 1 to {max} bytes, and no control characters");
            return refuse(name, &problem);
        }
        if self.0.iter().any(|region| region.name == name) {
            return refuse(name, "this name is protected already");
        }
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        // SAFETY: the caller's promise.
        unsafe { self.push(name.to_owned(), start, bytes, &Maps::parse(&maps)) }
    }

    /// Regions without names of their own, in this order: `ckpts[0]`, `ckpts[1]`, ...
    ///
    /// # Safety
    /// As of [`Regions::add`], until others take their place.
    #[expect(unsafe_code, reason = "a promise of the program about its memory")]
    pub(crate) unsafe fn numbered(memory: &[(*mut u8, usize)]) -> Result<Self, LoopError> {
        let mut regions = Self::default();
        // A program may give other places at each call: they are read once for all.
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let maps = Maps::parse(&maps);
        for (at, (start, bytes)) in memory.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { regions.push(format!("ckpts[{at}]"), *start, *bytes, &maps)? };
        }
        Ok(regions)
    }

    /// # Safety
    /// As of [`Regions::add`].
    #[expect(unsafe_code, reason = "a promise of the program about its memory")]
    unsafe fn push(
        &mut self,
        name: String,
        start: *mut u8,
        bytes: usize,
        maps: &Maps,
    ) -> Result<(), LoopError> {
        if self.0.len() >= REGIONS_MAX {
            return refuse(
                &name,
                &format!("{REGIONS_MAX} regions are protected, which is the limit"),
            );
        }
        let Some(start) = NonNull::new(start) else { return refuse(&name, "the address is NULL") };
        if bytes == 0 {
            return refuse(&name, "it has 0 bytes: there is nothing to protect");
        }
        if !maps.has_writable(start.addr().get(), bytes) {
            let problem = format!(
                "the {bytes} bytes from {start:p} on are not writable memory of this process"
            );
            return refuse(&name, &problem);
        }
        self.0.push(Region { name, start, bytes });
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

fn refuse(name: &str, problem: &str) -> Result<(), LoopError> {
    Err(LoopError::Invalid(format!("{name:.64?}: {problem}")))
}

/// What is mapped for writing, in order: first address and the one behind the last; neighbours are
/// one. `None`: it is not known.
#[derive(Debug, PartialEq, Eq)]
struct Maps(Option<Vec<(usize, usize)>>);

impl Maps {
    /// Of the text of `/proc/self/maps`.
    fn parse(text: &str) -> Self {
        let range = |line: &str| {
            let mut words = line.split(' ');
            let (first, last) = words.next()?.split_once('-')?;
            let parse = |text| usize::from_str_radix(text, 16).ok();
            let is_writable = words.next()?.starts_with("rw");
            is_writable.then_some((parse(first)?, parse(last)?))
        };
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for (first, last) in text.lines().filter_map(range) {
            match ranges.last_mut() {
                Some((_, end)) if *end == first => *end = last,
                _ => ranges.push((first, last)),
            }
        }
        Self((!text.is_empty()).then_some(ranges))
    }

    /// Whether all of this memory is mapped for writing; if that is not known it counts as such.
    fn has_writable(&self, start: usize, bytes: usize) -> bool {
        let fits = isize::try_from(bytes).is_ok();
        let Some(end) = start.checked_add(bytes).filter(|_| fits) else { return false };
        let Some(ranges) = &self.0 else { return true };
        let after = ranges.partition_point(|(first, _)| *first <= start);
        let range = after.checked_sub(1).and_then(|at| ranges.get(at));
        range.is_some_and(|(_, last)| end <= *last)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const MAPS: &str = "1000-3000 rw-p 0 0:0 0 [heap]\n3000-4000 rw-p 0 0:0 0\n\
                        4000-5000 r--p 0 0:0 0 /lib/x\n8000-9000 rw-p 0 0:0 0 [stack]\n";

    #[test]
    fn memory_that_is_not_mapped_for_writing_as_a_whole_is_found() {
        for (start, bytes) in [(0x1000, 1), (0x1000, 0x3000), (0x2fff, 2), (0x8fff, 1)] {
            assert!(Maps::parse(MAPS).has_writable(start, bytes), "{start:x} {bytes:x}");
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
            assert!(!Maps::parse(MAPS).has_writable(start, bytes), "{start:x} {bytes:x}");
        }
        assert!(Maps::parse("").has_writable(1, 1), "without /proc");
    }

    /// A program that swaps pointers gives other places at each call.
    #[test]
    #[expect(unsafe_code, reason = "nothing reads or writes them")]
    fn thousands_of_pieces_at_other_places_are_found_by_one_look_at_the_memory() {
        let mut memory = vec![0_u8; REGIONS_MAX];
        let pieces: Vec<_> = memory.iter_mut().map(|byte| (core::ptr::from_mut(byte), 1)).collect();
        // SAFETY: they are not used.
        let regions = unsafe { Regions::numbered(&pieces) }.unwrap();
        assert!(regions.are(&pieces));
        assert!(regions.list().ends_with(&format!("ckpts[{}] 1\n", REGIONS_MAX - 1)));
        let more = [&pieces[..], &pieces[..1]].concat();
        // SAFETY: as above.
        let error = unsafe { Regions::numbered(&more) }.unwrap_err().to_string();
        assert!(error.contains("which is the limit"), "{error}");
        // SAFETY: it is refused.
        let error = unsafe { Regions::numbered(&[(core::ptr::null_mut(), 1)]) }.unwrap_err();
        assert!(error.to_string().contains("\"ckpts[0]\": the address is NULL"), "{error}");
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
