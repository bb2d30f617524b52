//! A page in headless Chromium, driven by the `DevTools` protocol over two pipes.

use std::{
    env,
    fs::File,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A running browser with one page.
pub struct Browser {
    child: Child,
    to: File,
    from: BufReader<File>,
    /// Events that the browser sent so far.
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    _directory: TempDir,
}

impl Browser {
    /// Opens a page and waits until it is ready or shows an error. None, with a skip message, if
    /// there is no Chromium.
    pub fn open(page: &Path, width: u32) -> Option<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        if !env::split_paths(&path).any(|directory| directory.join("chromium").exists()) {
            println!("skipped: there is no chromium (Debian package chromium)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let pipes = ["to", "from"].map(|name| directory.path().join(name));
        let status = Command::new("mkfifo").args(&pipes).status().unwrap();
        assert!(status.success());
        // Chromium reads descriptor 3 and writes descriptor 4.
        let child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<\"$IN\" 4>\"$OUT\"", "sh"])
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
            ])
            .args(["--no-first-run", "--disable-background-networking"])
            .args(["--disable-component-update", "--disable-sync"])
            .args(["--remote-debugging-pipe", "--hide-scrollbars"])
            .arg(format!("--window-size={width},1000"))
            .arg(format!(
                "--user-data-dir={}",
                directory.path().join("profile").display()
            ))
            .envs([("IN", &pipes[0]), ("OUT", &pipes[1])])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = File::options().write(true).open(&pipes[0]).unwrap();
        let from = BufReader::new(File::open(&pipes[1]).unwrap());
        let mut browser = Self {
            child,
            to,
            from,
            events: Vec::new(),
            session: None,
            last_id: 0,
            _directory: directory,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attached = browser.call(
            "Target.attachToTarget",
            &json!({"targetId": target["targetId"], "flatten": true}),
        );
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Page", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        browser.call("Performance.enable", &json!({"timeDomain": "threadTicks"}));
        let url = format!("file://{}", page.display());
        browser.call("Page.navigate", &json!({"url": url}));
        while browser.events_of("Page.loadEventFired").next().is_none() {
            let event = browser.read();
            browser.events.push(event);
        }
        browser.evaluate(
            "new Promise((done) => { const look = () => document.body.dataset.ready || \
             document.querySelector('p.wrong') ? done() : setTimeout(look, 20); look(); })",
        );
        Some(browser)
    }

    /// Shows the page in a window of another width, with this preferred colour scheme.
    pub fn show_in(&mut self, width: u32, scheme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({"features": [feature]}),
        );
    }

    /// The value of an expression; a promise is awaited.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
        });
        let result = self.call("Runtime.evaluate", &parameters);
        assert!(
            result.get("exceptionDetails").is_none(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true, for up to three minutes.
    pub fn wait_for(&mut self, expression: &str) {
        self.evaluate(&format!(
            "new Promise((done, never) => {{ setTimeout(() => never('never true'), 180000); \
             const look = () => ({expression}) ? done() : setTimeout(look, 20); look(); }})"
        ));
    }

    /// Sends a mouse event at a position in the window.
    pub fn mouse(&mut self, what: &str, (x, y): (f64, f64)) {
        let pressed = what != "mouseMoved";
        let button = if pressed { "left" } else { "none" };
        self.call(
            "Input.dispatchMouseEvent",
            &json!({
                "type": what, "x": x, "y": y, "button": button, "clickCount": i32::from(pressed),
            }),
        );
    }

    /// CPU time of the page's thread so far, in ms.
    pub fn busy(&mut self) -> f64 {
        let metrics = self.call("Performance.getMetrics", &json!({}));
        let mut metrics = metrics["metrics"].as_array().unwrap().iter();
        let task = metrics.find(|it| it["name"] == "TaskDuration").unwrap();
        1000.0 * task["value"].as_f64().unwrap()
    }

    /// All errors and warnings, and all network requests.
    pub fn complaints(&mut self) -> Vec<String> {
        // Events before this answer have been read.
        self.evaluate("1");
        let errors = self
            .events_of("Log.entryAdded")
            .filter(|it| it["entry"]["level"] == "error");
        let thrown = self.events_of("Runtime.exceptionThrown");
        let logged = self
            .events_of("Runtime.consoleAPICalled")
            .filter(|it| it["type"] == "error" || it["type"] == "warning");
        let requested = self.events_of("Network.requestWillBeSent").filter(|it| {
            let url = it["request"]["url"].as_str().unwrap_or_default();
            !["file:", "data:", "blob:"]
                .iter()
                .any(|scheme| url.starts_with(scheme))
        });
        let all = errors.chain(thrown).chain(logged).chain(requested);
        all.map(Value::to_string).collect()
    }

    /// The parameters of all events of a method.
    fn events_of(&self, method: &str) -> impl Iterator<Item = &Value> {
        let events = self
            .events
            .iter()
            .filter(move |event| event["method"] == method);
        events.map(|event| &event["params"])
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last_id += 1;
        let mut message = json!({"id": self.last_id, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        self.to.write_all(message.to_string().as_bytes()).unwrap();
        self.to.write_all(b"\0").unwrap();
        loop {
            let answer = self.read();
            if answer["id"] == self.last_id {
                assert!(answer.get("error").is_none(), "{method}: {answer}");
                return answer["result"].clone();
            }
            self.events.push(answer);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.from.read_until(0, &mut bytes).unwrap();
        assert_eq!(bytes.pop(), Some(0), "chromium has ended");
        serde_json::from_slice(&bytes).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
