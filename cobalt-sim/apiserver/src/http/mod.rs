//! The HTTP face of the server: transports, routing, encoding.

mod body;
pub(crate) mod decode;
mod page;
mod params;
mod protobuf;
mod response;
mod route;
mod serve;
mod service;
mod yaml;

pub use body::{Cut, ResponseBody};
pub(crate) use page::{Page, Validator, accepted, tag};
pub(crate) use params::{FieldValidation, Form, Params, content_type, dry_run, user_agent};
pub(crate) use serve::serve;
pub use service::{ApiService, ServiceError};
