//! Headless Chromium, driven by chromedriver over WebDriver (W3C): JSON over HTTP.
//!
//! Responsible for: starting and ending both, scripts, keys, pictures, axe-core. Not responsible
//! for: what the page should show.

use anyhow::{Context as _, Result, bail, ensure};
use ftb_tests::cluster::{PATIENCE, tied};
use ftb_tests::http;
use ftb_tests::python::{pip, run, target};
use ftb_tests::skip::skip;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// axe-core 4.12.1 in a wheel of the package index, with its checksum.
const AXE: (&str, &str) = (
    "axe-playwright-python==0.1.8",
    "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8",
);
/// How many colours a picture of a view has at least; a blank one has one or two.
const COLOURS_MIN: u64 = 24;

pub(crate) const ENTER: char = '\u{e007}';
pub(crate) const ESCAPE: char = '\u{e00c}';
pub(crate) const PAGE_DOWN: char = '\u{e00f}';
pub(crate) const END: char = '\u{e010}';
pub(crate) const HOME: char = '\u{e011}';
pub(crate) const LEFT: char = '\u{e012}';
pub(crate) const UP: char = '\u{e013}';
pub(crate) const RIGHT: char = '\u{e014}';
pub(crate) const DOWN: char = '\u{e015}';

/// A browser with one window. It ends with the test.
pub(crate) struct Browser {
    driver: Child,
    address: String,
    session: String,
    shots: PathBuf,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium ends with its session; what does not, with the group of chromedriver.
        let _ = self.call("DELETE", "", None);
        if let Ok(group) = i32::try_from(self.driver.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.driver.wait();
    }
}

impl Browser {
    /// Starts one; `None`, and a line, where there is none.
    pub(crate) fn open() -> Option<Self> {
        let works = |program: &str| {
            let asked = Command::new(program).arg("--version").output();
            asked.is_ok_and(|output| output.status.success())
        };
        if let Some(program) = ["chromium", "chromedriver"].into_iter().find(|p| !works(p)) {
            skip(&format!("no {program} (Debian: chromium, chromium-driver)"));
            return None;
        }
        Some(Self::start().expect("chromedriver starts Chromium"))
    }

