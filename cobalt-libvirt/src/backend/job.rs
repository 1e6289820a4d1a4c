//! libvirt's jobs in the terms of the seam.

use std::time::Duration;

use cobalt_core::backend::{Job, JobOperation, JobOutcome, Progress};

use crate::{
    rpc::{JobKind, JobStats},
    typed::{TypedParams, Value},
};

/// The job in an answer; `None` if there is none.
pub(super) fn job(stats: &JobStats) -> Option<Job> {
    let outcome = match stats.kind {
        JobKind::None => return None,
        JobKind::Bounded => JobOutcome::Running,
        JobKind::Completed => JobOutcome::Completed,
        JobKind::Failed => JobOutcome::Failed,
        JobKind::Cancelled => JobOutcome::Cancelled,
        // A kind from the future is a job at least, and nobody has said that it has ended.
        _ => JobOutcome::RunningUnbounded,
    };
    Some(Job { outcome, ..figures(&stats.params) })
}

/// The job that an event tells the end of.
pub(super) fn completed(params: &TypedParams) -> Job {
    let success = params.get_bool("success").unwrap_or(true);
    let outcome = if success { JobOutcome::Completed } else { JobOutcome::Failed };
    Job { outcome, ..figures(params) }
}

/// A guest that is on its way in. libvirt refuses to tell figures on that side.
pub(super) fn arriving() -> Job {
    Job { operation: JobOperation::MigrationIn, outcome: JobOutcome::RunningUnbounded, ..Job::default() }
}

fn figures(params: &TypedParams) -> Job {
    let mut job = Job::default();
    for (name, value) in params {
        let number = value.as_u64();
        match name {
            "operation" => job.operation = operation(value),
            "time_elapsed" => job.elapsed = number.map(Duration::from_millis),
            "time_remaining" => job.remaining = number.map(Duration::from_millis),
            "downtime" => job.downtime = number.map(Duration::from_millis),
            "setup_time" => job.setup = number.map(Duration::from_millis),
            "memory_bps" => job.memory_bps = number,
            "disk_bps" => job.disk_bps = number,
            "memory_dirty_rate" => job.memory_dirty_rate = number,
            "memory_page_size" => job.memory_page_size = number,
            "memory_iteration" => job.memory_iteration = number,
            "memory_constant" => job.memory_constant = number,
            "memory_normal" => job.memory_normal = number,
            "memory_normal_bytes" => job.memory_normal_bytes = number,
            "memory_postcopy_requests" => job.memory_postcopy_requests = number,
            "auto_converge_throttle" => job.auto_converge_throttle = number.and_then(|number| number.try_into().ok()),
            "errmsg" => job.error = value.as_str().map(Into::into),
            _ => {
                if let Some((what, part)) = name.split_once('_') {
                    progress(&mut job, what, part, number);
                }
            }
        }
    }
    job
}

fn progress(job: &mut Job, what: &str, part: &str, number: Option<u64>) {
    let progress: &mut Progress = match what {
        "data" => &mut job.data,
        "memory" => &mut job.memory,
        "disk" => &mut job.disk,
        _ => return,
    };
    match part {
        "total" => progress.total = number,
        "processed" => progress.processed = number,
        "remaining" => progress.remaining = number,
        _ => {}
    }
}

fn operation(value: Value<'_>) -> JobOperation {
    match value.as_u64() {
        Some(1) => JobOperation::Start,
        Some(2) => JobOperation::Save,
        Some(3) => JobOperation::Restore,
        Some(4) => JobOperation::MigrationIn,
        Some(5) => JobOperation::MigrationOut,
        Some(6) => JobOperation::Snapshot,
        Some(7) => JobOperation::SnapshotRevert,
        Some(8) => JobOperation::Dump,
        Some(9) => JobOperation::Backup,
        Some(10) => JobOperation::SnapshotDelete,
        _ => JobOperation::Unknown,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_from_whatever_figures_there_are() {
        let params = TypedParams::builder()
            .with("operation", 5)
            .with("time_elapsed", 1500_u64)
            .with("memory_total", 100_u64)
            .with("memory_remaining", 40_u64)
            .with("memory_bps", 7_u64)
            .with("disk_processed", 3_u64)
            .with("auto_converge_throttle", 20)
            .with("errmsg", "no space")
            .with("something_new", "x")
            .build();
        let job = job(&JobStats { kind: JobKind::Bounded, params }).unwrap();
        assert_eq!((job.operation, job.outcome), (JobOperation::MigrationOut, JobOutcome::Running));
        assert_eq!(job.elapsed, Some(Duration::from_millis(1500)));
        assert_eq!(job.memory, Progress { total: Some(100), processed: None, remaining: Some(40) });
        assert_eq!((job.memory_bps, job.disk.processed), (Some(7), Some(3)));
        assert_eq!((job.auto_converge_throttle, job.error.as_deref()), (Some(20), Some("no space")));
    }

    #[test]
    fn no_job_is_none_and_an_unknown_kind_runs() {
        assert_eq!(job(&JobStats { kind: JobKind::None, params: TypedParams::default() }), None);
        let strange = job(&JobStats { kind: 99.into(), params: TypedParams::default() }).unwrap();
        assert_eq!(strange.outcome, JobOutcome::RunningUnbounded);
    }
}
