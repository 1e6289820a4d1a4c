"""A virt driver for tests: guests that survive a restart of nova-compute, and do as told.

Lies in the rig's environment as nova/virt/cobalt.py; compute_driver = cobalt.CobaltDriver. What a host is to do
differently is said by files in its state_path:

    lm_seconds   how long a live migration from here runs (default 2)
    lm_refuse    a live migration from here fails: of every guest if it is empty, else of those whose ids stand in it
    spawn_fail   no guest can be made
    mute         no guest says anything on its console

guests.json there lists the guests, for whoever plays the hypervisor's own side. It is replaced as a whole with every
change, so that a new file is a change.
"""
import json
import os
import threading
import time

import nova.conf
from nova import exception
from nova.compute import power_state
from nova.virt import fake

CONF = nova.conf.CONF
STATES = {power_state.RUNNING: 'running', power_state.PAUSED: 'paused', power_state.SUSPENDED: 'suspended'}


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

    def _note(self, instance=None):
        """Writes the list down; a guest that is new to it comes with what only Nova knows."""
        # Requests are threads, and two may change the list at once.
        with self._lock:
            if instance is not None:
                flavor = instance.flavor
                self._facts[instance.uuid] = {'server': instance.display_name, 'vcpus': flavor.vcpus, 'memory_mb': flavor.memory_mb}
            guests = [{'uuid': uuid, 'name': guest.name, 'state': STATES.get(guest.state, 'off'), **self._facts.get(uuid, {})}
                      for uuid, guest in sorted(self.instances.copy().items())]
            with open(self._path('guests.tmp'), 'w') as file:
                json.dump(guests, file)
            os.replace(self._path('guests.tmp'), self._path('guests.json'))

    def init_host(self, host):
        super().init_host(host)
        self._aborted, self._forced, self._facts, self._lock = set(), set(), {}, threading.Lock()
        states = {word: state for state, word in STATES.items()}
        for guest in json.loads(self._read('guests.json') or '[]'):
            uuid, name, state = guest.pop('uuid'), guest.pop('name'), states.get(guest.pop('state'), power_state.SHUTDOWN)
            self.instances[uuid] = fake.FakeInstance(name, state, uuid)
            self._facts[uuid] = guest

    def _state(self, instance, state):
        if instance.uuid in self.instances:
            self.instances[instance.uuid].state = state
        self._note()

    def spawn(self, context, instance, *args, **kwargs):
        if self._read('spawn_fail') is not None:
            raise exception.InstanceDeployFailure('told so')
        super().spawn(context, instance, *args, **kwargs)
        self._note(instance)

    def destroy(self, *args, **kwargs):
        super().destroy(*args, **kwargs)
        self._note()

    def power_off(self, *args, **kwargs):
        super().power_off(*args, **kwargs)
        self._note()

    def power_on(self, *args, **kwargs):
        super().power_on(*args, **kwargs)
        self._note()

    def pause(self, instance):
        self._state(instance, power_state.PAUSED)

    def unpause(self, instance):
        self._state(instance, power_state.RUNNING)

    def suspend(self, context, instance):
        self._state(instance, power_state.SUSPENDED)

    def resume(self, context, instance, *args, **kwargs):
        self._state(instance, power_state.RUNNING)

    def get_host_uptime(self):
        return ' 00:00:00 up 1 day,  0 users,  load average: 0.00, 0.00, 0.00'

    def get_console_output(self, context, instance):
        if self._read('mute') is not None:
            return ''
        return '[    0.000000] Linux version 6.12.0\n%s login: ' % instance.hostname

    def live_migration(self, context, instance, dest, post_method, recover_method, block_migration=False, migrate_data=None):
        started = time.monotonic()
        # Asked again and again: a test may have it end sooner.
        while time.monotonic() < started + self._seconds() and instance.uuid not in self._aborted | self._forced:
            time.sleep(0.05)
        refused = self._read('lm_refuse')
        if instance.uuid in self._aborted:
            self._aborted.discard(instance.uuid)
            recover_method(context, instance, dest, migrate_data, migration_status='cancelled')
        elif refused is not None and (not refused.strip() or instance.uuid in refused.split()):
            recover_method(context, instance, dest, migrate_data)
        else:
            self._forced.discard(instance.uuid)
            # The guest is over there from here on, whatever Nova still has to write.
            guest = self.instances.get(instance.uuid)
            self.destroy(context, instance, [])
            try:
                post_method(context, instance, dest, block_migration, migrate_data)
            except Exception:
                if guest is not None:
                    self.instances[instance.uuid] = guest
                    self._note()
                raise

    def post_live_migration_at_destination(self, context, instance, *args, **kwargs):
        # Not our own: whoever is told to make no guests takes those that come.
        fake.FakeDriver.spawn(self, context, instance, None, None, None, None)
        self._note(instance)

    def _seconds(self):
        try:
            return float(self._read('lm_seconds'))
        except (TypeError, ValueError):
            return 2.0

    def live_migration_force_complete(self, instance):
        self._forced.add(instance.uuid)

    def live_migration_abort(self, instance):
        self._aborted.add(instance.uuid)
