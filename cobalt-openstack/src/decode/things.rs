//! What a server is made of: images, networks, flavors.

use serde::Deserialize;

use super::json;

/// An image or a flavor.
#[derive(Deserialize)]
pub(crate) struct Thing {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
}

/// A network.
#[derive(Deserialize)]
pub(crate) struct Network {
    pub(crate) id: String,
    #[serde(default)]
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) shared: bool,
    #[serde(default, rename = "router:external")]
    pub(crate) external: bool,
}

/// The images of a listing, in its order. One without a name is nobody we look for.
pub(crate) fn images(body: &[u8]) -> Result<Vec<Thing>, String> {
    #[derive(Deserialize)]
    struct Image {
        id: String,
        #[serde(default)]
        name: Option<String>,
    }
    #[derive(Deserialize)]
    struct Body {
        images: Vec<Image>,
    }
    let named = |image: Image| Some(Thing { id: image.id, name: image.name? });
    Ok(json::<Body>(body)?.images.into_iter().filter_map(named).collect())
}

/// The flavors of a page, in its order.
pub(crate) fn flavors(body: &[u8]) -> Result<Vec<Thing>, String> {
    #[derive(Deserialize)]
    struct Body {
        flavors: Vec<Thing>,
    }
    Ok(json::<Body>(body)?.flavors)
}

/// The networks of a listing, in its order.
pub(crate) fn networks(body: &[u8]) -> Result<Vec<Network>, String> {
    #[derive(Deserialize)]
    struct Body {
        networks: Vec<Network>,
    }
    Ok(json::<Body>(body)?.networks)
}