    fn start() -> Result<Self> {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0");
        let mut command = tied(&command);
        let mut driver = command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let output = driver.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        let port = loop {
            let line = lines.next().context("chromedriver has ended")??;
            if let Some((_, port)) = line.split_once("started successfully on port ") {
                break port.trim_end_matches('.').to_owned();
            }
        };
        // Its output must be read, or it stops at a full pipe.
        std::thread::spawn(move || lines.for_each(drop));
        let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page");
        std::fs::create_dir_all(&shots)?;
        let mut browser =
            Self { driver, address: format!("127.0.0.1:{port}"), session: String::new(), shots };
        let arguments = [
            "--headless=new",
            // Root has no sandbox of its own; the pages are ours.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--window-size=1280,960",
        ];
        let wanted = json!({ "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }});
        let session = json!({ "capabilities": wanted });
        let begun = browser.request("POST", "/session", Some(&session))?;
        let session = begun["sessionId"].as_str().context("no session")?;
        browser.session = format!("/session/{session}");
        Ok(browser)
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        let answer = http::ask(&self.address, &(head + &body))?;
        let mut value: Value = serde_json::from_str(&answer.body)
            .with_context(|| format!("{method} {path}: {} {}", answer.status, answer.body))?;
        ensure!(answer.status == 200, "{method} {path}: {}", value["value"]["message"]);
        Ok(value["value"].take())
    }

    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value> {
        self.request(method, &format!("{}{path}", self.session), body.as_ref())
    }

    fn must(&self, method: &str, path: &str, body: Value) -> Value {
        self.call(method, path, Some(body)).unwrap_or_else(|error| panic!("{error:?}"))
    }

    /// Opens an address.
    pub(crate) fn go(&self, url: &str) {
        self.must("POST", "/url", json!({ "url": url }));
    }

    /// Runs a script and gives what it returns.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.must("POST", "/execute/sync", json!({ "script": script, "args": [] }))
    }

    /// The same for a number.
    pub(crate) fn number(&self, script: &str) -> f64 {
        let value = self.run(script);
        value.as_f64().unwrap_or_else(|| panic!("{script}: {value}"))
    }

    /// The same for a text.
    pub(crate) fn text(&self, script: &str) -> String {
        let value = self.run(script);
        value.as_str().unwrap_or_else(|| panic!("{script}: {value}")).to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&self, expression: &str) {
        let begun = Instant::now();
        let script = format!("return Boolean({expression})");
        loop {
            // A page that is being loaded has no answer yet.
            let answer = self.call(
                "POST",
                "/execute/sync",
                Some(json!({
                    "script": script, "args": [],
                })),
            );
            if matches!(answer, Ok(Value::Bool(true))) {
                return;
            }
            if begun.elapsed() > PATIENCE {
                let seen = self.text("return document.body.innerText");
                let shot = self.picture("failed").map(|_| ());
                panic!("never true: {expression}\n{answer:?} {shot:?}\n{seen}\n{:?}", self.log());
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Clicks on the element of a selector, as a mouse does.
    pub(crate) fn click(&self, selector: &str) {
        let found = json!({ "using": "css selector", "value": selector });
        let element = self.must("POST", "/element", found);
        let id =
            element.as_object().and_then(|map| map.values().next()?.as_str().map(str::to_owned));
        let id = id.unwrap_or_else(|| panic!("no {selector}"));
        self.must("POST", &format!("/element/{id}/click"), json!({}));
    }

    /// Presses keys one after the other.
    pub(crate) fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key })))
            .collect();
        let keyboard = json!({ "type": "key", "id": "keyboard", "actions": actions });
        self.must("POST", "/actions", json!({ "actions": [keyboard] }));
    }

    /// A window of that size.
    pub(crate) fn resize(&self, width: u32, height: u32) {
        self.must("POST", "/window/rect", json!({ "width": width, "height": height }));
    }

    /// Pretends that a person prefers that.
    pub(crate) fn prefer(&self, features: &[(&str, &str)]) {
        let feature = |(name, value): &(&str, &str)| json!({ "name": name, "value": value });
        let features: Vec<Value> = features.iter().map(feature).collect();
        let parameters = json!({ "features": features });
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": parameters });
        self.must("POST", "/goog/cdp/execute", command);
    }

    /// What the page has logged: errors, and what the policy of content has stopped.
    pub(crate) fn log(&self) -> Vec<String> {
        let lines = self.must("POST", "/se/log", json!({ "type": "browser" }));
        let lines = lines.as_array().cloned().unwrap_or_default();
        lines.iter().map(|line| format!("{} {}", line["level"], line["message"])).collect()
    }

    fn picture(&self, name: &str) -> Result<String> {
        let picture = self.call("GET", "/screenshot", None)?;
        let picture = picture.as_str().context("no picture")?.to_owned();
        std::fs::write(self.shots.join(format!("{name}.png")), base64(&picture)?)?;
        Ok(picture)
    }

    /// Keeps a picture of the page, which must not be blank.
    pub(crate) fn shot(&self, name: &str) {
        let picture = self.picture(name).unwrap();
        let count = "
            const [text, done] = arguments;
            const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
            createImageBitmap(new Blob([bytes], { type: 'image/png' })).then((image) => {
                const canvas = new OffscreenCanvas(image.width, image.height);
                const context = canvas.getContext('2d');
                context.drawImage(image, 0, 0);
                const all = new Uint32Array(
                    context.getImageData(0, 0, image.width, image.height).data.buffer);
                done(new Set(all).size);
            });";
        let body = json!({ "script": count, "args": [picture] });
        let colours = self.must("POST", "/execute/async", body).as_u64().unwrap();
        assert!(colours >= COLOURS_MIN, "{name}.png has {colours} colours only");
    }

    /// Keeps a picture, and has axe-core look for what keeps people out.
    /// Without its text, only the picture.
    pub(crate) fn examine(&self, name: &str, axe: &str) {
        self.shot(name);
        if axe.is_empty() {
            return;
        }
        self.run(&format!("if (!window.axe) {{ {axe} }}"));
        let script = "
            const done = arguments[0];
            axe.run(document, { preload: false }).then((result) => done(result.violations.flatMap(
                (found) => found.nodes.map((node) => `${found.id}: ${node.failureSummary} ` +
                    node.html.slice(0, 200)))), (error) => done([String(error)]));";
        let body = json!({ "script": script, "args": [] });
        let found = self.must("POST", "/execute/async", body);
        assert_eq!(found, json!([]), "axe-core, {name}");
    }
}

/// The text of axe-core; `None`, and a line, where the package index is out of reach.
pub(crate) fn axe() -> Option<String> {
    let text = fetch_axe();
    text.map_err(|why| skip(&format!("no axe-core to look at the page: {why}"))).ok()
}

fn fetch_axe() -> Result<String, String> {
    let folder = target().join("axe");
    let file = folder.join("unpacked/axe_playwright_python/axe.min.js");
    if !file.exists() {
        let failed = |error: std::io::Error| error.to_string();
        std::fs::create_dir_all(&folder).map_err(failed)?;
        let list = folder.join("requirements.txt");
        let (package, hash) = AXE;
        std::fs::write(&list, format!("{package} --hash=sha256:{hash}\n")).map_err(failed)?;
        let mut download = pip(Path::new("python3"), "download");
        download.args(["--no-deps", "--only-binary=:all:", "--require-hashes", "--dest"]);
        run(download.arg(&folder).arg("-r").arg(&list), "pip cannot download axe-core")?;
        let wheel = "axe_playwright_python-0.1.8-py3-none-any.whl";
        let mut unpack = Command::new("python3");
        unpack.args(["-m", "zipfile", "-e"]).arg(folder.join(wheel)).arg(folder.join("unpacked"));
        run(&mut unpack, "the wheel cannot be unpacked")?;
    }
    std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))
}

/// The bytes of a text in base64.
fn base64(text: &str) -> Result<Vec<u8>> {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        let Some(value) = LETTERS.iter().position(|known| *known == letter) else {
            bail!("{letter} is no letter of base64");
        };
        bits = bits << 6 | value as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}
