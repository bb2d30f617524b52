//! Without the feature `tls` there is neither TLS nor a password: a web configuration file is
//! refused.

use std::{convert::Infallible, net::IpAddr, path::PathBuf};

use hyper::HeaderMap;

use super::Admission;

/// This build cannot do what the file asks for.
#[derive(Debug, thiserror::Error)]
#[error(
    "{}: this pmuscope was built without the feature `tls`, which TLS and passwords need; build it \
     with that, or leave out http.web_config",
    .0.display()
)]
pub struct WebError(PathBuf);

/// Nothing.
pub(super) struct Web;

impl Web {
    pub(super) fn load(file: Option<&PathBuf>) -> Result<Self, WebError> {
        match file {
            None => Ok(Self),
            Some(file) => Err(WebError(file.clone())),
        }
    }

    #[expect(clippy::unused_self, reason = "with the feature it depends")]
    pub(super) fn scheme(&self) -> &'static str {
        "http"
    }

    #[expect(clippy::unused_self, reason = "with the feature it depends")]
    pub(super) fn is_protected(&self) -> bool {
        false
    }

    #[expect(clippy::unused_self, reason = "with the feature it depends")]
    pub(super) fn acceptor(&self) -> Option<Infallible> {
        None
    }

    #[expect(clippy::unused_async, reason = "with the feature it waits")]
    pub(super) async fn admits(&self, _: &HeaderMap, _: IpAddr) -> Admission {
        Admission::Granted
    }

    #[expect(clippy::unused_self, reason = "with the feature it depends")]
    pub(super) fn knows(&self, _: &HeaderMap) -> bool {
        true
    }
}
