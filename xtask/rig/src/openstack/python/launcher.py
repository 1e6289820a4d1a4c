"""Runs the services of a small OpenStack, and does to them as it is told.

Started inside the namespaces of a rig. Once told to, it imports Nova, so that each of Nova's services is a fork and not
another few seconds of imports. (Not the others: all of them register their options in one place, and collide.) One JSON
object per line comes in, one per line goes out. Its end is the end of its input: the namespaces end then too, and with
them everything that it started.
"""
import importlib
import json
import os
import signal
import socket
import sys
import traceback
import urllib.error
import urllib.request

PASSWORD = 'secret'
KEYSTONE = 'http://127.0.0.1:5000/v3'
ENDPOINTS = {
    'identity': KEYSTONE,
    'compute': 'http://127.0.0.1:8774/v2.1',
    'placement': 'http://127.0.0.1:8778',
    'image': 'http://127.0.0.1:9292',
    'network': 'http://127.0.0.1:9696',
}
VERSIONS = {'compute': '2.95', 'placement': '1.39'}


def preload(_):
    os.environ.setdefault('OS_NOVA_DISABLE_EVENTLET_PATCHING', 'true')
    for name in ('waitress', 'nova.cmd.compute', 'nova.cmd.conductor', 'nova.cmd.scheduler', 'nova.virt.cobalt'):
        importlib.import_module(name)
    return {}


