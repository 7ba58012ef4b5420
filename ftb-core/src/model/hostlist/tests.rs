#![allow(clippy::unwrap_used)]
use super::*;
use proptest::prelude::*;

fn expand(text: &str) -> Vec<String> {
    Hostlist::parse(text).unwrap().iter().collect()
}

#[test]
fn lists_expand_in_order_and_keep_leading_zeros() {
    assert_eq!(
        expand("login[1-2], node[008-010]"),
        ["login1", "login2", "node008", "node009", "node010"]
    );
    assert_eq!(expand("r[1-2]n[1,3]x"), ["r1n1x", "r1n3x", "r2n1x", "r2n3x"]);
    assert_eq!(expand("a,10.0.0.1:99"), ["a", "10.0.0.1:99"]);
    assert_eq!(expand("n[9-11]"), ["n9", "n10", "n11"]);
}

#[test]
fn the_index_of_a_host_is_its_place() {
    let list = Hostlist::parse("login,node[001-512]").unwrap();
    assert_eq!(list.len(), 513);
    assert_eq!(list.position("NODE512"), Some(512));
    assert_eq!(list.get(1).as_deref(), Some("node001"));
    assert!(!list.contains("node513"));
}

#[test]
fn errors_point_at_the_column() {
    let column = |text: &str| Hostlist::parse(text).unwrap_err().column;
    assert_eq!(column(""), 1);
    assert_eq!(column("a,,b"), 3);
    assert_eq!(column("node[1-"), 5);
    assert_eq!(column("node1]"), 6);
    assert_eq!(column("ok,node[1,9-3]"), 11);
    assert_eq!(column("ok,node[1,x]"), 11);
    assert_eq!(column("ok, no de"), 7);
    assert_eq!(column("a,b,a"), 5);
    assert_eq!(column("n[1-99999999]"), 3);
    assert_eq!(column("n[1-9999][1-9999]"), 10);
}

#[test]
fn folding_reads_back_as_the_same_list() {
    for text in [
        "node[001-032]",
        "node[1-12,14]",
        "login[1-2],node[08-12],node[100-101]",
        "a,b,c",
        "r[1-2]n[01-03]",
        "node[9-11],x1y",
        "n0,n00,n000",
    ] {
        let list = Hostlist::parse(text).unwrap();
        let folded = list.to_string();
        assert_eq!(Hostlist::parse(&folded).unwrap(), list, "{text} -> {folded}");
    }
    assert_eq!(
        Hostlist::parse("node001,node002,node007").unwrap().to_string(),
        "node[001-002,007]"
    );
}

/// Host lists as a plain list of names: what ranges must agree with.
struct Expanded {
    names: Vec<String>,
    /// Names that stand there twice, in lower case.
    repeated: Vec<String>,
}

/// A part of a word: a text, or the parts of a bracket as first and last number and width.
#[derive(Clone, Debug)]
enum Part {
    Text(&'static str),
    Bracket(Vec<(u64, u64, usize)>),
}

impl Expanded {
    fn of(words: &[Vec<Part>]) -> Self {
        let mut names: Vec<String> = Vec::new();
        for word in words {
            let mut starts = vec![String::new()];
            for part in word {
                let ends: Vec<String> = match part {
                    Part::Text(text) => vec![(*text).to_owned()],
                    Part::Bracket(ranges) => ranges
                        .iter()
                        .flat_map(|(first, last, width)| {
                            (*first..=*last).map(move |number| format!("{number:0width$}"))
                        })
                        .collect(),
                };
                let all =
                    starts.iter().flat_map(|s| ends.iter().map(move |end| format!("{s}{end}")));
                starts = all.collect();
            }
            names.extend(starts);
        }
        let mut lower: Vec<String> = names.iter().map(|name| name.to_ascii_lowercase()).collect();
        lower.sort();
        let pairs = lower.windows(2).filter(|pair| pair[0] == pair[1]);
        let repeated = pairs.map(|pair| pair[0].clone()).collect();
        Self { names, repeated }
    }

    fn contains(&self, host: &str) -> bool {
        self.names.iter().any(|name| name.eq_ignore_ascii_case(host))
    }
}

fn text_of(words: &[Vec<Part>]) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => (*text).to_owned(),
        Part::Bracket(ranges) => {
            let range = |(first, last, width): &(u64, u64, usize)| match first == last {
                true => format!("{first:0width$}"),
                false => format!("{first:0width$}-{last}"),
            };
            format!("[{}]", ranges.iter().map(range).collect::<Vec<_>>().join(","))
        }
    };
    let word = |word: &Vec<Part>| word.iter().map(part).collect::<String>();
    words.iter().map(word).collect::<Vec<_>>().join(",")
}

