//! Starts an agent and reads what it serves.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::pmuscope;

/// Limit of a wait for the agent, which normally needs seconds. At the limit the test fails and
/// shows the log; without a limit the test would only time out.
const LIMIT: Duration = Duration::from_mins(2);

/// Values by series. The key is the name with the labels, as in the text.
pub type Series = BTreeMap<String, f64>;

/// A running agent with its own run directory. Dropping it kills the agent.
pub struct Agent {
    child: Child,
    /// The lines of JSON, one for each window.
    windows: Receiver<String>,
    /// The socket that stands for the service manager.
    manager: UnixDatagram,
    /// The address on which the agent listens.
    pub address: SocketAddr,
    /// The agent's directory: configuration, log, and `run`, the run directory.
    pub directory: TempDir,
}

/// Configuration and arguments of an agent.
pub struct AgentOptions<'a> {
    /// Text of the configuration file.
    pub config: &'a str,
    /// Further arguments.
    pub flags: &'a [&'a str],
    /// Destination of the lines of JSON.
    pub json: &'a str,
    /// `http` or `https`.
    pub scheme: &'a str,
}

impl Default for AgentOptions<'_> {
    fn default() -> Self {
        Self {
            config: "interval = \"200ms\"\n",
            flags: &[],
            json: "-",
            scheme: "http",
        }
    }
}

impl Agent {
    /// Starts an agent with the default options and waits until it is ready.
    pub fn start() -> Self {
        Self::with(&AgentOptions::default(), |_| {})
    }

    /// Starts an agent and waits until it is ready. `prepare` gets the agent's directory, which
    /// contains `run`, the run directory.
    pub fn with(options: &AgentOptions<'_>, prepare: impl FnOnce(&TempDir)) -> Self {
        let mut agent = Self::spawn(options, prepare);
        agent.wait_for_notification("READY=1");
        let log = agent.log();
        let serving = format!("serving {}://", options.scheme);
        let address = log.split_once(&serving).unwrap().1;
        agent.address = address.split_once("/metrics").unwrap().0.parse().unwrap();
        agent
    }

