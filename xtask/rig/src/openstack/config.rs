//! The files that the services read.

use std::path::{Path, PathBuf};

use super::venv::Venv;
use crate::error::{Result, create, write};

pub(super) const PASSWORD: &str = "secret";
pub(super) const TRANSPORT: &str = "rabbit://guest:guest@127.0.0.1:5672/";

/// A command line.
pub(super) fn words<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

pub(super) fn database(name: &str) -> String {
    format!("mysql+pymysql://os:{PASSWORD}@127.0.0.1:3306/{name}?charset=utf8")
}

/// Where everything lies.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) directory: PathBuf,
}

impl Layout {
    pub(super) fn logs(&self) -> PathBuf {
        self.directory.join("logs")
    }

    /// What a copy is made of: databases and keys.
    pub(super) fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    pub(super) fn socket(&self) -> String {
        self.directory.join("mariadb.sock").display().to_string()
    }

    pub(super) fn config(&self, service: &str) -> PathBuf {
        self.directory.join("etc").join(service)
    }

    /// Nova's file for the control plane (`control`) or for a compute.
    pub(super) fn nova(&self, name: &str) -> String {
        self.config(name).join("nova.conf").display().to_string()
    }

    /// What a compute keeps, and its switches.
    pub(super) fn compute(&self, name: &str) -> PathBuf {
        self.directory.join("computes").join(name)
    }

    /// Everything but the computes.
    pub(super) fn write_control(&self, venv: &Venv) -> Result<()> {
        for directory in [self.logs(), self.state().join("mysql"), self.directory.join("images")] {
            create(&directory)?;
        }
        let files = [
            ("keystone", "keystone.conf", self.keystone()),
            ("placement", "placement.conf", self.placement()),
            ("glance", "glance-api.conf", self.glance()),
            ("control", "nova.conf", self.nova_conf("control")),
        ];
        for (service, name, text) in files {
            let directory = self.config(service);
            create(&directory)?;
            write(&directory.join(name), text)?;
        }
        // The pipelines of requests come with the packages.
        venv.copy_etc("nova/api-paste.ini", &self.config("control"))?;
        venv.copy_etc("glance/glance-api-paste.ini", &self.config("glance"))?;
        create(&self.compute("control"))
    }

    pub(super) fn write_compute(&self, name: &str) -> Result<()> {
        let directory = self.compute(name);
        create(&directory.join("instances"))?;
        // A compute knows by this file that it is the one it was before.
        write(&directory.join("compute_id"), format!("{}\n", crate::guest::Guest::new(name).uuid()))?;
        create(&self.config(name))?;
        write(&self.config(name).join("nova.conf"), self.nova_conf(name))
    }

    fn keystone(&self) -> String {
        let keys = self.state();
        let keys = keys.display();
        format!(
            "[DEFAULT]\nlog_file = {logs}/keystone-api.log\n[database]\nconnection = {database}\nmax_pool_size = 5\n\
             [fernet_tokens]\nkey_repository = {keys}/fernet\n[fernet_receipts]\nkey_repository = {keys}/fernet\n\
             [credential]\nkey_repository = {keys}/credential\n[token]\nprovider = fernet\nexpiration = 86400\n\
             [cache]\nenabled = true\nbackend = dogpile.cache.memory\n",
            logs = self.logs().display(),
            database = database("keystone"),
        )
    }

    fn placement(&self) -> String {
        format!(
            "[DEFAULT]\nlog_file = {}/placement-api.log\n[placement_database]\nconnection = {}\nmax_pool_size = 5\n\
             [api]\nauth_strategy = keystone\n{}",
            self.logs().display(),
            database("placement"),
            authtoken("placement"),
        )
    }

