//! A port-forward as the API server does it: a WebSocket with a byte before each piece that says which channel it is of.
//!
//! It stands before a server that knows no port-forward, answers for the pods, and hands everything else on.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use futures::{SinkExt, StreamExt};
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::{Bytes, Incoming},
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, handshake::derive_accept_key, protocol::Role},
};

const PROTOCOL: &str = "v4.channel.k8s.io";

/// An API server that forwards ports.
#[derive(Clone)]
pub(crate) struct Forwarding {
    /// Where it is.
    pub(crate) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

type Answer = Result<Response<Full<Bytes>>, Box<dyn std::error::Error + Send + Sync>>;

impl Forwarding {
    /// Stands before the server at this address. The one pod there is leads to this machine.
    pub(crate) async fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forwarding = Self { address: listener.local_addr().unwrap(), asked: Arc::default() };
        let own = forwarding.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let own = own.clone();
                let service = service_fn(move |request| {
                    let own = own.clone();
                    async move { own.answer(request, server).await }
                });
                let http = hyper::server::conn::http1::Builder::new();
                tokio::spawn(http.serve_connection(TokioIo::new(stream), service).with_upgrades());
            }
        });
        forwarding
    }

    /// The pods and ports that were asked for.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    async fn answer(&self, mut request: Request<Incoming>, server: SocketAddr) -> Answer {
        let path = request.uri().path().to_owned();
        let pods = path.ends_with("/pods") && request.method() == Method::GET;
        if pods || path.ends_with("/portforward") {
            self.asked.lock().unwrap().push(request.uri().to_string());
        }
        if pods {
            let pod = |name: &str, phase: &str| json!({"metadata": {"name": name}, "status": {"phase": phase}});
            let list = json!({"apiVersion": "v1", "kind": "PodList", "metadata": {"resourceVersion": "1"},
                              "items": [pod("agent-old", "Succeeded"), pod("agent-new", "Running")]});
            let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
            return Ok(response.body(list.to_string().into())?);
        }
        if path.ends_with("/portforward") {
            let mut query = request.uri().query().unwrap_or_default().split('&');
            let port: u16 = query.find_map(|part| part.strip_prefix("ports=")).unwrap().parse()?;
            let key = request.headers()[header::SEC_WEBSOCKET_KEY].as_bytes().to_vec();
            let upgrade = hyper::upgrade::on(&mut request);
            tokio::spawn(async move { forward(TokioIo::new(upgrade.await.unwrap()), port).await });
            let response = Response::builder()
                .status(StatusCode::SWITCHING_PROTOCOLS)
                .header(header::CONNECTION, "Upgrade")
                .header(header::UPGRADE, "websocket")
                .header(header::SEC_WEBSOCKET_ACCEPT, derive_accept_key(&key))
                .header(header::SEC_WEBSOCKET_PROTOCOL, PROTOCOL);
            return Ok(response.body(Full::default())?);
        }
        let stream = TcpStream::connect(server).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let (head, body) = request.into_parts();
        let body = Full::new(body.collect().await?.to_bytes());
        let (head, body) = sender.send_request(Request::from_parts(head, body)).await?.into_parts();
        Ok(Response::from_parts(head, Full::new(body.collect().await?.to_bytes())))
    }
}

/// Carries bytes between a WebSocket and a port of this machine.
async fn forward(stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin, port: u16) {
    let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
    let (mut from, mut to) = TcpStream::connect(("127.0.0.1", port)).await.unwrap().into_split();
    // Channel 0 is for bytes and 1 for errors; each begins with the port.
    let [low, high] = port.to_le_bytes();
    for channel in [0, 1] {
        socket.send(Message::binary(vec![channel, low, high])).await.unwrap();
    }
    let mut buffer = [0; 4096];
    loop {
        tokio::select! {
            read = from.read(&mut buffer) => match read {
                Ok(0) | Err(_) => break,
                Ok(count) => {
                    let mut piece = vec![0];
                    piece.extend_from_slice(&buffer[..count]);
                    if socket.send(Message::binary(piece)).await.is_err() {
                        break;
                    }
                }
            },
            message = socket.next() => match message {
                Some(Ok(Message::Binary(piece))) if piece.first() == Some(&0) => to.write_all(&piece[1..]).await.unwrap(),
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = socket.close(None).await;
}
