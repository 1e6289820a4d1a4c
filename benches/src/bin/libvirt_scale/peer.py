"""libvirt-python as a client that does one step at a time; see benches/src/steps.rs."""
import sys
import xml.etree.ElementTree as ElementTree

import libvirt

uri, what = sys.argv[1:3]
connection = libvirt.open(uri)


def inventory():
    domains = []
    for domain in connection.listAllDomains(0):
        state, _reason = domain.state()
        description = ElementTree.fromstring(domain.XMLDesc(0))
        memory, vcpus = description.findtext("memory"), description.findtext("vcpu")
        domains.append((domain.UUIDString(), domain.name(), state, int(memory), int(vcpus)))
    return len(domains)


def scrape():
    groups = (libvirt.VIR_DOMAIN_STATS_STATE | libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BALLOON
              | libvirt.VIR_DOMAIN_STATS_VCPU | libvirt.VIR_DOMAIN_STATS_INTERFACE | libvirt.VIR_DOMAIN_STATS_BLOCK)
    flags = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
    return len(connection.getAllDomainStats(groups, flags))


print("ready", flush=True)
for _go in sys.stdin:
    print("done", {"inventory": inventory, "scrape": scrape}[what](), flush=True)
    print("ready", flush=True)