    fn glance(&self) -> String {
        format!(
            "[DEFAULT]\nlog_file = {logs}/glance-api.log\nenabled_backends = fs:file\n[glance_store]\n\
             default_backend = fs\n[fs]\nfilesystem_store_datadir = {directory}/images\n[database]\n\
             connection = {database}\nmax_pool_size = 5\n[paste_deploy]\nflavor = keystone\nconfig_file = \
             {config}/glance-api-paste.ini\n[oslo_concurrency]\nlock_path = {directory}/images\n{auth}",
            logs = self.logs().display(),
            directory = self.directory.display(),
            database = database("glance"),
            config = self.config("glance").display(),
            auth = authtoken("glance"),
        )
    }

    fn nova_conf(&self, host: &str) -> String {
        let directory = self.compute(host);
        let state = directory.display();
        let user = |name: &str| login(name, "http://127.0.0.1:5000/v3");
        format!(
            "[DEFAULT]\nhost = {host}\nmy_ip = 127.0.0.1\nstate_path = {state}\ntransport_url = {TRANSPORT}\n\
             compute_driver = cobalt.CobaltDriver\nreport_interval = 3\nservice_down_time = 30\n\
             graceful_shutdown_timeout = 10\nmanager_shutdown_timeout = 5\n\
             heal_instance_info_cache_interval = -1\nsync_power_state_interval = -1\n\
             running_deleted_instance_poll_interval = 0\nupdate_resources_interval = 10\n\
             vif_plugging_is_fatal = false\nvif_plugging_timeout = 0\nmax_concurrent_live_migrations = 8\n\
             max_concurrent_builds = 8\n\
             [api]\nauth_strategy = keystone\n\
             [wsgi]\napi_paste_config = {paste}/api-paste.ini\n\
             [database]\nconnection = {nova}\nmax_pool_size = 5\n\
             [api_database]\nconnection = {nova_api}\nmax_pool_size = 5\n\
             [quota]\ninstances = -1\ncores = -1\nram = -1\nserver_groups = -1\n\
             [scheduler]\nworkers = 1\ndiscover_hosts_in_cells_interval = 2\n\
             [conductor]\nworkers = 1\n\
             [filter_scheduler]\ntrack_instance_changes = false\n\
             [placement]\nvalid_interfaces = internal\nregion_name = RegionOne\n{placement}\
             [service_user]\nsend_service_user_token = true\n{service}\
             [glance]\napi_servers = http://127.0.0.1:9292\n\
             [neutron]\nvalid_interfaces = internal\nregion_name = RegionOne\n{neutron}\
             [oslo_concurrency]\nlock_path = {state}\n\
             [oslo_messaging_rabbit]\nheartbeat_in_pthread = false\n\
             [oslo_policy]\nenforce_scope = true\nenforce_new_defaults = true\n\
             [vnc]\nenabled = false\n\
             {auth}",
            paste = self.config("control").display(),
            nova = database("nova"),
            nova_api = database("nova_api"),
            placement = user("placement"),
            service = user("nova"),
            neutron = user("nova"),
            auth = authtoken("nova"),
        )
    }
}

fn login(user: &str, url: &str) -> String {
    format!(
        "auth_url = {url}\nauth_type = password\nproject_domain_name = Default\nuser_domain_name = Default\n\
         project_name = service\nusername = {user}\npassword = {PASSWORD}\n"
    )
}

fn authtoken(user: &str) -> String {
    // A token that is revoked is to be noticed soon, not after five minutes.
    let login = login(user, "http://127.0.0.1:5000");
    format!(
        "[keystone_authtoken]\nwww_authenticate_uri = http://127.0.0.1:5000\ninterface = internal\n\
         service_token_roles_required = true\ntoken_cache_time = 2\n{login}"
    )
}

pub(super) fn write_broker(directory: &Path) -> Result<()> {
    write(&directory.join("enabled_plugins"), "[].\n")?;
    let text = "loopback_users.guest = true\nlisteners.tcp.1 = 127.0.0.1:5672\ndisk_free_limit.absolute = 50MB\n\
                log.file.level = warning\n";
    write(&directory.join("rabbitmq.conf"), text)
}
