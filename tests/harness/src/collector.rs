//! An OpenTelemetry collector (OTLP over gRPC, by the published protocol definitions) that accepts
//! every request.

use std::{
    net::{SocketAddr, TcpListener},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::{Duration, SystemTime},
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::{
        ExportMetricsServiceRequest, ExportMetricsServiceResponse,
        metrics_service_server::{MetricsService, MetricsServiceServer},
    },
    metrics::v1::{NumberDataPoint, metric::Data},
};
use tonic::{
    Request, Response, Status,
    transport::{Server, server::TcpIncoming},
};

/// A running collector.
pub struct Collector {
    /// The address on which it listens.
    pub address: SocketAddr,
    requests: Receiver<ExportMetricsServiceRequest>,
}

/// A data point of a metric.
#[derive(Clone, Debug)]
pub struct Point {
    /// Name of the metric.
    pub name: String,
    /// Unix time at which the total began. A gauge has none.
    pub start: Option<Duration>,
    /// Unix time of the value.
    pub time: Duration,
    labels: String,
}

impl Point {
    /// Name and labels of the point's series.
    pub fn series(&self) -> (&str, &str) {
        (&self.name, &self.labels)
    }
}

impl Collector {
    /// Starts a collector on a free port of the loopback interface.
    pub fn start() -> Self {
        let (sender, requests) = channel();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let service = MetricsServiceServer::new(MetricsCollector(sender));
                let serve = Server::builder().add_service(service);
                let incoming = TcpIncoming::from(listener);
                serve.serve_with_incoming(incoming).await.unwrap();
            });
        });
        Self { address, requests }
    }

    /// The points of the next request.
    pub fn points(&self) -> Vec<Point> {
        let request = self.requests.recv().unwrap();
        let scopes = request.resource_metrics.into_iter();
        let scopes = scopes.flat_map(|resource| resource.scope_metrics);
        let metrics = scopes.flat_map(|scope| scope.metrics);
        let points = metrics.flat_map(|metric| {
            let (points, is_sum) = match metric.data {
                Some(Data::Sum(sum)) => (sum.data_points, true),
                Some(Data::Gauge(gauge)) => (gauge.data_points, false),
                _ => (Vec::new(), false),
            };
            let name = metric.name;
            let point = move |point| Point::new(name.clone(), is_sum, &point);
            points.into_iter().map(point)
        });
        points.collect()
    }

    /// The points of the next request that is made after this call.
    pub fn next_points(&self) -> Vec<Point> {
        while self.requests.try_recv().is_ok() {}
        self.points();
        self.points()
    }
}

impl Point {
    fn new(name: String, is_sum: bool, point: &NumberDataPoint) -> Self {
        Self {
            name,
            start: is_sum.then(|| Duration::from_nanos(point.start_time_unix_nano)),
            time: Duration::from_nanos(point.time_unix_nano),
            labels: format!("{:?}", point.attributes),
        }
    }
}

/// The current Unix time.
pub fn unix_time() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap()
}

struct MetricsCollector(Sender<ExportMetricsServiceRequest>);

#[tonic::async_trait]
impl MetricsService for MetricsCollector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        // The receiver is gone when the test has ended.
        let _ = self.0.send(request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
