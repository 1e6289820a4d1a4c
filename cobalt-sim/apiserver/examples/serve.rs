//! A server on a socket, to play with: `cargo run --example serve -- 127.0.0.1:8001`, then point a client at the
//! kubeconfig it prints. Each further argument `TOKEN=USER[,GROUP...]` makes an identity and turns RBAC on.

use cobalt_apiserver::{ApiServer, Identity};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let listener = TcpListener::bind(args.next().unwrap_or_else(|| "127.0.0.1:0".to_owned())).await?;
    let mut builder = ApiServer::builder();
    let mut first_token = None;
    for identity in args {
        let (token, names) = identity.split_once('=').ok_or("expected TOKEN=USER[,GROUP...]")?;
        let mut names = names.split(',');
        let user = names.next().unwrap_or_default();
        builder = builder.rbac().token(token, Identity::new(user, names));
        first_token.get_or_insert_with(|| token.to_owned());
    }
    let server = builder.start();
    let address = listener.local_addr()?;
    let kubeconfig = match first_token {
        Some(token) => server.kubeconfig_with_token(address, &token),
        None => server.kubeconfig(address),
    };
    eprintln!("{kubeconfig}");
    server.serve(listener, std::future::pending()).await?;
    Ok(())
}
