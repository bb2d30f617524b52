//! A connection that reports to [`ClientTls`] why it was closed.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::client::TlsStream;

use super::ClientTls;

pub(super) struct ReportingStream {
    stream: TlsStream<TcpStream>,
    tls: Arc<ClientTls>,
}

impl ReportingStream {
    pub(super) fn new(stream: TlsStream<TcpStream>, tls: Arc<ClientTls>) -> Self {
        Self { stream, tls }
    }
}

impl AsyncRead for ReportingStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if let Poll::Ready(Err(error)) = &read {
            self.tls.on_error(error);
        }
        read
    }
}

impl AsyncWrite for ReportingStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.with_reason(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.with_reason(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl ReportingStream {
    /// After a failed write, reads once: the error of the read may have the peer's reason.
    fn with_reason<T>(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(_)) = result {
            let mut buffer = [0; 1024];
            // `poll_read` reports its error.
            let _ = ready!(self.poll_read(context, &mut ReadBuf::new(&mut buffer)));
        }
        result
    }
}
