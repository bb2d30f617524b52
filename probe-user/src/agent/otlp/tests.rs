//! A collector that fails, refuses and hangs.

mod tls;

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::mpsc::Sender,
};

use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsPartialSuccess, ExportMetricsServiceResponse,
    metrics_service_server::{MetricsService, MetricsServiceServer},
};
use tonic::{
    Response,
    transport::{Server, server::TcpIncoming},
};

use super::*;
use crate::derive::AgentHealth;

/// Answers to the next requests: the number of rejected points, or an error. Later requests are
/// accepted.
type Script = Vec<Result<i64, Status>>;

struct Collector {
    script: Mutex<Script>,
    sender: Sender<(OtlpRequest, Option<String>)>,
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: tonic::Request<OtlpRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let header = request.metadata().get("x-token");
        let header = header.map(|it| it.to_str().unwrap().to_owned());
        self.sender.send((request.into_inner(), header)).unwrap();
        let mut script = self.script.lock().unwrap();
        let rejected = match script.is_empty() {
            true => 0,
            false => script.remove(0)?,
        };
        let partial_success = (rejected > 0).then(|| ExportMetricsPartialSuccess {
            rejected_data_points: rejected,
            error_message: "too old".to_owned(),
        });
        Ok(Response::new(ExportMetricsServiceResponse {
            partial_success,
        }))
    }
}

/// The address of a collector on its own port, and a channel that receives its requests.
fn collector(script: Script) -> (SocketAddr, mpsc::Receiver<(OtlpRequest, Option<String>)>) {
    let (sender, received) = mpsc::channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let service = MetricsServiceServer::new(Collector {
        script: Mutex::new(script),
        sender,
    });
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = TcpIncoming::from(tokio::net::TcpListener::from_std(listener).unwrap());
            let serve = Server::builder().add_service(service);
            serve.serve_with_incoming(incoming).await.unwrap();
        });
    });
    (address, received)
}

fn exporter(to: SocketAddr, headers: &[(&str, &str)]) -> (Exporter, Arc<PushCounters>) {
    let headers = headers.iter();
    let headers = headers.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let config = config::Otlp {
        headers: headers.collect(),
        ..config::Otlp::default()
    };
    let sent = Arc::new(PushCounters::default());
    let exporter = Exporter::start(
        format!("http://{to}"),
        &config,
        Arc::clone(&sent),
        ANSWER_TIMEOUT,
    );
    (exporter.unwrap(), sent)
}

/// The requests of a window: only one.
fn window() -> Vec<OtlpRequest> {
    let mut report = Report::for_agent();
    AgentHealth::default().add_to(&mut report);
    let requests = OtlpEncoder::default().requests(&report);
    assert_eq!(requests.len(), 1);
    requests
}

/// Longer than any answer of a collector here takes.
const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_window_arrives_as_it_was_sent() {
    let (address, received) = collector(Vec::new());
    let (exporter, sent) = exporter(address, &[("X-Token", "secret")]);
    exporter.send(window());
    let (request, token) = received.recv_timeout(LONG).unwrap();
    assert_eq!([request], *window());
    assert_eq!(token.as_deref(), Some("secret"));
    exporter.finish(LONG);
    assert_eq!(sent.requests.load(Relaxed), 1);
    assert_eq!(sent.failures.load(Relaxed), 0);
}

#[test]
fn a_request_that_failed_is_sent_again_and_a_refused_one_is_not() {
    let (address, received) = collector(vec![
        Err(Status::unavailable("starting")),
        Ok(7),
        Err(Status::invalid_argument("no")),
    ]);
    let (exporter, sent) = exporter(address, &[]);
    exporter.send(window());
    for _ in 0..2 {
        received.recv_timeout(LONG).unwrap();
    }
    exporter.send(window());
    received.recv_timeout(LONG).unwrap();
    exporter.finish(LONG);
    assert_eq!(sent.requests.load(Relaxed), 1);
    assert_eq!(sent.rejected_points.load(Relaxed), 7);
    assert_eq!(sent.failures.load(Relaxed), 2);
    assert_eq!(sent.lost_windows.load(Relaxed), 1);
    assert!(received.try_recv().is_err());
}

