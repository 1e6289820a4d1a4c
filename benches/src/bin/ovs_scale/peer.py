"""python3-openvswitch's IDL: the interfaces with the columns that ours reads; see once.rs."""
import sys

import ovs.db.idl
import ovs.dirs
import ovs.poller

COLUMNS = ["name", "type", "error", "ofport", "ifindex", "mac_in_use", "link_state", "admin_state", "link_speed",
           "external_ids", "options", "statistics", "status"]

helper = ovs.db.idl.SchemaHelper("/usr/share/openvswitch/vswitch.ovsschema")
helper.register_columns("Interface", COLUMNS)
idl = ovs.db.idl.Idl(sys.argv[1], helper)
while not idl.has_ever_connected():
    idl.run()
    if idl.has_ever_connected():
        break
    poller = ovs.poller.Poller()
    idl.wait(poller)
    poller.block()
print("done", len(idl.tables["Interface"].rows), flush=True)
sys.stdin.read()
