//! Who may speak to the server, and what it says about itself.

use http::Method;
use serde_json::json;

use crate::conformance::check::{
    Check, Mismatch,
    Need::{UnknownToken, Unprivileged},
    Verdict, check, ensure,
};
use crate::conformance::exchange::{Exchange, JSON};
use crate::conformance::target::Identity;
use crate::conformance::world::World;

pub(super) const CHECKS: fn() -> Vec<Check> = || {
    vec![
        check!("unknown-token", "bad token: 401 Unauthorized", unknown_token, needs UnknownToken),
        check!("no-rights", "no rights: 403 Forbidden with user, verb, resource, namespace", no_rights, needs Unprivileged),
        check!("no-rights-write", "no rights: a write changes nothing", no_rights_write, needs Unprivileged),
        check!("rbac-grant", "a Role and its RoleBinding grant what they say, where they say", rbac_grant, needs Unprivileged),
        check!("version", "/version: major, minor, gitVersion", version),
        check!("health", "/healthz, /livez, /readyz: ok", health),
        check!("discovery", "/api, /apis and the group's version list the resources", discovery),
    ]
};

async fn unknown_token(world: &World) -> Verdict {
    let client = world.unknown_token.as_ref().ok_or_else(|| Mismatch::new("a client", "none"))?;
    let answer = Exchange::new(client, Method::GET, world.widgets()).send().await?;
    answer.code(401)?.reason("Unauthorized")?.message("Unauthorized")?;
    Ok(())
}

fn unprivileged(world: &World) -> Result<&Identity, Mismatch> {
    world.unprivileged.as_ref().ok_or_else(|| Mismatch::new("an identity", "none"))
}

async fn no_rights(world: &World) -> Verdict {
    let Identity { user, client } = unprivileged(world)?;
    let (group, namespace) = (&world.group, &world.namespace);
    let list = Exchange::new(client, Method::GET, world.widgets()).send().await?;
    list.code(403)?.reason("Forbidden")?.message(&format!(
        "widgets.{group} is forbidden: User \"{user}\" cannot list resource \"widgets\" in API group \"{group}\" \
         in the namespace \"{namespace}\""
    ))?;
    let get = Exchange::new(client, Method::GET, world.widget("x")).send().await?;
    get.code(403)?.message(&format!(
        "widgets.{group} \"x\" is forbidden: User \"{user}\" cannot get resource \"widgets\" in API group \"{group}\" \
         in the namespace \"{namespace}\""
    ))?;
    let nodes = Exchange::new(client, Method::GET, "/api/v1/nodes").send().await?;
    nodes.code(403)?.message(&format!(
        "nodes is forbidden: User \"{user}\" cannot list resource \"nodes\" in API group \"\" at the cluster scope"
    ))?;
    Ok(())
}

async fn no_rights_write(world: &World) -> Verdict {
    let Identity { client, .. } = unprivileged(world)?;
    world.create("guarded", json!({"num": 1})).await?;
    let post = Exchange::new(client, Method::POST, world.widgets());
    post.body(JSON, &world.body("intruder", json!({}))).send().await?.code(403)?;
    Exchange::new(client, Method::DELETE, world.widget("guarded")).send().await?.code(403)?;
    world.get(&world.widget("guarded")).await?.code(200)?;
    world.get(&world.widget("intruder")).await?.code(404)?;
    Ok(())
}

async fn rbac_grant(world: &World) -> Verdict {
    let Identity { user, client } = unprivileged(world)?;
    let namespace = world.own_namespace("granted").await?;
    let rbac = format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}");
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [world.group], "resources": ["widgets"], "verbs": ["get", "list"]}],
    });
    world.post(&format!("{rbac}/roles"), &role).await?.code(201)?;
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    });
    world.post(&format!("{rbac}/rolebindings"), &binding).await?.code(201)?;
    let there = world.widgets_in(&namespace);
    // The authorizer learns of the binding through its own watch.
    let mut granted = 403;
    for _ in 0..200 {
        granted = Exchange::new(client, Method::GET, there.clone()).send().await?.code;
        if granted == 200 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    ensure(granted == 200, "200 for a granted list", granted)?;
    let write = Exchange::new(client, Method::POST, there).body(JSON, &world.body("x", json!({}))).send().await?;
    write.code(403)?.says("cannot create resource \"widgets\"")?;
    Exchange::new(client, Method::GET, world.widgets()).send().await?.code(403)?;
    Ok(())
}

async fn version(world: &World) -> Verdict {
    let answer = world.get("/version").await?;
    answer.code(200)?.equals("/major", "1")?;
    let git = answer.text_at("/gitVersion")?;
    ensure(git.starts_with("v1."), "gitVersion v1.…", git)
}

async fn health(world: &World) -> Verdict {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = world.get(path).await?;
        answer.code(200)?;
        ensure(answer.text == "ok", format!("{path}: ok"), &answer.text)?;
    }
    Ok(())
}

async fn discovery(world: &World) -> Verdict {
    let core = world.get("/api").await?;
    core.code(200)?.equals("/kind", "APIVersions")?.equals("/versions", json!(["v1"]))?;
    // Discovery of a new group may follow a moment after the resource itself.
    let listed = |answer: &crate::conformance::exchange::Answer| answer.text.contains(&world.group);
    let groups = world.until("/apis", "the group of the widgets", listed).await?;
    groups.equals("/kind", "APIGroupList")?;
    let version = world.get(&format!("/apis/{}/v1", world.group)).await?;
    version.code(200)?.equals("/kind", "APIResourceList")?;
    let resources = version.at("/resources").as_array().cloned().unwrap_or_default();
    for name in ["widgets", "widgets/status"] {
        let resource = resources.iter().find(|resource| resource["name"] == name);
        let resource = resource.ok_or_else(|| Mismatch::new(format!("the resource {name}"), &version))?;
        ensure(resource["kind"] == "Widget" && resource["namespaced"] == true, "a namespaced Widget", resource)?;
    }
    let core = world.get("/api/v1").await?;
    core.code(200)?;
    for name in ["nodes", "nodes/status", "pods", "secrets", "configmaps", "events", "namespaces"] {
        ensure(core.text.contains(&format!("\"name\":\"{name}\"")), format!("the core resource {name}"), &core)?;
    }
    Ok(())
}
