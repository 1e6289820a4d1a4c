//! What Nova writes into the metadata of its domains.

use cobalt_core::backend::NovaMetadata;

use super::{
    XmlError,
    reader::{Element, Reader},
};

/// All versions of Nova's namespace start like this; the elements we read are the same in each.
pub(super) const NAMESPACE: &str = "http://openstack.org/xmlns/libvirt/nova/";

/// Nova's notes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NovaXml {
    /// What the seam wants to know.
    pub metadata: NovaMetadata,
    /// The Nova version that wrote them.
    pub version: Option<String>,
    /// When Nova made the server, as Nova writes it (UTC).
    pub created: Option<String>,
    /// The flavor's vCPUs.
    pub flavor_vcpus: Option<u32>,
    /// The flavor's memory.
    pub flavor_memory_bytes: Option<u64>,
    /// The project's name.
    pub project_name: Option<String>,
    /// The user's name.
    pub user_name: Option<String>,
    /// Its ports in Neutron.
    pub ports: Vec<NovaPort>,
}

/// A Neutron port.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NovaPort {
    /// Its UUID.
    pub id: Option<String>,
    /// Its addresses.
    pub addresses: Vec<String>,
}

impl NovaXml {
    pub(super) fn read<'a>(reader: &mut Reader<'a>, instance: &Element<'a>) -> Result<Self, XmlError> {
        let mut nova = Self::default();
        while let Some(part) = reader.child(instance)? {
            match part.local_name() {
                "package" => nova.version = part.string("version"),
                "name" => nova.metadata.name = reader.string(&part)?,
                "creationTime" => nova.created = reader.string(&part)?,
                "flavor" => {
                    nova.metadata.flavor = part.string("name");
                    while let Some(fact) = reader.child(&part)? {
                        match fact.local_name() {
                            "vcpus" => nova.flavor_vcpus = reader.parse(&fact)?,
                            "memory" => {
                                let mebibytes: Option<u64> = reader.parse(&fact)?;
                                nova.flavor_memory_bytes = mebibytes.map(|count| count.saturating_mul(1 << 20));
                            }
                            _ => {}
                        }
                    }
                }
                "owner" => {
                    while let Some(owner) = reader.child(&part)? {
                        let (id, name) = match owner.local_name() {
                            "user" => (&mut nova.metadata.user_id, &mut nova.user_name),
                            "project" => (&mut nova.metadata.project_id, &mut nova.project_name),
                            _ => continue,
                        };
                        *id = owner.string("uuid");
                        *name = reader.string(&owner)?;
                    }
                }
                "ports" => {
                    while let Some(port) = reader.child(&part)? {
                        if port.local_name() == "port" {
                            let mut found = NovaPort { id: port.string("uuid"), addresses: Vec::new() };
                            while let Some(address) = reader.child(&port)? {
                                found.addresses.extend(address.string("address"));
                            }
                            nova.ports.push(found);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(nova)
    }
}
