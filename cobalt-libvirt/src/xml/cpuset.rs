//! Sets of small numbers as libvirt writes them: `0-3,^2,8`.

use std::{fmt, str::FromStr};

/// A set of CPU or NUMA cell numbers.
///
/// Kept as ranges, so that `0-4294967295` is one of them and not four billion numbers.
///
/// ```
/// use cobalt_libvirt::xml::CpuSet;
///
/// let set: CpuSet = "0-3,^2,8".parse()?;
/// assert_eq!(set.iter().collect::<Vec<_>>(), [0, 1, 3, 8]);
/// assert_eq!(set.to_string(), "0-1,3,8");
/// # Ok::<(), cobalt_libvirt::xml::CpuSetError>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// First and last of each range; ascending, and never touching each other.
    ranges: Vec<(u32, u32)>,
}

/// The text is not a set of numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} is no number, range or exclusion in a list such as 0-3,^2,8")]
pub struct CpuSetError {
    part: String,
}

/// More parts than any host has reasons for; what is beyond would only cost time.
const PARTS: usize = 4096;

impl CpuSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many numbers are in it.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|&(first, last)| u64::from(last - first) + 1).sum()
    }

    /// Whether `number` is in it.
    pub fn contains(&self, number: u32) -> bool {
        let at = self.ranges.partition_point(|&(_, last)| last < number);
        self.ranges.get(at).is_some_and(|&(first, _)| first <= number)
    }

    /// How many numbers in it are smaller than `number`.
    pub fn rank(&self, number: u32) -> u64 {
        let below = self.ranges.iter().take_while(|&&(first, _)| first < number);
        below.map(|&(first, last)| u64::from(last.min(number - 1) - first) + 1).sum()
    }

    /// Whether the two have a number in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        while let (Some(&&(first, last)), Some(&&(other_first, other_last))) = (ours.peek(), theirs.peek()) {
            if last < other_first {
                ours.next();
            } else if other_last < first {
                theirs.next();
            } else {
                return true;
            }
        }
        false
    }

    /// Its numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// Adds the numbers from `first` to `last`, both included.
    pub fn insert(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        // All ranges that overlap or touch the new one melt into it.
        let start = self.ranges.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let end = self.ranges.partition_point(|&(begin, _)| begin <= last.saturating_add(1));
        let (mut low, mut high) = (first, last);
        if start < end {
            low = low.min(self.ranges[start].0);
            high = high.max(self.ranges[end - 1].1);
        }
        self.ranges.splice(start..end.max(start), [(low, high)]);
    }

    /// Takes the numbers from `first` to `last` out, both included.
    pub fn remove(&mut self, first: u32, last: u32) {
        if first > last {
            return;
        }
        let start = self.ranges.partition_point(|&(_, end)| end < first);
        let end = self.ranges.partition_point(|&(begin, _)| begin <= last);
        if start >= end {
            return;
        }
        let (low, high) = (self.ranges[start].0, self.ranges[end - 1].1);
        let before = first.checked_sub(1).filter(|&before| low <= before).map(|before| (low, before));
        let after = last.checked_add(1).filter(|&after| after <= high).map(|after| (after, high));
        self.ranges.splice(start..end, before.into_iter().chain(after));
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(numbers: I) -> Self {
        let mut set = Self::default();
        for number in numbers {
            set.insert(number, number);
        }
        set
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    /// An exclusion takes away from what stands before it, as in libvirt. An empty text is an empty set.
    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut set = Self::default();
        if text.trim().is_empty() {
            return Ok(set);
        }
        for (index, part) in text.split(',').map(str::trim).enumerate() {
            let wrong = || CpuSetError { part: part.chars().take(64).collect() };
            let (exclude, range) = match part.strip_prefix('^') {
                Some(range) => (true, range),
                None => (false, part),
            };
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (number(first).ok_or_else(wrong)?, number(last).ok_or_else(wrong)?);
            if first > last || index >= PARTS {
                return Err(wrong());
            }
            if exclude { set.remove(first, last) } else { set.insert(first, last) }
        }
        Ok(set)
    }
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    // `parse` would take a plus sign.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, &(first, last)) in self.ranges.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::CpuSet;

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn lists_ranges_and_exclusions_are_read() {
        let table: [(&str, &[u32]); 12] = [
            ("", &[]),
            ("0", &[0]),
            ("0-3", &[0, 1, 2, 3]),
            ("0-3,^2,8", &[0, 1, 3, 8]),
            ("8,0-3,^2", &[0, 1, 3, 8]),
            ("^2,0-3", &[0, 1, 2, 3]),
            ("0-9,^3-6", &[0, 1, 2, 7, 8, 9]),
            (" 1 , 3 - 4 ", &[1, 3, 4]),
            ("1,1,1-2", &[1, 2]),
            ("5,4,3", &[3, 4, 5]),
            ("0,^0", &[]),
            ("1-3,^1,^3", &[2]),
        ];
        for (text, numbers) in table {
            assert_eq!(set(text).iter().collect::<Vec<_>>(), numbers, "{text:?}");
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [",", "a", "1-", "-1", "3-1", "1,,2", "^", "+1", "1-2-3", "4294967296", "0x1", "1;2"] {
            assert!(text.parse::<CpuSet>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn the_whole_range_of_numbers_is_one_range() {
        let all = set("0-4294967295");
        assert_eq!(all.len(), 1 << 32);
        assert!(all.contains(u32::MAX));
        assert_eq!(all.rank(u32::MAX), u64::from(u32::MAX));
        assert_eq!(set("0-4294967295,^4294967295").to_string(), "0-4294967294");
        assert_eq!(set("0-4294967295,^0").to_string(), "1-4294967295");
    }

    #[test]
    fn too_many_parts_are_refused() {
        let text = vec!["1"; super::PARTS + 1].join(",");
        assert!(text.parse::<CpuSet>().is_err());
    }

    #[test]
    fn common_numbers_are_seen() {
        assert!(set("0-3,8").intersects(&set("8-9")));
        assert!(!set("0-3,8").intersects(&set("4-7,9")));
        assert!(!set("").intersects(&set("0-9")));
    }

    proptest! {
        #[test]
        fn it_behaves_like_a_set_of_numbers(steps in prop::collection::vec((any::<bool>(), 0..40_u32, 0..9_u32), 0..20),
                                            other in prop::collection::vec(0..50_u32, 0..6)) {
            let (mut ours, mut model) = (CpuSet::default(), BTreeSet::new());
            for (add, first, length) in steps {
                if add {
                    ours.insert(first, first + length);
                    model.extend(first..=first + length);
                } else {
                    ours.remove(first, first + length);
                    model.retain(|number| !(first..=first + length).contains(number));
                }
            }
            prop_assert_eq!(ours.iter().collect::<Vec<_>>(), model.iter().copied().collect::<Vec<_>>());
            prop_assert_eq!(ours.len(), model.len() as u64);
            prop_assert_eq!(ours.is_empty(), model.is_empty());
            for number in 0..60 {
                prop_assert_eq!(ours.contains(number), model.contains(&number));
                prop_assert_eq!(ours.rank(number), model.range(..number).count() as u64);
            }
            let other: CpuSet = other.into_iter().collect();
            prop_assert_eq!(ours.intersects(&other), other.iter().any(|number| model.contains(&number)));
            prop_assert_eq!(set(&ours.to_string()), ours);
        }

        #[test]
        fn any_text_is_a_set_or_an_error(text in "[0-9,^ -]{0,30}|\\PC{0,20}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
