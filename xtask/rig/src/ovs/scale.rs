//! A switch with thousands of ports, or a hundred thousand flows.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use crate::error::{Result, write};
use crate::namespace::Namespace;
use crate::ovs::switch::Switch;
use crate::place::Place;
use crate::process;

/// So many ports in one call of `ovs-vsctl`.
const AT_ONCE: usize = 250;

/// An Open vSwitch with devices that exist in its imagination only, until dropped. There is no OVN.
#[derive(Debug)]
pub struct Scale {
    // In the order of their end.
    switch: Switch,
    _place: Place,
}

impl Scale {
    /// A bridge br-int with so many ports of VMs.
    pub fn up(ports: usize) -> Result<Scale> {
        let place = Place::claim(&std::env::temp_dir().join("cobalt-rig"))?;
        // Every device is of no kind that the kernel would have to know.
        let imagined = ["--enable-dummy=override", "--disable-system"].map(str::to_owned);
        let directory = place.directory().join("node");
        let switch = Switch::start(&directory, "scale", Namespace::new()?, &[], &imagined)?;
        let scale = Scale { switch, _place: place };
        scale.vsctl([
            "add-br",
            "br-int",
            "--",
            "set",
            "Bridge",
            "br-int",
            "datapath_type=dummy",
            "fail_mode=secure",
        ])?;
        let numbers: Vec<usize> = (1..=ports).collect();
        for some in numbers.chunks(AT_ONCE) {
            let mut words = vec!["--no-wait".to_owned()];
            for number in some {
                words.extend(port(*number));
            }
            scale.vsctl(words)?;
        }
        // This call returns when the switch has taken up everything before it.
        scale.vsctl(["set", "Open_vSwitch", ".", "external_ids:filled=true"])?;
        Ok(scale)
    }

    /// The directory with the sockets, notes and logs of the daemons.
    pub fn directory(&self) -> &Path {
        self.switch.directory()
    }

    /// The database: `unix:` and a path.
    pub fn database(&self) -> String {
        format!("unix:{}", self.directory().join("db.sock").display())
    }

    /// Runs `ovs-vsctl`.
    pub fn vsctl<I: IntoIterator<Item: AsRef<OsStr>>>(&self, arguments: I) -> Result<String> {
        self.switch.vsctl(arguments)
    }

    /// Runs `ovs-ofctl VERB` on br-int with more arguments behind it.
    pub fn ofctl(&self, verb: &str, more: &[&str]) -> Result<String> {
        let socket = format!("unix:{}", self.directory().join("br-int.mgmt").display());
        process::run("ovs-ofctl", ["--protocols=OpenFlow13", verb, &socket].iter().chain(more))
    }

    /// Adds so many flows to br-int, a tenth of them to each of ten tables.
    pub fn add_flows(&self, count: usize) -> Result<()> {
        let mut flows = String::new();
        for number in 0..count {
            let (table, cookie) = (number % 10, number + 1);
            let address = format!("10.{}.{}.{}", number >> 16 & 255, number >> 8 & 255, number & 255);
            // Writing to a String does not fail.
            let _ = writeln!(
                flows,
                "cookie={cookie:#x},table={table},priority=100,ip,nw_dst={address},actions=load:{number}->NXM_NX_REG0[],resubmit(,{})",
                table + 10
            );
        }
        let path = self.directory().join("flows");
        write(&path, flows)?;
        // As one bundle: a second instead of half a minute.
        let socket = format!("unix:{}", self.directory().join("br-int.mgmt").display());
        let path = path.display().to_string();
        process::run("ovs-ofctl", ["--protocols=OpenFlow14", "--bundle", "add-flows", &socket, &path]).map(drop)
    }
}

fn port(number: usize) -> Vec<String> {
    let name = format!("tap{number}");
    let mut words: Vec<String> = ["--", "add-port", "br-int", &name].map(str::to_owned).into();
    words.extend(["--", "set", "Interface", &name, "type=dummy"].map(str::to_owned));
    words.push(format!("external_ids:iface-id=c0ba1700-0000-4000-a000-{number:012}"));
    words.push(format!("external_ids:attached-mac=\"fa:16:3e:00:{:02x}:{:02x}\"", number / 256, number % 256));
    words.push("external_ids:iface-status=active".to_owned());
    words.push(format!("external_ids:vm-uuid=c0ba1700-0000-4000-9000-{number:012}"));
    words
}
