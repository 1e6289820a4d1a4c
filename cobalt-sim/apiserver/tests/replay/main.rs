//! The recorded answers of a real API server, asked again of this one.
//!
//! Each file of `tests/wire` is replayed in order against a fresh server: every request is sent again, and status,
//! body, headers and watch events must be what was recorded. What the real server chose (uids, resource versions,
//! times, tokens) is compared by identity and by order. `known.txt` lists the records that do not match, with the
//! reason; a record that is not listed must match, and a listed one that matches has to leave the list.
//!
//! `REPLAY_SHOW=5.1 cargo test --test replay -- --nocapture` shows the differences of the records whose id begins so.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod bindings;
mod compare;
mod known;
mod record;
mod run;
mod setup;
mod unserved;

use std::fmt::Write as _;

const GROUPS: [&str; 9] =
    ["1-crd", "2-validation", "3-ssa", "4-patch", "5-core", "6-watch", "7-discovery", "8-kubectl", "9-errors"];

#[tokio::test(start_paused = true)]
async fn recorded_exchanges_are_answered_as_recorded() {
    let show = std::env::var("REPLAY_SHOW").ok();
    let known = known::list();
    let mut problems = String::new();
    let (mut matching, mut all, mut passed_over) = (0, 0, 0);
    for group in GROUPS {
        let records = record::load(group);
        let (outcomes, nothing): (Vec<_>, Vec<_>) =
            run::replay(group, &records).await.into_iter().partition(|outcome| outcome.compared > 0);
        for outcome in nothing {
            println!("{}: not counted, it only asks for what is not served", outcome.id);
        }
        passed_over += outcomes.iter().map(|outcome| outcome.passed_over).sum::<usize>();
        let good = outcomes.iter().filter(|outcome| outcome.differences.is_empty()).count();
        println!("group {group}: {good} of {} match", outcomes.len());
        if good * 10 < outcomes.len() * 9 {
            writeln!(problems, "less than nine of ten records of {group} match").unwrap();
        }
        matching += good;
        all += outcomes.len();
        for outcome in outcomes {
            let (id, matches) = (&outcome.id, outcome.differences.is_empty());
            if show.as_ref().is_some_and(|prefix| id.starts_with(prefix.as_str())) {
                println!("-- {id}: {}", if matches { "matches" } else { "differs" });
                outcome.differences.iter().take(8).for_each(|difference| println!("     {difference}"));
            }
            match (matches, known.contains_key(id.as_str())) {
                (true, true) => writeln!(problems, "{id} matches now: take it off known.txt").unwrap(),
                (false, false) => writeln!(problems, "{id} differs: {}", outcome.differences[0]).unwrap(),
                _ => {}
            }
        }
    }
    println!("all groups: {matching} of {all} match; {passed_over} exchanges within them ask for what is not served");
    assert!(problems.is_empty(), "\n{problems}");
}
