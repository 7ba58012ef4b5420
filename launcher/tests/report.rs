//! The report of the launcher's benches.

#![allow(clippy::unwrap_used, missing_docs)]

#[path = "../benches/report/mod.rs"]
mod report;

use report::Table;
use std::time::Duration;

#[test]
fn a_table_replaces_the_one_before_and_its_picture_shows_what_is_allowed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bench.md");
    std::fs::write(&file, "before\n<!-- bench: a b -->\nold\n<!-- end: a b -->\nafter\n").unwrap();
    let mut table = Table::new("a b");
    let ms = Duration::from_millis;
    table.times("half & half", vec![ms(50), ms(60), ms(40)], Some(ms(100)));
    table.times("twice", vec![ms(200)], Some(ms(100)));
    table.times("nothing is allowed", vec![ms(7)], None);
    table.write_to(&file);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.starts_with("before\n") && text.ends_with("after\n"), "{text}");
    assert!(text.contains("| half & half | 50 ms | 40 to 60 | 100 ms | 0.50 |"), "{text}");
    assert!(text.contains("| nothing is allowed | 7 ms |") && !text.contains("old"), "{text}");
    let picture = std::fs::read_to_string(dir.path().join("a-b.svg")).unwrap();
    assert!(picture.contains("half &amp; half") && !picture.contains("nothing"), "{picture}");
    let bar = |width: &str, colour: &str| {
        picture.contains(&format!("width=\"{width}\" height=\"14\" fill=\"{colour}\""))
    };
    assert!(bar("40.0", "#0b6e4f") && bar("160.0", "#b3541e"), "{picture}");
}
