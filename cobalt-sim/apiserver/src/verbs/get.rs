//! Reading one object.

use super::list::{checked_revision, too_large};
use super::{Answer, Call, Reply};
use crate::status::ApiResult;

pub(super) fn get(call: &Call<'_>) -> ApiResult<Answer> {
    // A resourceVersion means "not older than"; the store is never behind, so only the future is an error.
    if let Some(revision) = checked_revision(call.params)? {
        too_large(call.server, revision)?;
    }
    Ok(Answer::ok(Reply::Object(call.live()?)))
}