def become(command):
    """What a child does instead of returning."""
    log = os.open(command['log'], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if not sys.argv[1:]:
        os.setsid()
    os.environ.update(command.get('env', {}))
    if 'exec' in command:
        os.execvp(command['exec'][0], command['exec'])
    if not sys.argv[1:] and not command.get('call', command.get('wsgi', '')).startswith('nova.'):
        os.execv(sys.executable, [sys.executable, os.path.abspath(__file__), json.dumps(command)])
    sys.argv = command['argv']
    if 'wsgi' in command:
        import waitress
        application = importlib.import_module(command['wsgi']).application
        waitress.serve(application, host='0.0.0.0', port=command['port'], threads=command.get('threads', 4),
                       connection_limit=200, asyncore_use_poll=True)
        return 0
    module, function = command['call'].split(':')
    return getattr(importlib.import_module(module), function)() or 0


def start(command):
    pid = os.fork()
    if pid:
        return {'pid': pid}
    try:
        status = become(command)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def wait(command):
    try:
        _, status = os.waitpid(command['wait'], 0)
    except ChildProcessError:
        return {'status': -1}
    return {'status': os.waitstatus_to_exitcode(status)}


def stop(command):
    try:
        os.kill(command['stop'], command.get('signal', signal.SIGKILL))
    except ProcessLookupError:
        pass
    return wait({'wait': command['stop']})


def tell(command):
    try:
        os.kill(command['tell'], command['signal'])
    except ProcessLookupError:
        pass
    return {}


def alive(command):
    try:
        pid, _ = os.waitpid(command['alive'], os.WNOHANG)
    except ChildProcessError:
        return {'alive': False}
    return {'alive': pid == 0}


def listens(command):
    with socket.socket() as probe:
        probe.settimeout(5)
        return {'listens': probe.connect_ex(('127.0.0.1', command['listens'])) == 0}


def request(method, url, body=None, headers=None):
    data = json.dumps(body).encode() if body is not None else None
    made = urllib.request.Request(url, method=method, data=data, headers={'Content-Type': 'application/json', **(headers or {})})
    try:
        with urllib.request.urlopen(made, timeout=60) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read(), error.headers


TOKENS = {}


def login(user, project):
    who = {'user': {'name': user, 'domain': {'id': 'default'}, 'password': PASSWORD}}
    scope = {'project': {'name': project, 'domain': {'id': 'default'}}}
    wanted = {'auth': {'identity': {'methods': ['password'], 'password': who}, 'scope': scope}}
    status, body, headers = request('POST', KEYSTONE + '/auth/tokens', wanted)
    if status != 201:
        raise RuntimeError('login: %s %s' % (status, body[:200]))
    return headers['X-Subject-Token']


def token(user='admin', project='admin'):
    if (user, project) not in TOKENS:
        TOKENS[user, project] = login(user, project)
    return TOKENS[user, project]


def probe(command):
    """Whether Nova accepts a token."""
    status, _, _ = request('GET', ENDPOINTS['compute'] + '/servers', headers={'X-Auth-Token': command['probe']})
    return {'status': status}


def api(command):
    """A raw call, as the administrator or as somebody else."""
    method, service, path, body = command['api']
    who = tuple(command.get('as', ('admin', 'admin')))
    for attempt in (1, 2):
        headers = {'X-Auth-Token': token(*who), **command.get('headers', {})}
        if service in VERSIONS:
            headers['OpenStack-API-Version'] = '%s %s' % (service, command.get('version', VERSIONS[service]))
        status, answer, _ = request(method, ENDPOINTS[service] + path, body, headers)
        if status == 401 and attempt == 1:
            TOKENS.pop(who, None)
            continue
        try:
            return {'status': status, 'body': json.loads(answer) if answer else None}
        except ValueError:
            return {'status': status, 'body': answer.decode('utf-8', 'replace')}


def must(method, service, path, body=None, headers=None):
    answer = api({'api': [method, service, path, body], 'headers': headers or {}})
    if answer['status'] >= 400 and answer['status'] != 409:
        raise RuntimeError('%s %s %s: %s' % (method, service, path, answer))
    return answer['body']


def populate(command):
    """Users, projects, services and endpoints; the public ones carry a name that each rig replaces by its address."""
    roles = {role['name']: role['id'] for role in must('GET', 'identity', '/roles')['roles']}
    project = lambda name: must('POST', 'identity', '/projects', {'project': {'name': name, 'domain_id': 'default'}})['project']['id']
    service_project, demo, test = project('service'), project('demo'), project('test')
    people = [(name, service_project, ('admin', 'service')) for name in ('nova', 'placement', 'glance')]
    for name, where, wanted in people + [('demo', demo, ('member',)), ('test', test, ('admin', 'member'))]:
        user = {'name': name, 'domain_id': 'default', 'password': PASSWORD, 'default_project_id': where}
        user = must('POST', 'identity', '/users', {'user': user})['user']['id']
        for role in wanted:
            must('PUT', 'identity', '/projects/%s/users/%s/roles/%s' % (where, user, roles[role]))
    for kind, name in (('compute', 'nova'), ('placement', 'placement'), ('image', 'glance'), ('network', 'neutron')):
        service = must('POST', 'identity', '/services', {'service': {'type': kind, 'name': name}})['service']['id']
        for interface in ('public', 'internal', 'admin'):
            url = ENDPOINTS[kind]
            if interface == 'public':
                url = url.replace('127.0.0.1', command['populate'])
            endpoint = {'service_id': service, 'interface': interface, 'url': url, 'region_id': 'RegionOne'}
            must('POST', 'identity', '/endpoints', {'endpoint': endpoint})
    return {}


def furnish(_):
    """What every test needs: flavors, and an image."""
    for flavor in ({'id': '1', 'name': 'tiny', 'ram': 64, 'vcpus': 1, 'disk': 0},
                   {'id': '2', 'name': 'small', 'ram': 512, 'vcpus': 1, 'disk': 1}):
        must('POST', 'compute', '/flavors', {'flavor': flavor})
    return image({'image': 'cirros'})


def image(command):
    """An image of half a kilobyte, ready to be booted."""
    made = {'name': command['image'], 'disk_format': 'raw', 'container_format': 'bare', 'visibility': 'public'}
    id = must('POST', 'image', '/v2/images', made)['id']
    headers = {'X-Auth-Token': token(), 'Content-Type': 'application/octet-stream'}
    upload = urllib.request.Request('%s/v2/images/%s/file' % (ENDPOINTS['image'], id), method='PUT', data=b'\0' * 512, headers=headers)
    urllib.request.urlopen(upload, timeout=60).close()
    return {'id': id}


HANDLERS = {'preload': preload, 'wait': wait, 'listens': listens, 'stop': stop, 'tell': tell, 'alive': alive, 'api': api,
            'login': lambda command: {'token': login(*command['login'])}, 'probe': probe,
            'populate': populate, 'furnish': furnish, 'image': image}


def main():
    if sys.argv[1:]:
        sys.exit(become(json.loads(sys.argv[1])))
    print(json.dumps({'ready': os.getpid()}), flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        handler = next((HANDLERS[key] for key in HANDLERS if key in command), start)
        try:
            answer = handler(command)
        except Exception as error:
            answer = {'error': '%s: %s' % (type(error).__name__, error)}
        print(json.dumps(answer), flush=True)


if __name__ == '__main__':
    main()
