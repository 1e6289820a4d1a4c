//! Programs on simulated hosts: they start with their host, stand still with it, and die with it.

use std::{
    future::Future,
    pin::{Pin, pin},
    task::{Context, Poll},
};

use bytes::Bytes;
use cobalt_apiserver::{ApiService, ResponseBody};
use futures::{FutureExt, future::BoxFuture, stream, stream::BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use kube::client::Body;
use tokio::sync::watch;

use crate::world::{Os, Vitals};

/// Runs a program whenever its host runs, anew after each boot, until the program ends by itself.
///
/// While the host hangs the program is not polled: its timers run out, and it notices afterwards, as a process that
/// was stopped does.
pub(crate) async fn run_on<F>(mut vitals: watch::Receiver<Vitals>, mut program: impl FnMut() -> F)
where
    F: Future<Output = ()>,
{
    loop {
        let Ok(boot) = vitals.wait_for(|vitals| vitals.os == Os::Up).await.map(|vitals| vitals.boot) else { return };
        let mut end = vitals.clone();
        let dies = end.wait_for(|vitals| vitals.boot != boot || matches!(vitals.os, Os::Down | Os::Booting));
        let lives = Thawed { vitals: vitals.clone(), program: Box::pin(program()), waits: None };
        tokio::select! {
            biased;
            died = dies => if died.is_err() { return },
            () = lives => return,
        }
    }
}

/// A program that is polled only while its host does not hang.
struct Thawed<F> {
    vitals: watch::Receiver<Vitals>,
    program: Pin<Box<F>>,
    waits: Option<BoxFuture<'static, ()>>,
}

impl<F: Future<Output = ()>> Future for Thawed<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(waits) = &mut self.waits {
                if waits.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.waits = None;
            }
            if self.vitals.borrow().os != Os::Hung {
                return self.program.as_mut().poll(cx);
            }
            let mut vitals = self.vitals.clone();
            self.waits = Some(async move { drop(vitals.wait_for(|vitals| vitals.os != Os::Hung).await) }.boxed());
        }
    }
}

/// Why a request from a host did not get through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the host has no connection to the cluster")]
pub(crate) struct NoConnection;

/// The API server as a program on a host reaches it: not at all while the host is cut off.
#[derive(Debug, Clone)]
pub(crate) struct FromHost {
    pub(crate) server: ApiService,
    pub(crate) vitals: watch::Receiver<Vitals>,
}

impl tower::Service<Request<Body>> for FromHost {
    type Response = Response<StreamBody<BoxStream<'static, Result<http_body::Frame<Bytes>, NoConnection>>>>;
    type Error = NoConnection;
    type Future = BoxFuture<'static, Result<Self::Response, NoConnection>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), NoConnection>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { mut server, vitals } = self.clone();
        async move {
            if !vitals.borrow().connected {
                return Err(NoConnection);
            }
            let mut cut = vitals.clone();
            let response = tokio::select! {
                biased;
                _ = cut.wait_for(|vitals| !vitals.connected) => return Err(NoConnection),
                response = tower::Service::call(&mut server, request) => response.map_err(|_| NoConnection)?,
            };
            Ok(response.map(|body| StreamBody::new(until_cut(body, vitals))))
        }
        .boxed()
    }
}

/// The body of an answer, broken off when the host is cut off.
fn until_cut(
    body: ResponseBody,
    vitals: watch::Receiver<Vitals>,
) -> BoxStream<'static, Result<http_body::Frame<Bytes>, NoConnection>> {
    Box::pin(stream::unfold(Some((body, vitals)), |open| async {
        let (mut body, mut vitals) = open?;
        let frame = {
            let cut = pin!(vitals.wait_for(|vitals| !vitals.connected));
            tokio::select! {
                biased;
                _ = cut => Some(Err(NoConnection)),
                frame = body.frame() => frame.map(|frame| frame.map_err(|_| NoConnection)),
            }
        }?;
        let open = frame.is_ok().then_some((body, vitals));
        Some((frame, open))
    }))
}
