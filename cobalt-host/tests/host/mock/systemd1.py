"""A template for python-dbusmock: the part of systemd's manager that is spoken to here, with its habits."""

import dbus
from gi.repository import GLib

from dbusmock import MOCK_IFACE, mockobject

BUS_NAME = "org.freedesktop.systemd1"
MAIN_OBJ = "/org/freedesktop/systemd1"
MAIN_IFACE = "org.freedesktop.systemd1.Manager"
UNIT_IFACE = "org.freedesktop.systemd1.Unit"
SYSTEM_BUS = True


def load(mock, _parameters):
    mock.states = {}
    mock.aliases = {}
    mock.job = 0


def path_of(name):
    escaped = "".join(c if c.isalnum() else "_%02x" % ord(c) for c in name)
    return f"{MAIN_OBJ}/unit/{escaped}"


@dbus.service.method(MAIN_IFACE, in_signature="", out_signature="")
def Subscribe(self):
    pass


@dbus.service.method(MAIN_IFACE, in_signature="as", out_signature="a(ssssssouso)")
def ListUnitsByNames(self, names):
    lines = []
    for asked in names:
        name = self.aliases.get(str(asked), str(asked))
        load_state, active = self.states.get(name, ("not-found", "inactive"))
        path = path_of(name)
        lines.append((name, name, load_state, active, "", "", dbus.ObjectPath(path), dbus.UInt32(0), "",
                      dbus.ObjectPath("/")))
        if active == "inactive":
            # A unit at rest is loaded for the question only.
            self.EmitSignal(MAIN_IFACE, "UnitNew", "so", [name, path])
            self.EmitSignal(MAIN_IFACE, "UnitRemoved", "so", [name, path])
    return dbus.Array(lines, signature="(ssssssouso)")


@dbus.service.method(MAIN_IFACE, in_signature="ss", out_signature="o")
def StartUnit(self, name, mode):
    name = str(name)
    if name not in self.states:
        raise dbus.exceptions.DBusException(f"Unit {name} not found.", name=f"{BUS_NAME}.NoSuchUnit")
    if self.states[name][0] == "masked":
        raise dbus.exceptions.DBusException(f"Unit {name} is masked.", name=f"{BUS_NAME}.UnitMasked")
    if mode != "replace":
        raise dbus.exceptions.DBusException(f"Mode {mode} is not expected.", name=f"{BUS_NAME}.Unexpected")
    self.job += 1
    job = f"{MAIN_OBJ}/job/{self.job}"
    self.SetUnit(name, self.states[name][0], "active")
    GLib.idle_add(lambda: self.EmitSignal(MAIN_IFACE, "JobRemoved", "uoss", [self.job, job, name, "done"]))
    return job


@dbus.service.method(MOCK_IFACE, in_signature="sss", out_signature="")
def SetUnit(self, name, load_state, active):
    name = str(name)
    self.states[name] = (str(load_state), str(active))
    path = path_of(name)
    if path not in mockobject.objects:
        self.AddObject(path, UNIT_IFACE, {"Id": name, "ActiveState": active}, [])
    mockobject.objects[path].EmitSignal(
        "org.freedesktop.DBus.Properties", "PropertiesChanged", "sa{sv}as",
        [UNIT_IFACE, dbus.Dictionary({"ActiveState": str(active)}, signature="sv"), dbus.Array([], signature="s")])


@dbus.service.method(MOCK_IFACE, in_signature="ss", out_signature="")
def SetAlias(self, alias, name):
    self.aliases[str(alias)] = str(name)
