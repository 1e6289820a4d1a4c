//! Looks at something again and again while something else goes on.

use std::{
    sync::{Arc, Mutex, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use cobalt_rig::ControlPlane;

/// What was seen so far, by a thread that ends with this.
pub(crate) struct Sampler<T> {
    seen: Arc<Mutex<T>>,
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Default + Clone + Send + 'static> Sampler<T> {
    /// Looks at intervals. What cannot be seen at the moment is not counted.
    pub(crate) fn start(
        plane: &Arc<ControlPlane>,
        every: Duration,
        look: impl Fn(&ControlPlane, &mut T) + Send + 'static,
    ) -> Self {
        let (seen, plane) = (Arc::new(Mutex::new(T::default())), plane.clone());
        let (end, ended) = mpsc::channel();
        let filled = seen.clone();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(every) == Err(mpsc::RecvTimeoutError::Timeout) {
                let mut next = filled.lock().unwrap().clone();
                look(&plane, &mut next);
                *filled.lock().unwrap() = next;
            }
        });
        Self { seen, end: Some(end), thread: Some(thread) }
    }

    /// So far.
    pub(crate) fn seen(&self) -> T {
        self.seen.lock().unwrap().clone()
    }
}

impl<T> Drop for Sampler<T> {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
