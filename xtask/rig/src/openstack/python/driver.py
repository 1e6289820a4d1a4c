"""A virt driver for tests: guests that survive a restart of nova-compute, and do as told.

Lies in the rig's environment as nova/virt/cobalt.py; compute_driver = cobalt.CobaltDriver. What a host is to do
differently is said by files in its state_path:

    lm_seconds   how long a live migration runs (default 2)
    lm_refuse    a live migration fails: of every guest if it is empty, else of those whose ids stand in it
    spawn_fail   no guest can be made

guests.json there lists the guests with their names and states, for whoever plays the hypervisor's own side.
"""
import json
import os
import time

import nova.conf
from nova import exception
from nova.virt import fake

CONF = nova.conf.CONF


class CobaltDriver(fake.FakeLiveMigrateDriver, fake.FakeDriverWithoutFakeNodes):
    vcpus, memory_mb, local_gb = 64, 262144, 4096

    def _path(self, name):
        return os.path.join(CONF.state_path, name)

    def _read(self, name):
        try:
            with open(self._path(name)) as file:
                return file.read()
        except OSError:
            return None

    def _dump(self):
        guests = {uuid: [guest.name, guest.state] for uuid, guest in self.instances.items()}
        with open(self._path('guests.tmp'), 'w') as file:
            json.dump(guests, file)
        os.replace(self._path('guests.tmp'), self._path('guests.json'))

    def init_host(self, host):
        super().init_host(host)
        self._aborted, self._forced = set(), set()
        text = self._read('guests.json')
        if text:
            self.instances = {uuid: fake.FakeInstance(name, state, uuid) for uuid, (name, state) in json.loads(text).items()}

    def spawn(self, context, instance, *args, **kwargs):
        if self._read('spawn_fail') is not None:
            raise exception.InstanceDeployFailure('told so')
        super().spawn(context, instance, *args, **kwargs)
        self._dump()

    def destroy(self, *args, **kwargs):
        super().destroy(*args, **kwargs)
        self._dump()

    def power_off(self, *args, **kwargs):
        super().power_off(*args, **kwargs)
        self._dump()

    def power_on(self, *args, **kwargs):
        super().power_on(*args, **kwargs)
        self._dump()

    def post_live_migration_at_destination(self, context, instance, *args, **kwargs):
        super().post_live_migration_at_destination(context, instance, *args, **kwargs)
        self._dump()

    def get_host_uptime(self):
        return ' 00:00:00 up 1 day,  0 users,  load average: 0.00, 0.00, 0.00'

    def get_console_output(self, context, instance):
        return '[    0.000000] Linux version 6.12.0\n%s login: ' % instance.display_name

    def live_migration(self, context, instance, dest, post_method, recover_method, block_migration=False, migrate_data=None):
        try:
            seconds = float(self._read('lm_seconds'))
        except (TypeError, ValueError):
            seconds = 2.0
        end = time.monotonic() + seconds
        while time.monotonic() < end and instance.uuid not in self._aborted | self._forced:
            time.sleep(0.1)
        refused = self._read('lm_refuse')
        if instance.uuid in self._aborted:
            self._aborted.discard(instance.uuid)
            recover_method(context, instance, dest, migrate_data, migration_status='cancelled')
        elif refused is not None and (not refused.strip() or instance.uuid in refused):
            recover_method(context, instance, dest, migrate_data)
        else:
            self._forced.discard(instance.uuid)
            post_method(context, instance, dest, block_migration, migrate_data)
            self._dump()

    def live_migration_force_complete(self, instance):
        self._forced.add(instance.uuid)

    def live_migration_abort(self, instance):
        self._aborted.add(instance.uuid)
