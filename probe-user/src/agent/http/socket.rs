//! The socket of a connection: bounds the kernel's memory for a client that does not read.

use std::{io, net::TcpStream as StdTcpStream, time::Duration};

use rustix::{
    ioctl::{Getter, ioctl},
    net::sockopt::{set_socket_linger, set_socket_send_buffer_size, set_tcp_user_timeout},
};
use tokio::net::TcpStream;

use super::CLIENT_TIMEOUT;
use crate::sys::clock::now;

/// Size of the send buffer, in bytes. The kernel doubles it (socket(7)).
const SEND_BUFFER: usize = 128 << 10;

/// `SIOCOUTQ` of linux/sockios.h: unsent and unacknowledged bytes.
const SIOCOUTQ: rustix::ioctl::Opcode = 0x5411;

/// Interval between two checks of the send buffer.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A second descriptor of a connection's socket, which is dropped after the first. If the client
/// has not acknowledged all bytes by then, the connection is reset: after a plain close the kernel
/// would keep them.
pub(super) struct Socket(StdTcpStream);

impl Socket {
    /// Sets the bounds of a new connection.
    pub(super) fn new(stream: &TcpStream) -> io::Result<Self> {
        use std::os::fd::AsFd as _;
        set_socket_send_buffer_size(stream, SEND_BUFFER)?;
        // Milliseconds without an acknowledgement or an open window.
        let timeout = u32::try_from(CLIENT_TIMEOUT.as_millis()).unwrap_or(u32::MAX);
        set_tcp_user_timeout(stream, timeout)?;
        // Each answer is written by one call, which Nagle's algorithm would only delay.
        stream.set_nodelay(true)?;
        Ok(Self(StdTcpStream::from(
            stream.as_fd().try_clone_to_owned()?,
        )))
    }

    /// The number of bytes that the client has not acknowledged.
    fn unacknowledged(&self) -> io::Result<i32> {
        // SAFETY: SIOCOUTQ writes an int, and has no other effect.
        Ok(unsafe { ioctl(&self.0, Getter::<SIOCOUTQ, i32>::new()) }?)
    }

    /// Whether the client has acknowledged everything, or is gone.
    pub(super) fn is_drained(&self) -> bool {
        self.unacknowledged().map_or(true, |bytes| bytes == 0)
    }

    /// Waits until the client has acknowledged everything, but not after `until` (by [`now`]).
    pub(super) async fn drained(&self, until: Duration) {
        while !self.is_drained() && now() < until {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if !self.is_drained() {
            let _ = set_socket_linger(&self.0, Some(Duration::ZERO));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// A connection to a client that has not read the `bytes` written to it, or as many of them as
    /// fit into the buffers.
    async fn connected(bytes: usize) -> (TcpStream, Socket, StdTcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = StdTcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let socket = Socket::new(&stream).unwrap();
        let mut remaining = bytes;
        while remaining > 0 {
            let Ok(wrote) = stream.try_write(&vec![b'x'; remaining.min(1 << 16)]) else {
                break;
            };
            remaining -= wrote;
        }
        (stream, socket, client)
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_reset_and_bounded() {
        let (stream, socket, mut client) = connected(usize::MAX).await;
        let bytes = usize::try_from(socket.unacknowledged().unwrap()).unwrap();
        assert!((1..=2 * SEND_BUFFER).contains(&bytes), "{bytes}");
        socket.drained(now()).await;
        drop((stream, socket));
        let read = client.read_to_end(&mut Vec::new());
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    }

    #[tokio::test]
    async fn a_client_that_reads_receives_everything() {
        let (stream, socket, mut client) = connected(100_000).await;
        let read = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).map(|_| all.len())
        });
        socket.drained(now() + Duration::from_mins(1)).await;
        drop((stream, socket));
        assert_eq!(read.join().unwrap().unwrap(), 100_000);
    }
}
