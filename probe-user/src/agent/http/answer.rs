//! Requests and their answers.

use std::{
    convert::Infallible,
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::{Body as _, Incoming},
    header::{
        ACCEPT, ACCEPT_ENCODING, ALLOW, CONNECTION, CONTENT_ENCODING, CONTENT_TYPE, HeaderName,
        HeaderValue, RETRY_AFTER, VARY, WWW_AUTHENTICATE,
    },
};

use super::{
    Admission,
    in_flight::{ANSWER_TIMEOUT, Activity},
    socket::Socket,
    web::Web,
};
use crate::{
    agent::published::Published,
    emit::Dialect,
    sys::clock::{nanos, now},
};

type Answer = Response<Bytes>;

/// The page at `/`.
const HOME: &str = "<!DOCTYPE html>
<html lang=\"en\"><head><meta charset=\"utf-8\"><title>pmuscope</title></head><body>
<h1>pmuscope</h1>
<p>Which container causes what the hardware counters and the memory system see.</p>
<ul>
<li><a href=\"/metrics\">Metrics</a> of the last window</li>
<li><a href=\"/healthz\">Health</a>: this process answers</li>
<li><a href=\"/readyz\">Readiness</a>: windows are counted</li>
</ul>
</body></html>
";

/// The probes of a kubelet, which has no password: their status is public, and cheap to answer.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Answers the requests of a connection.
pub(super) struct Answers {
    pub(super) published: Arc<Published>,
    pub(super) web: Arc<Web>,
    pub(super) activity: Arc<Activity>,
    pub(super) socket: Arc<Socket>,
    /// The client's address.
    pub(super) peer: IpAddr,
}

impl Answers {
    /// The answer to a request.
    pub(super) async fn answer(
        &self,
        request: &Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        self.activity.on_request();
        let answer = self.route(request).await;
        if answer.status().is_client_error() {
            let refused = &self.published.served.refused_requests;
            refused.fetch_add(1, Relaxed);
        }
        let (head, body) = answer.into_parts();
        let body = self
            .activity
            .on_answer(body, (self.peer, &self.socket), ANSWER_TIMEOUT)
            .await;
        let (head, body) = match body {
            Some(body) => (head, body),
            None => unavailable("other clients do not take their answers").into_parts(),
        };
        Ok(Response::from_parts(head, Full::new(body)))
    }

    async fn route(&self, request: &Request<Incoming>) -> Answer {
        // No request here needs a body, and none is read.
        if !request.body().is_end_stream() {
            let mut answer = text(StatusCode::PAYLOAD_TOO_LARGE, "this server takes no body\n");
            set(&mut answer, CONNECTION, "close");
            return answer;
        }
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
            set(&mut answer, ALLOW, "GET, HEAD");
            return answer;
        }
        let path = request.uri().path();
        if !PROBES.contains(&path) {
            match self.web.admits(request.headers(), self.peer).await {
                Admission::Granted => {}
                Admission::Denied => {
                    let mut answer = text(StatusCode::UNAUTHORIZED, "Unauthorized\n");
                    set(&mut answer, WWW_AUTHENTICATE, "Basic");
                    return answer;
                }
                Admission::Busy => {
                    let refused = &self.published.served.refused_requests;
                    refused.fetch_add(1, Relaxed);
                    return unavailable("other passwords wait to be verified");
                }
            }
        }
        match path {
            "/metrics" => self.metrics(request.headers()).await,
            "/healthz" => text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.published.not_ready() {
                None => text(StatusCode::OK, "ok\n"),
                Some(why) => {
                    let why = match self.web.already_admits(request.headers()) {
                        true => why.as_str(),
                        false => "not ready",
                    };
                    text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"))
                }
            },
            "/" => {
                let mut answer = text(StatusCode::OK, HOME);
                set(&mut answer, CONTENT_TYPE, "text/html; charset=utf-8");
                answer
            }
            _ => text(StatusCode::NOT_FOUND, "see / for what there is\n"),
        }
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let began = now();
        let dialect = dialect(headers);
        let rendered = match self.published.text(dialect).await {
            Ok(rendered) => rendered,
            Err(why) => return unavailable(&why),
        };
        let compress = takes_gzip(headers);
        let body = match compress {
            true => rendered.gzip(),
            false => rendered.plain.clone(),
        };
        let mut answer = Response::new(body);
        set(&mut answer, CONTENT_TYPE, dialect.content_type());
        set(&mut answer, VARY, "Accept, Accept-Encoding");
        if compress {
            set(&mut answer, CONTENT_ENCODING, "gzip");
        }
        let served = &self.published.served;
        served.scrapes.fetch_add(1, Relaxed);
        let took = nanos(now().saturating_sub(began));
        served.scrape_nanos.fetch_add(took, Relaxed);
        answer
    }
}

