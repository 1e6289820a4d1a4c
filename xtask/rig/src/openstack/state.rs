//! The databases and the broker: brought from a copy, or filled once.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use serde_json::json;

use super::config::{self, Layout, words};
use super::launcher::{Launcher, Pid};
use super::venv::Venv;
use super::{Account, ControlService, copy};
use crate::error::{Error, Result, create};
use crate::namespace::Namespace;
use crate::process;

/// Another recipe, another copy: to be changed with what [`fill`] makes.
pub(super) const RECIPE: &str = "2";

/// The host in the public endpoints of a copy. Each rig writes its own address over it.
const PLACEHOLDER: &str = "rig.invalid";

const DATABASES: [&str; 6] = ["keystone", "placement", "glance", "nova_api", "nova_cell0", "nova"];

const START_LIMIT: Duration = Duration::from_secs(180);

/// The database runs afterwards and has everything; the broker is on its way.
pub(super) fn bring(launcher: &Launcher, venv: &Venv, layout: &Layout) -> Result<Pid> {
    let broker = start_broker(launcher, layout)?;
    let cache = venv.cache();
    create(cache.parent().unwrap_or(&cache))?;
    let lock = cache.with_extension("lock");
    let lock = File::create(&lock).map_err(Error::io(format!("open {}", lock.display())))?;
    // Of two rigs that start at once, the second waits for the first one's copy.
    lock.lock().map_err(Error::io(format!("lock {}", cache.display())))?;
    if cache.exists() {
        std::fs::remove_dir_all(layout.state()).map_err(Error::io("clear the state"))?;
        copy(&cache, &layout.state())?;
    } else {
        // All of Nova's own tools are forks of the launcher too.
        launcher.preload()?;
        fill(launcher, layout)?;
        let part = cache.with_extension(format!("{}.part", std::process::id()));
        let _ = std::fs::remove_dir_all(&part);
        copy(&layout.state(), &part)?;
        std::fs::rename(&part, &cache).map_err(Error::io(format!("make {}", cache.display())))?;
    }
    drop(lock);
    start_database(launcher, layout)?;
    Ok(broker)
}

pub(super) fn wait_for_broker(launcher: &Launcher, layout: &Layout, broker: Pid) -> Result<()> {
    let ready = || launcher.listens(5672) || !launcher.is_alive(broker);
    process::wait_until("RabbitMQ listening", START_LIMIT, ready)?;
    if launcher.is_alive(broker) {
        return Ok(());
    }
    let said = std::fs::read_to_string(layout.logs().join("rabbitmq.log")).unwrap_or_default();
    Err(Error::Failed { command: "rabbitmq-server".to_owned(), said })
}

/// Writes the rig's address into the public endpoints.
pub(super) fn publish(layout: &Layout, namespace: &Namespace, address: &str) -> Result<()> {
    let statement = format!("UPDATE endpoint SET url = REPLACE(url, '{PLACEHOLDER}', '{address}')");
    sql(layout, namespace, "keystone", &statement)
}

fn sql(layout: &Layout, namespace: &Namespace, database: &str, statement: &str) -> Result<()> {
    let socket = format!("--socket={}", layout.socket());
    namespace.run(["mariadb", "--no-defaults", "--user=root", &socket, "--execute", statement, database]).map(drop)
}

