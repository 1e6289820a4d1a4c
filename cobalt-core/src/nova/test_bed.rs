//! What the smoke test of a new host is made of.

use async_trait::async_trait;

use crate::Result;

/// The things of a cloud that people write into a configuration by name: images, networks, flavors.
///
/// Names are whole names. Each answers an id, which goes into a [`NewServer`](super::NewServer).
///
/// ```
/// use cobalt_core::nova::{NewServer, TestBed};
///
/// async fn smallest(bed: &dyn TestBed, host: &str) -> cobalt_core::Result<NewServer> {
///     Ok(NewServer {
///         name: format!("smoke-{host}"),
///         flavor: bed.flavor_called("m1.tiny").await?,
///         image: bed.image_named("cirros").await?,
///         network: bed.network(None).await?,
///         availability_zone: Some(format!("nova:{host}")),
///         volume: None,
///     })
/// }
/// ```
#[cfg_attr(feature = "testing", mockall::automock)]
#[async_trait]
pub trait TestBed: Send + Sync {
    /// The image with exactly this name that can be booted; of several the newest, since an image that is replaced
    /// keeps its name. [`Error::NotFound`](crate::Error::NotFound) if there is none.
    async fn image_named(&self, name: &str) -> Result<String>;

    /// The network with exactly this name: [`Error::NotFound`](crate::Error::NotFound) if there is none,
    /// [`Error::Conflict`](crate::Error::Conflict) if there are several. Without a name, the first by name of our own
    /// project that is neither shared nor a way out; `None` if it has none.
    async fn network<'a>(&self, name: Option<&'a str>) -> Result<Option<String>>;

    /// The flavor with this id, or else with exactly this name.
    /// [`Error::NotFound`](crate::Error::NotFound) if there is neither.
    async fn flavor_called(&self, id_or_name: &str) -> Result<String>;
}
