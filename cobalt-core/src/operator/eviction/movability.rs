//! Whether a server can be moved, how, and if not, why not. The drain and the plan ask the same.
//!
//! What Nova takes, by the server's state: a live migration wants one that is active or paused, a cold one wants one that
//! is shut off (it takes active ones too, and stops them, which no drain wants). Everything else it refuses, and asking
//! would only cost attempts. A lock does not keep an administrator out, which the operator is.

use crate::{
    api::MoveKind,
    nova::{BlockMigration, Server, ServerStatus, TaskState},
};

/// What can be done with a server now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Movability {
    /// It can be asked to move.
    Ready(MoveKind),
    /// It is moving.
    Moving,
    /// It waits for a yes to an earlier move.
    ToConfirm,
    /// Something else is being done with it, and will end.
    Busy(String),
    /// It cannot be moved as it is; somebody has to do something about it.
    Not(String),
}

/// Nova's words for tasks that belong to a move.
const MOVES: [&str; 9] = [
    "resize_prep",
    "resize_migrating",
    "resize_migrated",
    "resize_finish",
    "resize_reverting",
    "resize_confirming",
    "migrating",
    "queued_for_migration",
    "updating_migration",
];

/// Whether a server takes room elsewhere when it leaves, now or when what is being done with it is over.
pub(crate) fn leaves(server: &Server, block: BlockMigration) -> bool {
    match of(server, block) {
        Movability::Ready(_) | Movability::ToConfirm => true,
        Movability::Busy(_) => server.task != Some(TaskState::Deleting),
        Movability::Moving | Movability::Not(_) => false,
    }
}

/// Looks at a server.
pub(crate) fn of(server: &Server, block: BlockMigration) -> Movability {
    match &server.task {
        Some(TaskState::Deleting) => return Movability::Busy("it is being deleted".into()),
        Some(TaskState::Migrating) => return Movability::Moving,
        Some(TaskState::Other(task)) if MOVES.contains(&task.as_str()) => return Movability::Moving,
        Some(TaskState::Rebuilding) => return Movability::Busy("it is being rebuilt".into()),
        Some(TaskState::Other(task)) => return Movability::Busy(format!("it is in task {task}")),
        None => {}
    }
    match &server.status {
        ServerStatus::Active | ServerStatus::Paused if server.local_disk && block == BlockMigration::No => {
            let disk = match server.local_disk_gb {
                0 => "a local disk".to_owned(),
                size => format!("{size} GB of local disk"),
            };
            Movability::Not(format!("it has {disk}, and block migration is off"))
        }
        ServerStatus::Active | ServerStatus::Paused => Movability::Ready(MoveKind::Live),
        ServerStatus::ShutOff => Movability::Ready(MoveKind::Cold),
        ServerStatus::Migrating | ServerStatus::Resize => Movability::Moving,
        ServerStatus::VerifyResize => Movability::ToConfirm,
        ServerStatus::Build => Movability::Busy("it is being built".into()),
        ServerStatus::Rebuild => Movability::Busy("it is being rebuilt".into()),
        ServerStatus::Error => {
            let fault = server.fault.as_deref().unwrap_or("Nova does not say why");
            Movability::Not(format!("it is in ERROR: {fault}"))
        }
        ServerStatus::Suspended => Movability::Not("it is suspended: its owner has to resume it".into()),
        ServerStatus::Deleted => Movability::Not("it is soft-deleted: it has to be restored or purged".into()),
        ServerStatus::Other(word) if word == "RESCUE" => {
            Movability::Not("it is in rescue mode: its owner has to end that".into())
        }
        ServerStatus::Other(word) if word == "SHELVED" => {
            Movability::Not("it is shelved: it has to be offloaded or unshelved".into())
        }
        ServerStatus::Other(word) => Movability::Not(format!("it is {word}, in which Nova moves nothing")),
    }
}
