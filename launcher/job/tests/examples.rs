//! The example programs: their results are right, the same everywhere, and bad input is refused.
#![allow(clippy::unwrap_used)]

mod harness;

use harness::processes::{result, run_job, start};

fn field(result: &str) -> &str {
    result.split_once("field ").unwrap().1
}

#[test]
fn the_field_is_the_same_for_every_number_of_ranks_and_every_placement() {
    const OPTIONS: [&str; 4] = ["--grid", "14", "--iterations", "25"];
    let apart = |rank| format!("n{rank}");
    let together = |_| "n0".to_owned();
    let alone = result(&run_job(1, together, ("poisson", &OPTIONS)));
    let six = result(&run_job(6, apart, ("poisson", &OPTIONS)));
    assert_eq!(six, result(&run_job(6, together, ("poisson", &OPTIONS))));
    assert_eq!(field(&alone), field(&six));
    assert_eq!(field(&alone), field(&result(&run_job(8, apart, ("poisson", &OPTIONS)))));
    let longer = ["--grid", "14", "--iterations", "26"];
    assert_ne!(field(&alone), field(&result(&run_job(6, apart, ("poisson", &longer)))));
}

#[test]
fn the_solver_converges_to_the_solution_of_the_equation() {
    const OPTIONS: [&str; 4] = ["--grid", "10", "--iterations", "1500"];
    let line = result(&run_job(2, |_| "n0".into(), ("poisson", &OPTIONS)));
    let residual = line.split_whitespace().nth(4).unwrap();
    assert!(residual.parse::<f64>().unwrap() < 1e-12, "{line}");
}

#[test]
fn the_token_comes_home_the_same_wherever_the_ranks_are() {
    let options = ["--laps", "50"];
    let apart = result(&run_job(5, |rank| format!("n{rank}"), ("ring", &options)));
    assert_eq!(apart, result(&run_job(5, |_| "n0".into(), ("ring", &options))));
    assert!(apart.contains("ranks 5 laps 50"), "{apart}");
}

#[test]
fn bad_input_ends_with_code_2_and_one_line() {
    let refused = |options: &[&str], variables: &[(&str, String)]| {
        let output = start("poisson", options, variables).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(64));
        String::from_utf8(output.stderr).unwrap()
    };
    let no_pmi = refused(&[], &[("FTB_SIZE", "4".into())]);
    assert!(no_pmi.contains("PMI_FD") && no_pmi.lines().count() == 1, "{no_pmi}");
    assert!(refused(&["--grid", "1"], &[]).contains("--grid"));
    let no_number = refused(&[], &[("FTB_RANK", "first".into())]);
    assert!(no_number.contains("\"first\""), "{no_number}");
}

#[test]
fn an_image_that_is_not_there_ends_with_code_65() {
    let directory = tempfile::tempdir().unwrap();
    let set = directory.path().join("s1").display().to_string();
    let output = start("ring", &[], &[("FTB_RESTORE", set)]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(65));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("rank-0.img"), "{stderr}");
}
