//! A libvirt daemon for tests, at the level of the wire.
//!
//! Behind [`Server`] there is no hypervisor: a recording of a real driver, a handful of domains, and a script of what
//! goes wrong. A client cannot tell the difference: it connects over TCP, a unix socket or a pipe within the process,
//! opens a connection, lists and starts domains, registers for events and gets them, with the answers, error codes and
//! events that QEMU's, Cloud Hypervisor's or the test driver really sent.
//!
//! What real daemons do only on a bad day it does on demand:
//!
//! | Wanted | How |
//! |---|---|
//! | refused connections, a restart | [`Server::stop`], [`Server::start`], [`Server::cut`] |
//! | a daemon that hangs | [`Server::accept`] with [`Accept::Silent`], [`Server::mute`], [`Fault::Silent`] |
//! | broken frames, wrong or late or swapped answers | [`Server::fault`] |
//! | a driver that lacks something | [`Server::lacks`] |
//! | any answer or error at all | [`Server::next`], [`Server::always`] |
//!
//! ```
//! use cobalt_libvirt::{
//!     frame::{self, Frame, Header, Status},
//!     testing::{Answer, Fault, Recording, Server, Writer},
//! };
//! use tokio::io::AsyncWriteExt;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = Server::replay(Recording::default());
//! server.next(3, Answer::ok(Writer::new().string("QEMU").finish()));
//! server.fault(3, Fault::WrongSerial);
//!
//! let mut client = server.duplex();
//! client.write_all(&Frame::new(Header::call(3, 7), &b""[..]).to_bytes()).await?;
//! let reply = frame::read(&mut client, &mut Default::default(), frame::MAX_FRAME).await?.expect("a reply");
//! assert_eq!(reply.header.status, Status::Ok);
//! assert_ne!(reply.header.serial, 7);
//! assert_eq!(server.count(3), 1);
//! # Ok(())
//! # }
//! ```

mod answer;
mod driver;
mod model;
mod plan;
mod recording;
mod server;
mod session;
mod wire;

pub use answer::{Answer, Event};
pub use plan::{Accept, Fault};
pub use recording::{RecordedCall, RecordedMessage, Recording, RecordingError};
pub use server::Server;
pub use wire::{Identity, Writer};
