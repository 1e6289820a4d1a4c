//! What a VM may be made of: `virsh domcapabilities`.

use cobalt_core::backend::DomainCapabilities;

use super::{
    Limits, XmlError,
    reader::{Element, Reader},
};

/// What a VM may be made of, as libvirt describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DomainCapabilitiesXml {
    /// The emulator these capabilities hold for.
    pub emulator: Option<String>,
    /// The machine type these capabilities hold for.
    pub machine: Option<String>,
    /// How many vCPUs a VM may have.
    pub max_vcpus: Option<u32>,
    /// What the seam wants to know: every mode, device and feature that is `supported='yes'`, with the values of its
    /// enumerations; sorted, each once.
    pub capabilities: DomainCapabilities,
}

impl DomainCapabilitiesXml {
    /// Reads a `<domainCapabilities>` document.
    pub fn parse(text: &str) -> Result<Self, XmlError> {
        Self::parse_within(text, Limits::default())
    }

    /// Reads a `<domainCapabilities>` document within limits of one's own.
    pub fn parse_within(text: &str, limits: Limits) -> Result<Self, XmlError> {
        let (mut reader, root) = Reader::open(text, "domainCapabilities", limits)?;
        let reader = &mut reader;
        let mut found = Self::default();
        let into = &mut found.capabilities;
        while let Some(part) = reader.child(&root)? {
            match part.name() {
                "path" => found.emulator = reader.string(&part)?,
                "machine" => found.machine = reader.string(&part)?,
                "vcpu" => found.max_vcpus = part.parse("max"),
                "arch" => into.arch = reader.string(&part)?,
                "domain" => into.hypervisor_type = reader.string(&part)?,
                "cpu" => {
                    while let Some(mode) = reader.child(&part)? {
                        if mode.name() == "mode" && mode.is("supported", "yes") {
                            let Some(name) = mode.attribute("name") else { continue };
                            push_with_values(reader, &mode, &format!("mode/{name}"), &mut into.cpu_modes)?;
                        }
                    }
                }
                "devices" => {
                    while let Some(device) = reader.child(&part)? {
                        if device.is("supported", "yes") {
                            push_with_values(reader, &device, device.name(), &mut into.devices)?;
                        }
                    }
                }
                "features" => {
                    while let Some(feature) = reader.child(&part)? {
                        if feature.is("supported", "yes") {
                            into.features.push(feature.name().to_owned());
                        }
                    }
                }
                _ => {}
            }
        }
        for list in [&mut into.cpu_modes, &mut into.devices, &mut into.features] {
            list.sort_unstable();
            list.dedup();
        }
        Ok(found)
    }
}

/// Adds `name`, and `name/value` for every value of every enumeration inside of `element`.
fn push_with_values<'a>(
    reader: &mut Reader<'a>,
    element: &Element<'a>,
    name: &str,
    into: &mut Vec<String>,
) -> Result<(), XmlError> {
    into.push(name.to_owned());
    while let Some(enumeration) = reader.child(element)? {
        if enumeration.name() != "enum" {
            continue;
        }
        while let Some(value) = reader.child(&enumeration)? {
            if value.name() == "value" {
                let value = reader.text(&value)?;
                if !value.is_empty() {
                    into.push(format!("{name}/{value}"));
                }
            }
        }
    }
    Ok(())
}
