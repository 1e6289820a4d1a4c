//! Logging in, and staying so.

use cobalt_openstack::{Cloud, NovaClient, OpenStack, TestBed};
use cobalt_sim::Region;

use super::{Served, quick};

const LOGIN: &str = "POST /identity/v3/auth/tokens";

async fn served() -> Served {
    Served::start(Region::builder().hosts(2).build()).await
}

#[tokio::test]
async fn a_revoked_token_is_replaced_once_and_nobody_notices() {
    let served = served().await;
    let nova = served.connect().await.nova();
    assert_eq!(nova.services().await.unwrap().len(), 2);
    served.api.revoke_tokens();
    assert_eq!(nova.services().await.unwrap().len(), 2);
    assert_eq!(nova.services().await.unwrap().len(), 2);
    let counters = served.api.counters();
    assert_eq!((counters.of(LOGIN), counters.of("GET /compute/v2.1/os-services")), (2, 4));
}

#[tokio::test]
async fn only_the_right_password_opens_where_one_is_set() {
    let served = served().await;
    served.api.set_user("me", "it's a secret");
    assert!(served.connect().await.nova().services().await.is_ok(), "our own variables say it");
    let mut vars = served.api.environment(served.address);
    for (name, value) in &mut vars {
        if name == "OS_PASSWORD" {
            "another".clone_into(value);
        }
    }
    let wrong = OpenStack::connect_with(&Cloud::from_vars(vars).unwrap(), quick(), None).await.unwrap_err();
    assert_eq!(wrong.category(), "denied");
}

#[tokio::test]
async fn an_application_credential_opens_too() {
    let served = served().await;
    served.api.set_user("app-id", "app-secret");
    let at = |path: &str, id: &str| {
        Cloud::from_vars([
            ("OS_AUTH_URL", format!("http://{}{path}", served.address)),
            ("OS_AUTH_TYPE", "v3applicationcredential".into()),
            ("OS_APPLICATION_CREDENTIAL_ID", id.to_owned()),
            ("OS_APPLICATION_CREDENTIAL_SECRET", "app-secret".into()),
        ])
        .unwrap()
    };
    for path in ["", "/v3", "/identity", "/identity/v3"] {
        let openstack = OpenStack::connect_with(&at(path, "app-id"), quick(), None).await.unwrap();
        assert!(openstack.nova().services().await.is_ok(), "{path}");
    }
    let stranger = OpenStack::connect_with(&at("", "other"), quick(), None).await.unwrap_err();
    assert_eq!(stranger.category(), "denied");
}

#[tokio::test]
async fn the_catalog_has_what_was_set_and_all_interfaces() {
    let served = served().await;
    served.api.set_region_name("west");
    for interface in ["public", "internal", "admin"] {
        let mut vars = served.api.environment(served.address);
        vars.push(("OS_INTERFACE".into(), interface.into()));
        let cloud = Cloud::from_vars(vars).unwrap();
        assert_eq!(cloud.region(), Some("west"));
        let openstack = OpenStack::connect_with(&cloud, quick(), None).await.unwrap();
        assert!(openstack.test_bed().image_named("cirros").await.is_ok());
    }
}
