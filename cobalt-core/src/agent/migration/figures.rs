//! A job's figures as a Migration has them: as texts for people, in the spelling that was always there, and as numbers.

use std::time::Duration;

use crate::{
    api::{MigrationProgress, MigrationStatus},
    backend::{Job, JobOperation, JobOutcome},
};

/// Writes the figures of a job into a status. What the driver did not tell is left out.
pub(super) fn write(job: &Job, status: &mut MigrationStatus) {
    status.type_ = Some(outcome(job.outcome).to_owned());
    status.operation = Some(operation(job.operation).to_owned());
    status.err_msg.clone_from(&job.error);
    status.auto_converge_throttle = job.auto_converge_throttle.map(|percent| format!("{percent}%"));
    status.time_elapsed = job.elapsed.map(duration);
    status.time_remaining = job.remaining.map(duration);
    status.setup_time = job.setup.map(duration);
    status.downtime = job.downtime.map(duration);
    status.data_total = job.data.total.map(bytes);
    status.data_processed = job.data.processed.map(bytes);
    status.data_remaining = job.data.remaining.map(bytes);
    status.mem_total = job.memory.total.map(bytes);
    status.mem_processed = job.memory.processed.map(bytes);
    status.mem_remaining = job.memory.remaining.map(bytes);
    status.mem_bps = job.memory_bps.map(rate);
    status.mem_dirty_rate = job.memory_dirty_rate.map(|pages| format!("{pages}/s"));
    status.mem_page_size = job.memory_page_size.map(bytes);
    status.mem_normal_bytes = job.memory_normal_bytes.map(bytes);
    status.mem_normal = job.memory_normal.map(number);
    status.mem_constant = job.memory_constant.map(number);
    status.mem_iteration = job.memory_iteration.map(number);
    status.mem_postcopy_requests = job.memory_postcopy_requests.map(number);
    status.disk_total = job.disk.total.map(bytes);
    status.disk_processed = job.disk.processed.map(bytes);
    status.disk_remaining = job.disk.remaining.map(bytes);
    status.disk_bps = job.disk_bps.map(rate);
    let progress = progress(job);
    status.progress = (progress != MigrationProgress::default()).then_some(progress);
}

fn progress(job: &Job) -> MigrationProgress {
    let millis = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
    MigrationProgress {
        elapsed_ms: job.elapsed.map(millis),
        remaining_ms: job.remaining.map(millis),
        setup_ms: job.setup.map(millis),
        downtime_ms: job.downtime.map(millis),
        data_total_bytes: job.data.total.map(number),
        data_processed_bytes: job.data.processed.map(number),
        data_remaining_bytes: job.data.remaining.map(number),
        mem_total_bytes: job.memory.total.map(number),
        mem_processed_bytes: job.memory.processed.map(number),
        mem_remaining_bytes: job.memory.remaining.map(number),
        mem_bytes_per_second: job.memory_bps.map(number),
        mem_dirty_pages_per_second: job.memory_dirty_rate.map(number),
        mem_page_bytes: job.memory_page_size.map(number),
        disk_total_bytes: job.disk.total.map(number),
        disk_processed_bytes: job.disk.processed.map(number),
        disk_remaining_bytes: job.disk.remaining.map(number),
        disk_bytes_per_second: job.disk_bps.map(number),
        throttle_percent: job.auto_converge_throttle.map(|percent| i32::try_from(percent).unwrap_or(i32::MAX)),
    }
}

/// Foreign numbers: what does not fit is very large.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn outcome(outcome: JobOutcome) -> &'static str {
    match outcome {
        JobOutcome::Running => "bounded",
        JobOutcome::RunningUnbounded => "unbounded",
        JobOutcome::Completed => "completed",
        JobOutcome::Failed => "failed",
        JobOutcome::Cancelled => "cancelled",
    }
}

fn operation(operation: JobOperation) -> &'static str {
    match operation {
        JobOperation::Unknown => "unknown",
        JobOperation::Start => "start",
        JobOperation::Save => "save",
        JobOperation::Restore => "restore",
        JobOperation::MigrationIn => "migration_in",
        JobOperation::MigrationOut => "migration_out",
        JobOperation::Snapshot => "snapshot",
        JobOperation::SnapshotRevert => "snapshot_revert",
        JobOperation::SnapshotDelete => "snapshot_delete",
        JobOperation::Dump => "dump",
        JobOperation::Backup => "backup",
    }
}

/// `161ms`, `2.755s`, `1m30s`, `1h0m0.5s`.
fn duration(time: Duration) -> String {
    let millis = time.as_millis();
    if millis == 0 {
        return "0s".into();
    }
    if millis < 1000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let (hours, minutes) = (minutes / 60, minutes % 60);
    let mut seconds = (rest / 1000).to_string();
    if rest % 1000 != 0 {
        let fraction = format!("{:03}", rest % 1000);
        seconds = format!("{seconds}.{}", fraction.trim_end_matches('0'));
    }
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, minutes) => format!("{minutes}m{seconds}s"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// `10 B`, `4.0 GiB`.
fn bytes(amount: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if amount < 1024 {
        return format!("{amount} B");
    }
    // In tenths, rounded, so that no float decides about a digit.
    let mut unit = 0;
    let mut size: u128 = 1024;
    while unit + 1 < UNITS.len() && u128::from(amount) * 10 + size / 2 >= size * 10240 {
        size *= 1024;
        unit += 1;
    }
    let tenths = (u128::from(amount) * 10 + size / 2) / size;
    format!("{}.{} {}", tenths / 10, tenths % 10, UNITS[unit])
}

fn rate(per_second: u64) -> String {
    format!("{}/s", bytes(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_spelled_as_they_always_were() {
        for (millis, text) in [
            (0, "0s"),
            (161, "161ms"),
            (1000, "1s"),
            (2755, "2.755s"),
            (2500, "2.5s"),
            (90_000, "1m30s"),
            (3_600_500, "1h0m0.5s"),
            (3_723_004, "1h2m3.004s"),
        ] {
            assert_eq!(duration(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn sizes_are_spelled_as_they_always_were() {
        for (amount, text) in [
            (0, "0 B"),
            (10, "10 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (4 << 30, "4.0 GiB"),
            (17_301_504, "16.5 MiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(bytes(amount), text);
        }
        assert_eq!(rate(17_301_504), "16.5 MiB/s");
    }

    #[test]
    fn a_job_of_which_nothing_is_known_has_no_figures() {
        let mut status = MigrationStatus::default();
        write(&Job::default(), &mut status);
        let bare = MigrationStatus {
            type_: Some("bounded".into()),
            operation: Some("unknown".into()),
            ..MigrationStatus::default()
        };
        assert_eq!(status, bare);
    }
}