/// A refusal with the advice to retry.
fn unavailable(why: &str) -> Answer {
    let mut answer = text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n"));
    set(&mut answer, RETRY_AFTER, "1");
    answer
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(body.into());
    *answer.status_mut() = status;
    set(&mut answer, CONTENT_TYPE, "text/plain; charset=utf-8");
    answer
}

fn set(answer: &mut Answer, name: HeaderName, value: &'static str) {
    let headers = answer.headers_mut();
    headers.insert(name, HeaderValue::from_static(value));
}

/// The items of an `Accept` or `Accept-Encoding` header: the name, its parameters, and its weight
/// (`q`).
fn accepted<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> impl Iterator<Item = (&'a str, Vec<&'a str>, f32)> {
    let values = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let word = parts.next().unwrap_or_default();
        let parameters: Vec<&str> = parts.collect();
        let mut weights = parameters.iter();
        let weight = weights.find_map(|part| part.strip_prefix("q=")?.parse().ok());
        (word, parameters, weight.unwrap_or(1.0))
    })
}

/// Parameters that must follow the media type of protocol buffers: without them, a client may mean
/// another message.
const PROTOBUF: [&str; 2] = [
    "proto=io.prometheus.client.MetricFamily",
    "encoding=delimited",
];

/// The format that the client names with the highest weight; text/plain if it names none. Ties go
/// to protobuf, then to `OpenMetrics`.
fn dialect(headers: &HeaderMap) -> Dialect {
    let weight = |wanted: &str, needed: &[&str]| {
        let matching = accepted(headers, &ACCEPT).filter(|(word, parameters, _)| {
            word.eq_ignore_ascii_case(wanted) && needed.iter().all(|it| parameters.contains(it))
        });
        matching.map(|(.., weight)| weight).fold(0.0, f32::max)
    };
    let protobuf = weight("application/vnd.google.protobuf", &PROTOBUF);
    let open = weight("application/openmetrics-text", &[]);
    let plain = weight("text/plain", &[]);
    if protobuf > 0.0 && protobuf >= open.max(plain) {
        Dialect::Protobuf
    } else if open > 0.0 && open >= plain {
        Dialect::OpenMetrics
    } else {
        Dialect::Prometheus
    }
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let weight = |wanted: &str| {
        let mut all = accepted(headers, &ACCEPT_ENCODING);
        let item = all.find(|(word, ..)| word.eq_ignore_ascii_case(wanted));
        item.map(|(.., weight)| weight)
    };
    weight("gzip").or_else(|| weight("*")).unwrap_or(0.0) > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: &HeaderName, value: &'static str) -> HeaderMap {
        [(name.clone(), HeaderValue::from_static(value))]
            .into_iter()
            .collect()
    }

    #[test]
    fn the_format_is_the_requested_one() {
        let cases = [
            ("", Dialect::Prometheus),
            ("*/*", Dialect::Prometheus),
            ("text/plain", Dialect::Prometheus),
            (
                "application/openmetrics-text; version=1.0.0",
                Dialect::OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1",
                Dialect::OpenMetrics,
            ),
            (
                "text/plain;version=0.0.4,application/openmetrics-text;q=0.3",
                Dialect::Prometheus,
            ),
            ("application/openmetrics-text;q=0", Dialect::Prometheus),
            // The header of a Prometheus with native histograms.
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,\
                 text/plain;version=0.0.4;q=0.4,*/*;q=0.1",
                Dialect::Protobuf,
            ),
            (
                "application/openmetrics-text;q=0.6,application/vnd.google.protobuf;\
                 proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.5",
                Dialect::OpenMetrics,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                 encoding=text",
                Dialect::Prometheus,
            ),
        ];
        for (accept, expected) in cases {
            assert_eq!(dialect(&headers(&ACCEPT, accept)), expected, "{accept}");
        }
        assert_eq!(dialect(&HeaderMap::new()), Dialect::Prometheus);
    }

    #[test]
    fn gzip_is_used_if_the_client_accepts_it() {
        for (accept, expected) in [
            ("gzip", true),
            ("deflate, GZIP;q=0.5", true),
            ("*", true),
            ("gzip;q=0, *", false),
            ("identity", false),
            ("", false),
        ] {
            assert_eq!(
                takes_gzip(&headers(&ACCEPT_ENCODING, accept)),
                expected,
                "{accept}"
            );
        }
    }
}
