//! HTTP requests: valid ones, malformed ones, slow clients, and many at once.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    thread,
};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket, sockopt};
use test_harness::{
    agent::{Agent, AgentOptions, Answer, find, own, parse},
    shared_machine,
};

const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

#[test]
fn a_scrape_has_the_format_that_it_asks_for() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    agent.next_window();
    let [open, plain, zipped] = agent.metrics_of_one_window([
        "Accept: application/openmetrics-text;version=1.0.0\r\n",
        "",
        "Accept-Encoding: gzip\r\n",
    ]);
    assert!(
        open.headers.contains(&format!("content-type: {OPEN}")),
        "{open:?}"
    );
    assert!(open.text().ends_with("\n# EOF\n"));
    assert!(!open.text().contains("_created"));
    assert!(
        plain.headers.contains(&format!("content-type: {PLAIN}")),
        "{plain:?}"
    );
    assert!(!plain.text().contains("# EOF") && !plain.text().contains("# UNIT"));
    let names = |answer: &Answer| parse(&answer.text()).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&open), names(&plain));
    assert!(
        zipped.headers.contains("content-encoding: gzip"),
        "{}",
        zipped.headers
    );
    assert_eq!(zipped.text(), plain.text());
    let head = agent.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut promtool) = promtool else {
        return println!("not checked by promtool: it is not installed");
    };
    let mut text = promtool.stdin.take().unwrap();
    text.write_all(&plain.body).unwrap();
    drop(text);
    let checked = promtool.wait_with_output().unwrap();
    let findings = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(checked.status.success(), "{findings}");
}

#[test]
fn an_invalid_request_gets_its_status_code() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    let long = "x".repeat(64 << 10);
    let many = (0..200)
        .map(|at| format!("X-{at}: 1\r\n"))
        .collect::<String>();
    let cases = [
        (
            "GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            404,
        ),
        (
            "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_owned(),
            405,
        ),
        (
            "POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000\r\n\r\nabc".to_owned(),
            413,
        ),
        (
            "GET /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
                .to_owned(),
            413,
        ),
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 431),
        ("\u{16}\u{3}\u{1}garbage\r\n\r\n".to_owned(), 400),
    ];
    for (request, status) in cases {
        let answer = agent.ask(&request);
        assert_eq!(
            answer.status,
            status,
            "{}",
            &request[..request.len().min(80)]
        );
    }
    let home = agent.get("/");
    assert!(home.text().contains("href=\"/metrics\""), "{}", home.text());
    assert_eq!(agent.get("/healthz").text(), "ok\n");
    agent.wait_for("/readyz", 200);
    agent.next_window();
    assert!(own(&agent.series(), "refused_requests_total") >= 4.0);
}

#[test]
fn a_hundred_concurrent_scrapes_are_answered() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    agent.next_window();
    let address = agent.address;
    let request = "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let scrape = move || Answer::request(address, request);
    let all: Vec<_> = (0..100).map(|_| thread::spawn(scrape)).collect();
    for scraped in all {
        let answer = scraped.join().unwrap();
        assert_eq!(answer.status, 200);
        parse(&answer.text());
    }
    agent.next_window();
    assert!(own(&agent.series(), "scrapes_total") >= 100.0);
}

/// Clients that connect and send nothing or half a request, or do not read the response.
#[test]
fn slow_clients_delay_no_others() {
    let Some(_machine) = shared_machine() else {
        return;
    };
    let agent = Agent::start();
    agent.next_window();
    let mut slow = Vec::new();
    // The last client sends nothing, so it has no response that the agent may cut to save memory.
    for at in 0..601 {
        let mut stream = TcpStream::connect(agent.address).unwrap();
        let request: &[u8] = match at % 3 {
            0 => b"",
            1 => b"GET /metrics HTTP/1.1\r\nHost:",
            _ => b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
        };
        stream.write_all(request).unwrap();
        slow.push(stream);
    }
    let answer = agent.get("/metrics");
    assert_eq!(answer.status, 200);
    agent.next_window();
    assert!(own(&agent.series(), "closed_connections_total") >= 80.0);
    // The server closed the oldest connection and kept the newest.
    let mut all = Vec::new();
    let _ = slow[0].read_to_end(&mut all);
    assert!(all.is_empty());
    let last = slow.last_mut().unwrap();
    last.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .unwrap();
    assert_eq!(Answer::read(last).status, 200);
}

/// A connection from a given address of the loopback interface.
pub(super) fn connected(from: [u8; 4], to: SocketAddr) -> TcpStream {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&client, &SocketAddr::from((from, 0))).unwrap();
    connect(&client, &to).unwrap();
    client.into()
}

/// Bytes in the send queues of all connections of a port.
fn unsent(port: u16) -> u64 {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let port = format!(":{port:04X}");
    let lines = table.lines().map(|line| line.split_whitespace());
    let queues = lines.filter_map(|mut words| {
        let is_of_port = words.nth(1)?.ends_with(&port);
        let (queue, _) = words.nth(2)?.split_once(':')?;
        is_of_port.then(|| u64::from_str_radix(queue, 16).unwrap())
    });
    queues.sum()
}

/// In each window some clients do not read the response and some read it slowly. Neither the agent
/// nor the kernel buffers many responses for them, and other clients get theirs.
#[test]
fn unread_responses_hold_little_memory() {
    const MAX_BYTES: u64 = 16 << 20;
    let Some(_machine) = shared_machine() else {
        return;
    };
    let label = "x".repeat(8000);
    let config = format!("interval = \"200ms\"\n[series.labels]\npad = \"{label}\"\n");
    let options = AgentOptions {
        config: &config,
        ..AgentOptions::default()
    };
    let agent = Agent::with(&options, |_| {});
    agent.next_window();
    let size = agent.get("/metrics").body.len();
    assert!(size > 300_000, "{size}");
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{}/status", agent.pid())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() << 10
    };
    let before = resident();
    let mut clients = Vec::new();
    let mut max_unsent = 0;
    for window in 0..15 {
        agent.next_window();
        for at in 0..30 {
            let mut client = connected([127, 0, 0, 2 + window % 4], agent.address);
            // The sender has to keep the bytes that do not fit in this buffer.
            sockopt::set_socket_recv_buffer_size(&client, 4096).unwrap();
            client
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
                .unwrap();
            client.set_nonblocking(true).unwrap();
            clients.push((at % 2 == 0, client));
        }
        for (_, client) in clients.iter_mut().filter(|(reads_slowly, _)| *reads_slowly) {
            // The server may have closed it already.
            let _ = client.read(&mut [0; 16]);
        }
        assert_eq!(agent.get("/metrics").status, 200);
        max_unsent = max_unsent.max(unsent(agent.address.port()));
    }
    let growth = resident().saturating_sub(before);
    println!("{max_unsent} bytes in send queues, {growth} more in the agent");
    assert!(max_unsent > 0 && max_unsent <= MAX_BYTES, "{max_unsent}");
    assert!(growth <= 2 * MAX_BYTES, "{growth}");
    let closed = ["pmuscope_self_agent_closed_connections_total"];
    assert!(find(&agent.series(), &closed).unwrap() > 0.0);
}
