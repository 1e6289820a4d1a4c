"""A stand-in for Neutron: Nova looks up ports and security groups even for servers without a network."""
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = 9696
IGNORED = ('fields', 'limit', 'marker', 'sort_key', 'sort_dir')
STORE, LOCK = {}, threading.Lock()


def word(value):
    return str(value).lower() if isinstance(value, bool) else str(value)


def port(thing):
    """What Nova reads of a port that it has not said itself."""
    octets = uuid.uuid4().bytes
    network = STORE.get('networks', {}).get(thing.get('network_id'), {})
    return {'mac_address': 'fa:16:3e:%02x:%02x:%02x' % tuple(octets[:3]), 'fixed_ips': [], 'security_groups': [],
            'device_id': '', 'device_owner': '', 'allowed_address_pairs': [], 'admin_state_up': True,
            'binding:vif_type': 'ovs', 'binding:vnic_type': 'normal', 'binding:vif_details': {}, 'binding:profile': {},
            **thing, 'tenant_id': network.get('project_id', ''), 'project_id': network.get('project_id', '')}


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def log_message(self, *_):
        pass

    def answer(self, status, body=None):
        data = b'' if body is None else json.dumps(body).encode()
        self.send_response(status)
        self.send_header('Content-Type', 'application/json')
        self.send_header('Content-Length', str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self, what):
        self.answer(404, {'NeutronError': {'type': 'NotFound', 'message': what, 'detail': ''}})

    def serve(self):
        split = urlsplit(self.path)
        wanted = {key: values for key, values in parse_qs(split.query).items() if key not in IGNORED}
        length = int(self.headers.get('Content-Length') or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = [part for part in split.path.split('/') if part]
        if not parts:
            link = {'rel': 'self', 'href': 'http://127.0.0.1:%d/v2.0/' % PORT}
            return self.answer(200, {'versions': [{'id': 'v2.0', 'status': 'CURRENT', 'links': [link]}]})
        parts = parts[1:] if parts[0] == 'v2.0' else parts
        if not parts:
            return self.answer(200, {'resources': []})
        if parts[0] == 'extensions':
            return self.answer(200, {'extensions': []})
        if parts[0] == 'quotas':
            return self.answer(200, {'quota': {'network': -1, 'port': -1}})
        # A collection, or one below a thing: ports/ID/bindings.
        path, name = ('/'.join(parts[:3]), parts[3:]) if len(parts) > 2 else (parts[0], parts[1:])
        plural = path.rsplit('/', 1)[-1].replace('-', '_')
        single = 'policy' if plural == 'policies' else plural[:-1]
        with LOCK:
            things = STORE.setdefault(path, {})
            if self.command == 'GET' and name:
                thing = things.get(name[0])
                return self.answer(200, {single: thing}) if thing else self.missing(name[0])
            if self.command == 'GET':
                fits = lambda thing: all(word(thing.get(key, False)) in values for key, values in wanted.items())
                return self.answer(200, {plural: [thing for thing in things.values() if fits(thing)]})
            if self.command == 'POST':
                # Neutron says the project twice, and Nova reads the older word.
                made = [{'id': str(uuid.uuid4()), 'status': 'ACTIVE', 'tenant_id': thing.get('project_id', ''), **thing}
                        for thing in body.get(plural) or [body[single]]]
                made = [port(thing) for thing in made] if path == 'ports' else made
                things.update((thing['id'], thing) for thing in made)
                return self.answer(201, {plural: made} if plural in body else {single: made[0]})
            if self.command == 'PUT' and name and name[0] in things:
                things[name[0]].update(body.get(single, {}))
                return self.answer(200, {single: things[name[0]]})
            if self.command == 'DELETE' and name:
                things.pop(name[0], None)
                return self.answer(204)
        self.missing(self.path)

    do_GET = do_POST = do_PUT = do_DELETE = serve


def main():
    ThreadingHTTPServer.daemon_threads = True
    ThreadingHTTPServer(('0.0.0.0', PORT), Handler).serve_forever()
