//! The cloud as the operator has it: the seams to change it, and one view to see it.

use std::{fmt, sync::Arc};

use crate::nova::{
    NovaClient, PlacementClient,
    view::{RegionView, ViewOptions},
};

/// Nova, Placement and what was seen of them. Cloned freely; all clones are the same.
///
/// ```no_run
/// use cobalt_core::nova::{NovaClient, PlacementClient, view::ViewOptions};
/// use cobalt_core::operator::{Cloud, Operator, Settings};
/// use std::sync::Arc;
///
/// # fn example(client: kube::Client, nova: Arc<dyn NovaClient>, placement: Arc<dyn PlacementClient>) {
/// let cloud = Cloud::new(nova, placement, ViewOptions::default());
/// let operator = Operator::new(client).cloud(cloud, Settings::default());
/// # let _ = operator; }
/// ```
#[derive(Clone)]
pub struct Cloud {
    /// The compute service.
    pub nova: Arc<dyn NovaClient>,
    /// Who has what, and who uses it.
    pub placement: Arc<dyn PlacementClient>,
    /// The region as it was seen last. The operator runs it.
    pub view: Arc<RegionView>,
}

impl fmt::Debug for Cloud {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cloud")
    }
}

impl Cloud {
    /// A cloud that was not looked at yet.
    pub fn new(nova: Arc<dyn NovaClient>, placement: Arc<dyn PlacementClient>, options: ViewOptions) -> Self {
        let view = RegionView::new(nova.clone(), placement.clone(), options);
        Self { nova, placement, view }
    }
}
