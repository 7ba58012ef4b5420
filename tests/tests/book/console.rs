//! Blocks of `console`: commands that are run, and what they print.
//!
//! A line `$ COMMAND` is run by bash. The lines behind it are of its output: each word of letters
//! there must be printed; names, numbers and times may differ. A line `# exit code N` is what it
//! ends with; without one it must succeed.

use ftb_tests::pages::{Block, code};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Shorter words say nothing.
const WORD_MIN: usize = 4;

/// A command with what it must print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    words: Vec<String>,
    code: i32,
}

/// The commands of all console blocks of a page, in order.
pub(crate) fn steps(text: &str) -> Vec<Step> {
    let blocks = code(text).0.into_iter().filter(|block| block.language == "console");
    blocks.flat_map(|block| of_block(&block)).collect()
}

fn of_block(block: &Block) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in &block.lines {
        if let Some(command) = line.strip_prefix("$ ") {
            steps.push(Step { command: command.to_owned(), words: Vec::new(), code: 0 });
            continue;
        }
        let step = steps.last_mut().unwrap_or_else(|| panic!("output without a command: {line}"));
        match line.strip_prefix("# exit code ") {
            Some(code) => step.code = code.parse().unwrap(),
            None => step.words.extend(words(line)),
        }
    }
    steps
}

fn words(line: &str) -> Vec<String> {
    let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    let is_word = |word: &&str| {
        word.len() >= WORD_MIN && word.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
    };
    words.filter(is_word).map(str::to_owned).collect()
}

impl Step {
    /// Runs it where the words in `places` are replaced; gives what is wrong.
    pub(crate) fn run(
        &self,
        folder: &Path,
        places: &BTreeMap<String, String>,
        environment: &BTreeMap<String, String>,
    ) -> Option<String> {
        let command = places.iter().fold(self.command.clone(), |c, (from, to)| c.replace(from, to));
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-c", &command]).current_dir(folder).stdin(Stdio::null());
        let output = bash.env_remove("SLURM_JOB_ID").envs(environment).output().unwrap();
        let said = [&*output.stdout, &*output.stderr].map(String::from_utf8_lossy).concat();
        let missing: Vec<&String> = self.words.iter().filter(|w| !said.contains(*w)).collect();
        if output.status.code() == Some(self.code) && missing.is_empty() {
            return None;
        }
        let code = output.status;
        Some(format!("$ {}\n{said}{code}, not {}; missing: {missing:?}", self.command, self.code))
    }
}

#[test]
fn a_step_has_its_words_and_its_code() {
    let page = "```console\n$ ftbctl a\nnode1 is FTB_X of 3 members\n# exit code 3\n$ b\n```\n";
    let steps = steps(page);
    let step = |command: &str, words: &[&str], code| Step {
        command: command.to_owned(),
        words: words.iter().map(|word| (*word).to_owned()).collect(),
        code,
    };
    assert_eq!(steps, [step("ftbctl a", &["FTB_X", "members"], 3), step("b", &[], 0)]);
    let run = |step: &Step| step.run(Path::new("/"), &BTreeMap::new(), &BTreeMap::new());
    assert_eq!(run(&step("echo members", &["members"], 0)), None);
    assert!(run(&step("echo members", &["member", "others"], 0)).unwrap().contains("others"));
    assert!(run(&step("exit 2", &[], 0)).unwrap().contains("not 0"));
}
