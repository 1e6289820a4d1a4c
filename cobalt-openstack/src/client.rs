//! The way in.

use std::sync::Arc;

use crate::{
    cloud::Cloud,
    error::Result,
    nova::Nova,
    options::Options,
    placement::Placement,
    session::{CallObserver, Limits, Session},
    test_bed::Bed,
};

/// A cloud we are logged in to. Cheap to clone; all clones and clients share one login, one rate and one pool of
/// connections.
///
/// The token is renewed before it ends, and replaced when the cloud does not accept it any more.
#[derive(Debug, Clone)]
pub struct OpenStack {
    session: Arc<Session>,
}

impl OpenStack {
    /// Logs in, and checks that Nova and Placement are in the catalog.
    pub async fn connect(cloud: &Cloud) -> Result<Self> {
        Self::connect_with(cloud, Options::default(), None).await
    }

    /// The same with other limits, and with somebody who hears of every call.
    pub async fn connect_with(
        cloud: &Cloud,
        options: Options,
        observer: Option<Arc<dyn CallObserver>>,
    ) -> Result<Self> {
        let openstack = Self::lazy(cloud, options, observer)?;
        openstack.session.connect().await?;
        Ok(openstack)
    }

    /// Logs in with the first call: for programs that start before their cloud does.
    pub fn lazy(cloud: &Cloud, options: Options, observer: Option<Arc<dyn CallObserver>>) -> Result<Self> {
        let limits = Arc::new(Limits::new(&options));
        Ok(Self { session: Arc::new(Session::new(cloud, options, limits, observer)?) })
    }

    /// Another login with the same [`Options`], which shares the rate and the requests on their way with this one: both
    /// together stay within the limits, and a wish to wait that one hears holds the other back too.
    pub fn beside(&self, cloud: &Cloud, observer: Option<Arc<dyn CallObserver>>) -> Result<Self> {
        let (options, limits) = (self.session.options().clone(), self.session.limits());
        Ok(Self { session: Arc::new(Session::new(cloud, options, limits, observer)?) })
    }

    /// Its compute service.
    pub fn nova(&self) -> Nova {
        Nova::new(self.session.clone())
    }

    /// Its Placement service.
    pub fn placement(&self) -> Placement {
        Placement::new(self.session.clone())
    }

    /// What a smoke test is made of: images, networks, flavors. Glance and Neutron are looked for in the catalog when
    /// they are asked something.
    pub fn test_bed(&self) -> Bed {
        Bed::new(self.session.clone())
    }
}
