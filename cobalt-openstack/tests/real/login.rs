//! Logging in to a real Keystone, and staying in while it has trouble.

use cobalt_core::nova::{NovaClient, PlacementClient};
use cobalt_openstack::{Cloud, OpenStack};
use cobalt_rig::{Account, ControlService};
use serde_json::json;

use super::rig::{HOSTS, Turn, aside, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_keystone_and_a_revoked_token_are_not_noticed_by_callers() {
    let test = "a_restarted_keystone_and_a_revoked_token_are_not_noticed_by_callers";
    let Some(turn) = tokio::task::block_in_place(|| Turn::wait(test)) else { return };
    let openstack = turn.connect().await;
    assert!(openstack.nova().services().await.unwrap().len() >= HOSTS.len());

    aside(turn.plane(), |plane| plane.revoke_tokens(Account::Operator)).await;
    openstack.placement().providers().await.unwrap();

    aside(turn.plane(), |plane| plane.restart(ControlService::Keystone)).await;
    // Services ask Keystone about our token, so calls fail until it is back; each says that time will help.
    until("Nova to answer again", || async {
        match openstack.nova().aggregates().await {
            Ok(_) => true,
            Err(error) => {
                assert!(error.is_transient(), "{error:?}");
                false
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn application_credentials_by_id_and_by_name_let_us_in() {
    let test = "application_credentials_by_id_and_by_name_let_us_in";
    let Some(turn) = tokio::task::block_in_place(|| Turn::wait(test)) else { return };
    let (_, users) = aside(turn.plane(), |plane| plane.api("GET", "identity", "/users?name=admin", None)).await;
    let user = users["users"][0]["id"].as_str().unwrap().to_owned();
    let path = format!("/users/{user}/application_credentials");
    let (status, made) = aside(turn.plane(), move |plane| {
        let wanted = json!({"application_credential": {"name": "cobalt", "secret": "not a password"}});
        plane.api("POST", "identity", &path, Some(&wanted))
    })
    .await;
    assert_eq!(status, 201, "{made}");
    let id = made["application_credential"]["id"].as_str().unwrap();
    let (url, secret) = (turn.plane().auth_url(), "not a password");
    let common =
        [("OS_AUTH_URL", url.as_str()), ("OS_APPLICATION_CREDENTIAL_SECRET", secret), ("OS_REGION_NAME", "RegionOne")];
    let by_id = [("OS_APPLICATION_CREDENTIAL_ID", id)];
    let by_name =
        [("OS_APPLICATION_CREDENTIAL_NAME", "cobalt"), ("OS_USERNAME", "admin"), ("OS_USER_DOMAIN_NAME", "Default")];
    for own in [&by_id[..], &by_name[..]] {
        let cloud = Cloud::from_vars(common.iter().chain(own).copied()).unwrap();
        let openstack = OpenStack::connect(&cloud).await.unwrap();
        assert!(!openstack.nova().services().await.unwrap().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_is_denied_and_a_wrong_password_too() {
    let test = "a_user_without_rights_is_denied_and_a_wrong_password_too";
    let Some(turn) = tokio::task::block_in_place(|| Turn::wait(test)) else { return };
    let customer = Cloud::from_vars(turn.plane().environment_of(Account::Customer)).unwrap();
    let demo = OpenStack::connect(&customer).await.unwrap();
    assert_eq!(demo.nova().services().await.unwrap_err().category(), "denied");
    assert_eq!(demo.placement().providers().await.unwrap_err().category(), "denied");
    let mut variables = turn.plane().environment();
    variables.insert("OS_PASSWORD".into(), "wrong".into());
    let error = OpenStack::connect(&Cloud::from_vars(variables).unwrap()).await.unwrap_err();
    assert_eq!(error.category(), "denied");
}