fn words() -> impl Strategy<Value = Vec<Vec<Part>>> {
    let texts = ["n", "N", "r", "x-", "0", "1", "07", ".c1", "n1", "1x"];
    let width = prop_oneof![4 => Just(1_usize), 1 => Just(2), 1 => Just(3)];
    let first = prop_oneof![0..12_u64, 95..103_u64];
    let range = (first, 0..6_u64, width).prop_map(|(first, more, width)| {
        let width = width.max(first.to_string().len());
        (first, first + more, width)
    });
    let part = prop_oneof![
        3 => proptest::sample::select(texts.to_vec()).prop_map(Part::Text),
        2 => proptest::collection::vec(range, 1..4).prop_map(Part::Bracket),
    ];
    proptest::collection::vec(proptest::collection::vec(part, 1..5), 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn ranges_agree_with_the_list_of_all_names(words in words()) {
        let (text, model) = (text_of(&words), Expanded::of(&words));
        let list = match Hostlist::parse(&text) {
            Ok(list) => list,
            Err(error) => {
                let twice = model.repeated.iter().any(|name| {
                    error.reason.to_ascii_lowercase().contains(&format!("{name:?} stands"))
                });
                prop_assert!(twice, "{text}: {error}");
                return Ok(());
            }
        };
        prop_assert!(model.repeated.is_empty(), "{text}: {:?}", model.repeated);
        prop_assert_eq!(list.len(), model.names.len());
        prop_assert!(list.iter().eq(model.names.iter().cloned()), "{}", text);
        for (index, name) in model.names.iter().enumerate() {
            let found = list.position(&name.to_ascii_uppercase());
            prop_assert_eq!(found, Some(index), "{}: {}", text, name);
            for other in [format!("{name}0"), format!("0{name}"), name.replace('1', "01")] {
                prop_assert_eq!(list.contains(&other), model.contains(&other), "{}", other);
            }
        }
        let folded = list.to_string();
        prop_assert_eq!(Hostlist::parse(&folded).unwrap(), list, "{} -> {}", text, folded);
    }

    #[test]
    fn a_list_contains_another_exactly_if_it_has_all_its_names(a in words(), b in words()) {
        let lists = (Hostlist::parse(&text_of(&a)), Hostlist::parse(&text_of(&b)));
        let both = Hostlist::parse(&text_of(&[a.clone(), b.clone()].concat()));
        let (Ok(one), Ok(other)) = lists else { return Ok(()) };
        let model = Expanded::of(&a);
        let all = Expanded::of(&b).names.iter().all(|name| model.contains(name));
        prop_assert_eq!(one.contains_all(&other), all, "{:?} {:?}", one, other);
        if let Ok(both) = both {
            prop_assert!(both.contains_all(&one) && both.contains_all(&other));
        }
    }
}

#[test]
fn a_long_list_takes_no_more_memory_than_a_short_one() {
    let name = "a".repeat(240);
    let list = Hostlist::parse(&format!("{name}[000001-262144]")).unwrap();
    assert_eq!(list.len(), limits::HOSTLIST_HOSTS_MAX);
    assert!(list.bytes() < 1024, "{} bytes", list.bytes());
    assert_eq!(list.position(&format!("{name}262144")), Some(262_143));
    assert_eq!(list.get(99), Some(format!("{name}000100")));
    let racks = Hostlist::parse("r[1-512]n[1-512]").unwrap();
    assert_eq!((racks.len(), racks.position("r512n512")), (262_144, Some(262_143)));
    assert!(racks.bytes() < 1024, "{} bytes", racks.bytes());
}

#[test]
fn ranges_that_must_be_written_one_by_one_are_bounded() {
    let text = "n[1-100000]5";
    assert_eq!(Hostlist::parse(text).unwrap().len(), 100_000);
    let error = Hostlist::parse_within(text, 64 * 1024).unwrap_err();
    assert!(error.reason.contains("name fewer ranges"), "{error}");
    assert_eq!(Hostlist::parse_within("n[1-100]5", 64 * 1024).unwrap().get(9).unwrap(), "n105");
}

#[test]
fn a_list_without_neighbours_is_read_and_searched_quickly() {
    // Each name of another shape or with two numbers that both change: nothing can be merged.
    let words: Vec<String> = (0..20_000_u32).map(|n| format!("r{n}n{}", n * 7 % 20_011)).collect();
    let list = Hostlist::parse(&words.join(",")).unwrap();
    assert!(words.iter().enumerate().all(|(index, name)| list.position(name) == Some(index)));
    let twice = [&words[..], &words[7..8]].concat().join(",");
    let error = Hostlist::parse(&twice).unwrap_err();
    assert_eq!(error.reason, format!("host {:?} stands in the list twice", words[7]));
    assert_eq!(error.column, twice.rfind(',').unwrap() + 2);
}

#[test]
fn digits_that_are_too_many_for_a_number_are_text() {
    let long = format!("n{}", "1".repeat(30));
    assert_eq!(Hostlist::parse(&long).unwrap().position(&long), Some(0));
    for text in [format!("{long}[1-2]"), format!("n[1-2]{}", &long[1..])] {
        let error = Hostlist::parse(&text).unwrap_err();
        assert!(error.reason.contains("more than 18 digits"), "{text}: {error}");
    }
    let widest = format!("n[{0}-{0}]", "9".repeat(18));
    assert_eq!(Hostlist::parse(&widest).unwrap().to_string(), format!("n{}", "9".repeat(18)));
}
