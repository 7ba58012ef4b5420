#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;
use std::fs;

fn header() -> Header {
    Header { job: "job-1".into(), rank: 3, size: 4, set: "s1".into(), episode: 7, safe_point: 100 }
}

struct Content {
    blob: Vec<u8>,
    field: Vec<f64>,
    counts: Vec<u64>,
}

fn write(directory: &Path, content: &Content) -> Result<PathBuf, ImageError> {
    write_image(directory, &header(), Outlives::Host, &mut |writer| {
        writer.bytes("blob", &content.blob)?;
        writer.f64s("field", &content.field)?;
        writer.u64s("counts", &content.counts)?;
        writer.u64("iteration", 42)
    })?;
    Ok(directory.join(Header::file_name(3)))
}

fn read(path: &Path) -> Result<Content, ImageError> {
    let image = ImageReader::open(path)?;
    assert_eq!(*image.header(), header());
    let mut reader = image.into_reader();
    let content = Content {
        blob: reader.bytes("blob")?,
        field: reader.f64s("field")?,
        counts: reader.u64s("counts")?,
    };
    assert_eq!(reader.u64("iteration")?, 42);
    Ok(content)
}

fn small() -> Content {
    Content {
        blob: b"some bytes".to_vec(),
        field: vec![0.1, -0.0, f64::NAN, f64::INFINITY],
        counts: vec![1, u64::MAX],
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_image_gives_back_what_was_saved_to_the_bit(
        blob: Vec<u8>,
        bits: Vec<u64>,
        counts: Vec<u64>,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let field: Vec<f64> = bits.iter().map(|bits| f64::from_bits(*bits)).collect();
        let content = Content { blob: blob.clone(), field, counts: counts.clone() };
        let path = write(directory.path(), &content).unwrap();
        let content = read(&path).unwrap();
        prop_assert_eq!(content.blob, blob);
        prop_assert_eq!(content.counts, counts);
        let restored: Vec<u64> = content.field.iter().map(|number| number.to_bits()).collect();
        prop_assert_eq!(restored, bits);
    }

    #[test]
    fn an_image_with_any_changed_byte_is_refused(
        at in any::<prop::sample::Index>(),
        change in 1_u8..,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let path = write(directory.path(), &small()).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] ^= change;
        fs::write(&path, bytes).unwrap();
        let error = ImageReader::open(&path).map(|_| ()).unwrap_err();
        prop_assert!(error.is_refused());
        prop_assert!(error.to_string().contains("rank-3.img"), "{}", error);
    }

    #[test]
    fn random_files_are_refused(bytes: Vec<u8>, with_magic: bool) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("rank-3.img");
        let start: &[u8] = if with_magic { b"FTBIMAGE\x01\0\0\0" } else { b"" };
        fs::write(&path, [start, &bytes].concat()).unwrap();
        prop_assert!(ImageReader::open(&path).is_err());
    }
}

#[test]
fn an_image_torn_at_any_byte_is_refused_and_so_is_a_longer_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &small()).unwrap();
    let whole = fs::read(&path).unwrap();
    for len in 0..whole.len() {
        fs::write(&path, &whole[..len]).unwrap();
        let error = ImageReader::open(&path).map(|_| ()).unwrap_err();
        assert!(error.is_refused(), "cut to {len}: {error}");
    }
    fs::write(&path, [&whole[..], &[0]].concat()).unwrap();
    assert!(ImageReader::open(&path).is_err());
    fs::write(&path, &whole).unwrap();
    assert!(ImageReader::open(&path).is_ok());
}

/// The checksums of single blocks hold: the index and the total checksum must detect it.
#[test]
fn exchanged_and_missing_blocks_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let content = Content {
        blob: vec![1; 3 * crate::limits::BLOCK_BYTES_MAX],
        field: vec![],
        counts: vec![],
    };
    let path = write(directory.path(), &content).unwrap();
    let whole = fs::read(&path).unwrap();
    let block = crate::limits::BLOCK_BYTES_MAX + block::HEADER_BYTES;
    let first = whole.windows(8).position(|window| window == [1; 8]).unwrap() - block::HEADER_BYTES;
    let (one, two) = (first..first + block, first + block..first + 2 * block);
    let exchanged = [&whole[..first], &whole[two.clone()], &whole[one.clone()], &whole[two.end..]];
    let missing = [&whole[..first], &whole[two.start..]];
    for bytes in [exchanged.concat(), missing.concat()] {
        fs::write(&path, bytes).unwrap();
        assert!(ImageReader::open(&path).is_err());
    }
}

#[test]
fn a_failed_save_leaves_the_image_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &small()).unwrap();
    let before = fs::read(&path).unwrap();
    let failed = write_image(directory.path(), &header(), Outlives::Host, &mut |writer| {
        writer.bytes("half", b"done")?;
        writer.bytes("", b"a section needs a name")
    });
    assert!(matches!(failed, Err(ImageError::Section { .. })));
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_section_of_another_name_or_type_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = write(directory.path(), &small()).unwrap();
    let open = || ImageReader::open(&path).unwrap().into_reader();
    assert!(open().bytes("field").is_err());
    assert!(open().f64s("blob").is_err());
    let error = open().bytes("grid").unwrap_err().to_string();
    assert!(error.contains("grid") && error.contains("blob"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_made_is_reported_with_its_path() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = write(&file.join("set"), &small()).map(|_| ()).unwrap_err();
    assert!(matches!(error, ImageError::Write { .. }) && !error.is_refused());
}