    /// Starts an agent without a wait for readiness.
    pub fn spawn(options: &AgentOptions<'_>, prepare: impl FnOnce(&TempDir)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("agent.toml"), options.config).unwrap();
        prepare(&directory);
        let manager = UnixDatagram::bind(path("notify")).unwrap();
        let mut child = pmuscope()
            .args(["agent", "--listen", "127.0.0.1:0", "--json", options.json])
            .arg("--config")
            .arg(path("agent.toml"))
            .arg("--run-directory")
            .arg(path("run"))
            .args(options.flags)
            .env("NOTIFY_SOCKET", path("notify"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(path("log")).unwrap())
            .spawn()
            .unwrap();
        let (sender, windows) = channel();
        let lines = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in lines.lines() {
                // The receiver is gone when the test has ended.
                let _ = sender.send(line.unwrap());
            }
        });
        Self {
            child,
            windows,
            manager,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            directory,
        }
    }

    /// A handle of the service manager's socket, for tests that read it themselves.
    pub fn manager(&self) -> UnixDatagram {
        self.manager.try_clone().unwrap()
    }

    /// Waits until the agent sends this notification to the service manager.
    pub fn wait_for_notification(&mut self, expected: &str) {
        let mut message = [0; 4096];
        self.manager.set_read_timeout(Some(LIMIT)).unwrap();
        loop {
            let length = match self.manager.recv(&mut message) {
                Ok(length) => length,
                Err(error) => panic!("{error}; its log:\n{}", self.log()),
            };
            let message = std::str::from_utf8(&message[..length]).unwrap();
            if message.lines().any(|line| line == expected) {
                return;
            }
        }
    }

    /// The agent's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap()
    }

    /// The agent's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A path in the run directory.
    pub fn run_file(&self, name: &str) -> PathBuf {
        self.directory.path().join("run").join(name)
    }

    /// Waits for a window that began after this call.
    pub fn next_window(&self) {
        while self.windows.try_recv().is_ok() {}
        for _ in 0..2 {
            self.next_line();
        }
    }

    /// The next line in the queue.
    #[track_caller]
    fn next_line(&self) -> String {
        let line = self.windows.recv_timeout(LIMIT);
        line.unwrap_or_else(|error| panic!("no window: {error}; its log:\n{}", self.log()))
    }

    /// The JSON of the next window in the queue.
    pub fn window(&self) -> serde_json::Value {
        serde_json::from_str(&self.next_line()).unwrap()
    }

    /// The JSON of a window that ended after this call.
    pub fn line(&self) -> serde_json::Value {
        while self.windows.try_recv().is_ok() {}
        serde_json::from_str(&self.next_line()).unwrap()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().cast_signed()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Replaces the configuration file atomically.
    pub fn configure(&self, config: &str) {
        self.replace_configuration(|new| fs::write(new, config).unwrap());
    }

    /// As `configure`, with the file that `make` writes.
    pub fn replace_configuration(&self, make: impl FnOnce(&Path)) {
        let path = |name: &str| self.directory.path().join(name);
        make(&path("agent.toml.new"));
        fs::rename(path("agent.toml.new"), path("agent.toml")).unwrap();
    }

    /// Replaces the configuration and waits until the agent has read it.
    pub fn reload(&mut self, config: &str) {
        self.configure(config);
        self.signal(Signal::HUP);
        self.wait_for_notification("RELOADING=1");
        self.wait_for_notification("READY=1");
    }

    /// Waits until the agent exits.
    pub fn ended(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The response to a GET of a path.
    pub fn get(&self, path: &str) -> Answer {
        self.get_with(path, "")
    }

    /// As `get`, with additional headers, each with its line end.
    pub fn get_with(&self, path: &str, headers: &str) -> Answer {
        self.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"
        ))
    }

    /// The response to the text of a request.
    pub fn ask(&self, request: &str) -> Answer {
        Answer::request(self.address, request)
    }

    /// All series of the last window.
    pub fn series(&self) -> Series {
        let answer = self.get("/metrics");
        assert_eq!(answer.status, 200, "{}", answer.text());
        parse(&answer.text())
    }

    /// The responses of /metrics to requests with these headers. All responses show the same
    /// window.
    #[track_caller]
    pub fn metrics_of_one_window<const N: usize>(&self, headers: [&str; N]) -> [Answer; N] {
        self.until("the window of all responses", || {
            let answers = headers.map(|headers| self.get_with("/metrics", headers));
            let window = |answer: &Answer| own(&parse(&answer.text()), "windows_total");
            let windows = answers.each_ref().map(window);
            windows
                .iter()
                .all(|it| *it == windows[0])
                .then_some(answers)
        })
    }

    /// Waits until the series meet the condition.
    #[track_caller]
    pub fn wait_until(&self, condition: impl Fn(&Series) -> bool) -> Series {
        self.answered("/metrics", |answer| {
            let series = (answer.status == 200).then(|| parse(&answer.text()));
            series.filter(&condition)
        })
    }

    /// Waits until a path returns this status.
    #[track_caller]
    pub fn wait_for(&self, path: &str, status: u16) -> Answer {
        self.answered(path, |answer| (answer.status == status).then_some(answer))
    }

    /// Requests a path until `wanted` accepts the response.
    #[track_caller]
    fn answered<T>(&self, path: &str, wanted: impl Fn(Answer) -> Option<T>) -> T {
        self.until(path, || wanted(self.get(path)))
    }

    /// Waits until the log has this text at least `times` times.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str, times: usize) {
        self.until(text, || {
            (self.log().matches(text).count() >= times).then_some(())
        });
    }

    /// Waits until `poll` returns a value. The loop sleeps between the calls, because a busy loop
    /// would take a CPU from the agent.
    #[track_caller]
    fn until<T>(&self, what: &str, poll: impl Fn() -> Option<T>) -> T {
        const PAUSE: Duration = Duration::from_millis(5);
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(value) = poll() {
                return value;
            }
            assert!(
                Instant::now() < end,
                "{what} is not as expected after two minutes"
            );
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A response of the server.
#[derive(Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Status line and headers, in lower case.
    pub headers: String,
    /// Body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Sends the text to a server and reads the response.
    pub fn request(address: SocketAddr, request: &str) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        // The server may refuse a request before it has read all of it.
        let _ = stream.write_all(request.as_bytes());
        Self::read(&mut stream)
    }

    /// Reads a response.
    pub fn read(stream: &mut impl std::io::Read) -> Self {
        let mut all = Vec::new();
        // A response is complete even if the connection is reset after it.
        let _ = stream.read_to_end(&mut all);
        let end = all.windows(4).position(|four| four == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("{:?}", String::from_utf8_lossy(&all)));
        let headers = String::from_utf8(all[..end].to_vec()).unwrap();
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            headers: headers.to_ascii_lowercase(),
            body: all[end + 4..].to_vec(),
        }
    }

    /// The body as text; a compressed body is decompressed.
    pub fn text(&self) -> String {
        if !self.headers.contains("\r\ncontent-encoding: gzip") {
            return String::from_utf8(self.body.clone()).unwrap();
        }
        let mut text = String::new();
        flate2::read::GzDecoder::new(self.body.as_slice())
            .read_to_string(&mut text)
            .unwrap();
        text
    }
}