#[test]
fn a_refused_request_does_not_hold_back_the_others_of_its_window() {
    let (address, received) = collector(vec![
        Err(Status::invalid_argument("no")),
        Err(Status::resource_exhausted("larger than 1 MiB")),
    ]);
    let (exporter, sent) = exporter(address, &[]);
    exporter.send([window(), window(), window()].concat());
    for _ in 0..3 {
        received.recv_timeout(LONG).unwrap();
    }
    exporter.finish(LONG);
    assert_eq!(sent.requests.load(Relaxed), 1);
    assert_eq!(sent.failures.load(Relaxed), 2);
    assert_eq!(sent.lost_windows.load(Relaxed), 1);
}

/// Without a listener the newest window waits, and the windows before it are counted as lost.
#[test]
fn windows_without_a_collector_are_counted_as_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (exporter, sent) = exporter(address, &[]);
    for _ in 0..3 {
        exporter.send(window());
    }
    exporter.finish(LONG);
    assert_eq!(sent.requests.load(Relaxed), 0);
    assert_eq!(sent.lost_windows.load(Relaxed), 3);
}

/// A connection without an answer is given up, and a new one is opened.
#[test]
fn a_request_without_an_answer_opens_a_new_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", listener.local_addr().unwrap());
    let (config, sent) = (config::Otlp::default(), Arc::new(PushCounters::default()));
    let answer_timeout = Duration::from_millis(200);
    let exporter = Exporter::start(to, &config, Arc::clone(&sent), answer_timeout).unwrap();
    exporter.send(window());
    let first = listener.accept().unwrap();
    let second = listener.accept().unwrap();
    assert_ne!(first.1, second.1);
    assert!(sent.failures.load(Relaxed) > 0);
}

/// A peer that vanished between two windows is noticed by keep-alives, without a request.
#[test]
fn a_peer_that_vanished_while_idle_gets_a_new_connection() {
    let (collector, received) = collector(Vec::new());
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    let to = format!("http://{}", proxy.local_addr().unwrap());
    let (config, sent) = (config::Otlp::default(), Arc::new(PushCounters::default()));
    let timeout = Duration::from_secs(2);
    let exporter = Exporter::start(to, &config, Arc::clone(&sent), timeout).unwrap();
    exporter.send(window());
    let (mut from_exporter, first) = proxy.accept().unwrap();
    from_exporter.set_read_timeout(Some(LONG)).unwrap();
    let mut to_exporter = from_exporter.try_clone().unwrap();
    let server = TcpStream::connect(collector).unwrap();
    let [mut from_collector, mut to_collector] = [(), ()].map(|()| server.try_clone().unwrap());
    thread::spawn(move || io::copy(&mut from_collector, &mut to_exporter));
    // Reads until the exporter closes the connection.
    let closed = thread::spawn(move || {
        let mut bytes = [0; 4096];
        loop {
            match from_exporter.read(&mut bytes)? {
                0 => return io::Result::Ok(()),
                // Writing fails after the peer has vanished.
                read => drop(to_collector.write_all(&bytes[..read])),
            }
        }
    });
    received.recv_timeout(LONG).unwrap();
    while sent.requests.load(Relaxed) == 0 {
        thread::yield_now();
    }
    server.shutdown(Shutdown::Both).unwrap();
    closed.join().unwrap().unwrap();
    assert_eq!(sent.failures.load(Relaxed), 0);
    exporter.send(window());
    assert_ne!(proxy.accept().unwrap().1, first);
}

#[test]
fn addresses_and_headers_are_checked() {
    assert_eq!(check("http://127.0.0.1:4317"), Ok(()));
    assert_eq!(check("http://[::1]:4317"), Ok(()));
    assert_eq!(check("https://collector:4317"), Ok(()));
    for wrong in [
        "",
        "collector:4317",
        "unix:///x",
        "http://a:b/c",
        "http://127.0.0.1:4317/v1/metrics",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
    let parse = |name: &str, value: &str| {
        headers(&[(name.to_owned(), value.to_owned())].into_iter().collect())
    };
    assert!(parse("Authorization", "Bearer x").is_ok());
    let error = parse("author ization", "s3cret").unwrap_err();
    assert!(
        error.contains("author ization") && !error.contains("s3cret"),
        "{error}"
    );
    let error = parse("authorization", "s3cret\n").unwrap_err();
    assert!(
        error.contains("authorization") && !error.contains("s3cret"),
        "{error}"
    );
}
