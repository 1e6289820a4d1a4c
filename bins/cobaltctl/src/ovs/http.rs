//! Questions to an agent.

use std::{fmt::Write, sync::Arc};

use cobalt_core::{agent::ovs::endpoints::wire::CaptureQuestion, api::OVSNode};
use futures::{StreamExt, stream::BoxStream};
use http::{Method, Request, Response, Uri, header};
use http_body_util::{BodyExt, BodyStream, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use kube::ResourceExt;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::{
    OvsError, Place,
    find::Cluster,
    reach::{self, Whereabouts},
    token::Token,
};

/// More than any answer that is not a stream.
const MOST: usize = 64 << 20;

/// The bytes of a capture.
pub(super) type Packets = BoxStream<'static, Result<Bytes, Box<dyn std::error::Error + Send + Sync>>>;

/// The agent of one host.
pub(super) struct Agent {
    cluster: Arc<Cluster>,
    to: Whereabouts,
    name: ServerName<'static>,
    tls: TlsConnector,
    token: Token,
}

impl Agent {
    pub(super) fn new(cluster: Arc<Cluster>, place: Place, node: &OVSNode, token: Token) -> Result<Self, OvsError> {
        let host = node.name_any();
        let told = node.status.as_ref().and_then(|status| status.troubleshooting.clone());
        let told = told.ok_or_else(|| OvsError::NoEndpoints { node: host.clone() })?;
        let bad = |field, problem: String| OvsError::BadEndpoints { node: host.clone(), field, problem };
        let uri: Uri = told.url.parse().map_err(|error: http::uri::InvalidUri| bad("url", error.to_string()))?;
        if uri.scheme_str() != Some("https") {
            return Err(bad("url", "it does not begin with https://, and a token goes nowhere else".into()));
        }
        let text = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let address = text.parse().map_err(|_| bad("url", format!("{text:?} is no address")))?;
        let port = uri.port_u16().unwrap_or(443);
        let expected = told.server_name.unwrap_or_else(|| text.to_owned());
        let name = ServerName::try_from(expected).map_err(|error| bad("serverName", error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(told.ca_bundle.unwrap_or_default().as_bytes()) {
            let root = root.map_err(|error| bad("caBundle", error.to_string()))?;
            roots.add(root).map_err(|error| bad("caBundle", error.to_string()))?;
        }
        if roots.is_empty() {
            return Err(bad("caBundle", "there is no certificate in it".into()));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("caBundle", error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let to = Whereabouts {
            namespace: node.namespace().unwrap_or_default(),
            address: (std::net::IpAddr::to_canonical(&address), port).into(),
            selector: place.agent_selector,
            via: place.via,
            limit: place.timeout,
            node: host,
        };
        Ok(Self { cluster, to, name, tls: TlsConnector::from(Arc::new(config)), token })
    }

    async fn send(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Response<Incoming>, OvsError> {
        let broken = |cause: Box<dyn std::error::Error + Send + Sync>| OvsError::Conversation {
            node: self.to.node.clone(),
            cause,
        };
        let stream = reach::connect(&self.cluster, &self.to).await?;
        let talk = async {
            let stream = self.tls.connect(self.name.clone(), stream).await.map_err(|error| broken(error.into()))?;
            let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
            let (mut sender, connection) = shaken.map_err(|error| broken(error.into()))?;
            tokio::spawn(connection);
            let request = Request::builder()
                .method(method)
                .uri(path)
                .header(header::HOST, self.to.node.as_str())
                .header(header::AUTHORIZATION, format!("Bearer {}", self.token.0))
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::USER_AGENT, concat!("cobaltctl/", env!("CARGO_PKG_VERSION")))
                .body(Full::new(Bytes::from(body)))
                .map_err(|error| broken(error.into()))?;
            sender.send_request(request).await.map_err(|error| broken(error.into()))
        };
        let late = || OvsError::Timeout { what: format!("ask the agent of {}", self.to.node), limit: self.to.limit };
        let response = timeout(self.to.limit, talk).await.unwrap_or_else(|_| Err(late()))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let code = response.status().as_u16();
        let said = self.whole(response).await.unwrap_or_default();
        let status: Value = serde_json::from_slice(&said).unwrap_or_default();
        let message = status["message"].as_str().unwrap_or("it did not say why").to_owned();
        Err(OvsError::Refused { node: self.to.node.clone(), code, message })
    }

    async fn whole(&self, response: Response<Incoming>) -> Result<Bytes, OvsError> {
        let read = timeout(self.to.limit, Limited::new(response.into_body(), MOST).collect()).await;
        let late =
            || OvsError::Timeout { what: format!("hear the agent of {} out", self.to.node), limit: self.to.limit };
        let read = read.map_err(|_| late())?;
        let read = read.map_err(|cause| OvsError::Conversation { node: self.to.node.clone(), cause })?;
        Ok(read.to_bytes())
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str, body: Vec<u8>) -> Result<T, OvsError> {
        let response = self.send(method, path, body).await?;
        let body = self.whole(response).await?;
        serde_json::from_slice(&body)
            .map_err(|error| OvsError::Malformed { node: self.to.node.clone(), problem: error.to_string() })
    }

    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, OvsError> {
        self.ask(Method::GET, path, Vec::new()).await
    }

    pub(super) async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, OvsError> {
        self.ask(Method::POST, path, serde_json::to_vec(body).map_err(OvsError::Json)?).await
    }

    /// The packets of a port, for as long as they are read.
    pub(super) async fn capture(&self, question: &CaptureQuestion) -> Result<Packets, OvsError> {
        let body = serde_json::to_vec(question).map_err(OvsError::Json)?;
        let response = self.send(Method::POST, "/v1/capture", body).await?;
        let frames = BodyStream::new(response.into_body());
        Ok(frames
            .filter_map(async |frame| match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(error.into())),
            })
            .boxed())
    }
}

/// A name as one segment of a path.
pub(super) fn segment(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            let _ = write!(text, "%{byte:02X}"); // a String takes everything
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stays_one_segment_whatever_is_in_it() {
        assert_eq!(segment("tap1"), "tap1");
        assert_eq!(segment("../a?b#c d%"), "..%2Fa%3Fb%23c%20d%25");
        assert_eq!(segment("ü"), "%C3%BC");
    }
}