/// Parses the series of a text in either format. Asserts that each series follows the head of its
/// family, and that no series occurs twice.
pub fn parse(text: &str) -> Series {
    let mut series = Series::new();
    let mut family = "";
    for line in text.lines() {
        if let Some(head) = line.strip_prefix("# TYPE ") {
            family = head.split(' ').next().unwrap();
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(name.starts_with(family), "{line} is not of {family}");
        let value: f64 = value.parse().unwrap_or_else(|_| panic!("{line}"));
        let previous = series.insert(name.to_owned(), value);
        assert_eq!(previous, None, "{line} is a duplicate");
    }
    assert!(!series.is_empty());
    series
}

/// The value of the series with all of these parts in its name or labels. None if no series
/// matches; panics if several match.
#[track_caller]
pub fn find(series: &Series, parts: &[&str]) -> Option<f64> {
    let found = series.iter();
    let mut found = found.filter(|(name, _)| parts.iter().all(|part| name.contains(part)));
    let first = found.next();
    assert!(found.next().is_none(), "{parts:?} is not one series");
    first.map(|(_, value)| *value)
}

/// A metric of the agent about itself.
#[track_caller]
pub fn own(series: &Series, name: &str) -> f64 {
    series[&format!("pmuscope_self_agent_{name}")]
}

/// As [`crate::uncertain_time`], by the counters of an agent.
#[track_caller]
pub fn uncertain_time(series: &Series) -> u64 {
    let counters = ["estimated", "stale_clock"];
    let seconds = counters.map(|name| series[&format!("pmuscope_self_{name}_seconds_total")]);
    nanos(seconds.iter().sum())
}

/// Seconds as whole nanoseconds.
pub fn nanos(seconds: f64) -> u64 {
    u64::try_from(Duration::from_secs_f64(seconds).as_nanos()).unwrap()
}

/// Asserts that no counter in both sets of series decreased.
#[track_caller]
pub fn assert_no_step_back(before: &Series, now: &Series) {
    let counters = before.iter().filter(|(name, _)| {
        let name = name.split('{').next().unwrap();
        name.ends_with("_total")
    });
    for (name, before) in counters {
        if let Some(now) = now.get(name) {
            assert!(now >= before, "{name} stepped back from {before} to {now}");
        }
    }
}

/// A container id. The number must be unique among the tests.
pub fn container_id(number: u32) -> String {
    format!("{:08x}{number:056x}", std::process::id())
}