fn start_broker(launcher: &Launcher, layout: &Layout) -> Result<Pid> {
    let directory = layout.directory.join("rabbit");
    create(&directory)?;
    config::write_broker(&directory)?;
    let env = json!({
        "HOME": directory,
        "RABBITMQ_NODENAME": "rabbit@localhost",
        "RABBITMQ_MNESIA_BASE": directory,
        "RABBITMQ_LOG_BASE": layout.logs(),
        "RABBITMQ_ENABLED_PLUGINS_FILE": directory.join("enabled_plugins"),
        "RABBITMQ_CONFIG_FILE": directory.join("rabbitmq"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none",
    });
    let log = layout.logs().join("rabbitmq.log");
    launcher.exec(&words(["/usr/lib/rabbitmq/bin/rabbitmq-server"]), &env, &log)
}

fn start_database(launcher: &Launcher, layout: &Layout) -> Result<Pid> {
    let data = layout.state().join("mysql");
    let (data, socket) = (format!("--datadir={}", data.display()), format!("--socket={}", layout.socket()));
    let command = words([
        "mariadbd",
        "--no-defaults",
        "--user=root",
        &data,
        &socket,
        "--bind-address=127.0.0.1",
        "--innodb-buffer-pool-size=64M",
        "--innodb-log-file-size=8M",
        "--innodb-flush-log-at-trx-commit=0",
        "--innodb-flush-method=nosync",
        "--performance-schema=OFF",
        "--skip-log-bin",
        "--max-connections=500",
        "--character-set-server=utf8",
    ]);
    let log = layout.logs().join("mariadb.log");
    let pid = launcher.exec(&command, &json!({}), &log)?;
    let ready = || Path::new(&layout.socket()).exists() || !launcher.is_alive(pid);
    process::wait_until("MariaDB listening", START_LIMIT, ready)?;
    if launcher.is_alive(pid) {
        return Ok(pid);
    }
    let said = std::fs::read_to_string(&log).unwrap_or_default();
    let said = said.lines().filter(|line| line.contains("ERROR")).collect::<Vec<_>>().join("\n");
    Err(Error::Failed { command: "mariadbd".to_owned(), said })
}

/// Makes all databases from nothing and leaves them in the state directory, at rest.
fn fill(launcher: &Launcher, layout: &Layout) -> Result<()> {
    let log = layout.logs().join("setup.log");
    let none = json!({});
    let data = format!("--datadir={}", layout.state().join("mysql").display());
    let install = words([
        "mariadb-install-db",
        "--no-defaults",
        "--user=root",
        &data,
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
    ]);
    launcher.finish("mariadb-install-db", launcher.exec(&install, &none, &log)?, &log)?;
    let database = start_database(launcher, layout)?;
    let user = format!("os@'127.0.0.1' IDENTIFIED BY '{}'", config::PASSWORD);
    let make = |name: &str| format!("CREATE DATABASE {name}; GRANT ALL ON {name}.* TO {user};");
    let statements = DATABASES.map(make).concat();
    let socket = format!("--socket={}", layout.socket());
    let client = words(["mariadb", "--no-defaults", "--user=root", &socket, "--execute", &statements]);
    launcher.finish("making the databases", launcher.exec(&client, &none, &log)?, &log)?;

    let keystone = format!("--config-file={}", layout.config("keystone").join("keystone.conf").display());
    let keystone_manage = |arguments: &[&str]| {
        let command = words(["keystone-manage", &keystone].into_iter().chain(arguments.iter().copied()));
        launcher.call("keystone.cmd.manage:main", &command, &none, &log)
    };
    let nova = layout.nova("control");
    let nova_manage = |arguments: &[&str]| {
        let command = words(["nova-manage", "--config-file", &nova].into_iter().chain(arguments.iter().copied()));
        launcher.call("nova.cmd.manage:main", &command, &none, &log)
    };
    let owner = ["--keystone-user", "root", "--keystone-group", "root"];
    // Two at a time: there are not more cores than that.
    let first = keystone_manage(&["db_sync"])?;
    let other = nova_manage(&["api_db", "sync"])?;
    launcher.finish("keystone-manage db_sync", first, &log)?;
    for keys in ["fernet_setup", "credential_setup"] {
        launcher.finish(keys, keystone_manage(&[&[keys], &owner[..]].concat())?, &log)?;
    }
    let placement = format!("--config-file={}", layout.config("placement").join("placement.conf").display());
    let command = words(["placement-manage", &placement, "db", "sync"]);
    let placement = launcher.call("placement.cmd.manage:main", &command, &none, &log)?;
    launcher.finish("nova-manage api_db sync", other, &log)?;
    let map = nova_manage(&["cell_v2", "map_cell0", "--database_connection", &config::database("nova_cell0")])?;
    launcher.finish("nova-manage map_cell0", map, &log)?;
    let (connection, transport) = (config::database("nova"), config::TRANSPORT);
    let cell = [
        "cell_v2",
        "create_cell",
        "--name",
        "cell1",
        "--database_connection",
        &connection,
        "--transport-url",
        transport,
    ];
    launcher.finish("nova-manage create_cell", nova_manage(&cell)?, &log)?;
    launcher.finish("placement-manage db sync", placement, &log)?;
    let nova_sync = nova_manage(&["db", "sync"])?;
    let glance = format!("--config-file={}", layout.config("glance").join("glance-api.conf").display());
    let command = words(["glance-manage", &glance, "db_sync"]);
    let glance = launcher.call("glance.cmd.manage:main", &command, &none, &log)?;

    let (public, internal) = (format!("http://{PLACEHOLDER}:5000/v3"), "http://127.0.0.1:5000/v3");
    let bootstrap = [
        "bootstrap",
        "--bootstrap-password",
        config::PASSWORD,
        "--bootstrap-admin-url",
        internal,
        "--bootstrap-internal-url",
        internal,
        "--bootstrap-public-url",
        &public,
        "--bootstrap-region-id",
        "RegionOne",
    ];
    launcher.finish("keystone-manage bootstrap", keystone_manage(&bootstrap)?, &log)?;
    let server = launcher.start_control(ControlService::Keystone, layout)?;
    let answers = || {
        let answer = launcher.api_as(Account::Operator, "GET", "identity", "", None);
        answer.is_ok_and(|(status, _)| status == 200)
    };
    process::wait_until("Keystone answering", START_LIMIT, answers)?;
    launcher.populate(PLACEHOLDER)?;
    launcher.kill(server)?;
    launcher.finish("nova-manage db sync", nova_sync, &log)?;
    launcher.finish("glance-manage db_sync", glance, &log)?;
    launcher.terminate(database)?;
    process::wait_until("the end of MariaDB", START_LIMIT, || !Path::new(&layout.socket()).exists())
}
