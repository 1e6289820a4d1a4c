//! What a smoke test is made of, through its seam.

use async_trait::async_trait;
use cobalt_core::{Error, Result, nova::TestBed};

use super::{Image, Network, client::available};
use crate::{
    faults::Faults,
    world::{State, World},
};

/// Images, networks and flavors of the simulated region. Clones share their faults; a new one from
/// [`Region::test_bed`](crate::Region::test_bed) has its own.
#[derive(Debug, Clone)]
pub struct SimTestBed {
    world: World,
    faults: Faults,
}

impl SimTestBed {
    pub(crate) fn new(world: World) -> Self {
        Self { world, faults: Faults::default() }
    }

    /// The faults of this handle.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    async fn call<T>(
        &self,
        method: &'static str,
        operation: String,
        act: impl FnOnce(&State, &str) -> Result<T> + Send,
    ) -> Result<T> {
        let call = || async {
            self.world.with(|state| {
                available(state, &operation)?;
                act(state, &operation)
            })
        };
        self.faults.run(method, || operation.clone(), call).await
    }
}

impl World {
    /// Adds an image, and answers its id.
    pub fn add_image(&self, name: &str) -> String {
        self.with(|state| {
            let id = state.random_uuid();
            state.nova.images.push(Image { id, name: name.to_owned() });
            id.to_string()
        })
    }

    /// Adds a network of the project that the seams are logged in to, and answers its id.
    pub fn add_network(&self, name: &str, shared: bool) -> String {
        self.with(|state| {
            let id = state.random_uuid();
            state.nova.networks.push(Network { id, name: name.to_owned(), shared });
            id.to_string()
        })
    }
}

#[async_trait]
impl TestBed for SimTestBed {
    async fn image_named(&self, name: &str) -> Result<String> {
        self.call("image_named", format!("get image named {name}"), |state, operation| {
            let newest = state.nova.images.iter().rev().find(|image| image.name == name);
            newest.map(|image| image.id.to_string()).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }

    async fn network<'a>(&self, name: Option<&'a str>) -> Result<Option<String>> {
        let what = name.map_or("get a network of ours".into(), |name| format!("get network named {name}"));
        self.call("network", what, |state, operation| {
            let all = &state.nova.networks;
            let Some(name) = name else {
                let first =
                    all.iter().filter(|network| !network.shared).min_by_key(|network| (&network.name, network.id));
                return Ok(first.map(|network| network.id.to_string()));
            };
            let mut named = all.iter().filter(|network| network.name == name);
            match (named.next(), named.next()) {
                (Some(one), None) => Ok(Some(one.id.to_string())),
                (None, _) => Err(Error::not_found(operation)),
                (Some(one), Some(other)) => {
                    let reason = format!("there are two of this name, {} and {}", one.id, other.id);
                    Err(Error::conflict(operation, reason))
                }
            }
        })
        .await
    }

    async fn flavor_called(&self, id_or_name: &str) -> Result<String> {
        self.call("flavor_called", format!("get flavor {id_or_name}"), |state, operation| {
            let all = &state.nova.flavors;
            let by_name = || all.values().find(|flavor| flavor.name == id_or_name);
            let found = all.get(id_or_name).or_else(by_name);
            found.map(|flavor| flavor.id.clone()).ok_or_else(|| Error::not_found(operation))
        })
        .await
    }
}
