//! Where questions come from, and what may come from one place.
//!
//! Through a port-forward everybody comes from the same place, and so do people behind one gateway. So what one place may
//! is a part of the whole that a few people do not use up.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::Instant;

use crate::runtime::lock;

/// The place an address belongs to: itself, or its network where one host has as many addresses as it likes.
pub(super) fn place(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// So many at once, and one more each time this has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) burst: u32,
    pub(super) refill: Duration,
}

/// What is left at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bucket {
    left: u32,
    filled: Instant,
}

impl Bucket {
    pub(super) fn full(rate: Rate, now: Instant) -> Self {
        Self { left: rate.burst, filled: now }
    }

    fn fill(&mut self, rate: Rate, now: Instant) {
        let refill = rate.refill.max(Duration::from_millis(1));
        let passed = now.saturating_duration_since(self.filled);
        let new = u32::try_from(passed.as_nanos() / refill.as_nanos()).unwrap_or(u32::MAX);
        if new > 0 {
            self.left = self.left.saturating_add(new).min(rate.burst);
            self.filled = now;
        }
    }

    pub(super) fn take(&mut self, rate: Rate, now: Instant) -> bool {
        self.fill(rate, now);
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
        may
    }
}

/// A rate for all, and a lower one for each place.
#[derive(Debug)]
pub(super) struct Budget {
    all: (Rate, Bucket),
    each: Rate,
    /// Places that have taken something lately. What all may bounds how many these are.
    places: HashMap<IpAddr, Bucket>,
}

/// Why there is nothing left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spent {
    /// By this place.
    Here,
    /// By all together.
    Everywhere,
}

impl Budget {
    pub(super) fn new(all: Rate, each: Rate, now: Instant) -> Self {
        Self { all: (all, Bucket::full(all, now)), each, places: HashMap::new() }
    }

    /// Takes one for this place, or of the whole alone where the place is not known. A place that has used up its own takes
    /// nothing of the others'.
    pub(super) fn take(&mut self, place: Option<IpAddr>, now: Instant) -> Result<(), Spent> {
        let each = self.each;
        self.places.retain(|_, bucket| {
            bucket.fill(each, now);
            bucket.left < each.burst
        });
        let mut own =
            place.map(|place| (place, self.places.get(&place).copied().unwrap_or_else(|| Bucket::full(each, now))));
        if own.as_mut().is_some_and(|(_, bucket)| !bucket.take(each, now)) {
            return Err(Spent::Here);
        }
        if !self.all.1.take(self.all.0, now) {
            return Err(Spent::Everywhere);
        }
        self.places.extend(own);
        Ok(())
    }
}

/// Counts what each place has open.
#[derive(Clone, Debug, Default)]
pub(super) struct Seats(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One that is taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Seat {
    seats: Seats,
    place: IpAddr,
}

impl Seats {
    /// A seat for this place, if it has fewer than `most`.
    pub(super) fn take(&self, place: IpAddr, most: usize) -> Option<Seat> {
        let mut taken = lock(&self.0);
        let count = taken.get(&place).copied().unwrap_or_default();
        if count >= most {
            return None;
        }
        taken.insert(place, count + 1);
        Some(Seat { seats: self.clone(), place })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = lock(&self.seats.0);
        if let Some(count) = taken.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.place);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(burst: u32, millis: u64) -> Rate {
        Rate { burst, refill: Duration::from_millis(millis) }
    }

    fn from(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_host_with_many_addresses_is_one_place() {
        let places = ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:db8::2:3", "2001:db8:0:1::1"];
        let places: Vec<String> =
            places.iter().filter_map(|address| Some(place(address.parse().ok()?).to_string())).collect();
        assert_eq!(places, ["192.0.2.1", "192.0.2.1", "2001:db8::", "2001:db8::", "2001:db8:0:1::"]);
    }

    #[test]
    fn a_rate_is_kept() {
        let (rate, now) = (rate(2, 1000), Instant::now());
        let mut bucket = Bucket::full(rate, now);
        let mut asked = |millis| bucket.take(rate, now + Duration::from_millis(millis));
        assert_eq!([asked(0), asked(0), asked(0)], [true, true, false]);
        assert_eq!([asked(999), asked(1000), asked(1001)], [false, true, false]);
        assert_eq!([asked(60_000), asked(60_000), asked(60_000)], [true, true, false], "never more than the burst");
    }

    #[test]
    fn one_place_does_not_use_up_what_is_there_for_all() {
        let now = Instant::now();
        let mut budget = Budget::new(rate(4, 1000), rate(2, 1000), now);
        let mut taken = |place| budget.take(Some(from(place)), now);
        assert_eq!([taken(1), taken(1), taken(1), taken(1)], [Ok(()), Ok(()), Err(Spent::Here), Err(Spent::Here)]);
        assert_eq!([taken(2), taken(2)], [Ok(()), Ok(())]);
        assert_eq!(taken(3), Err(Spent::Everywhere));
        assert_eq!(budget.take(None, now), Err(Spent::Everywhere));
        let later = now + Duration::from_secs(1);
        assert_eq!(budget.take(Some(from(3)), later), Ok(()), "what was refused cost this place nothing");
    }

    #[test]
    fn places_are_forgotten_when_they_have_their_own_again() {
        let now = Instant::now();
        let mut budget = Budget::new(rate(1000, 1), rate(1, 1000), now);
        for last in 0..200 {
            assert_eq!(budget.take(Some(from(last)), now), Ok(()));
        }
        assert_eq!(budget.take(Some(from(0)), now + Duration::from_secs(1)), Ok(()));
        assert_eq!(budget.places.len(), 1);
    }

    #[test]
    fn a_seat_is_free_again_when_it_is_left() {
        let (seats, here) = (Seats::default(), place([192, 0, 2, 1].into()));
        let held = [seats.take(here, 2), seats.take(here, 2)];
        assert!(held.iter().all(Option::is_some) && seats.take(here, 2).is_none());
        assert!(seats.take([192, 0, 2, 2].into(), 2).is_some(), "another place has its own");
        drop(held);
        assert!(seats.take(here, 2).is_some());
        assert!(lock(&seats.0).is_empty());
    }
}
