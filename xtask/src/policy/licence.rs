//! SPDX licence expressions, as far as crates use them.

use std::collections::BTreeSet;

/// Whether the expression can be satisfied with allowed licences; `None` when it is no expression.
///
/// `A/B` is the old way to write `A OR B`. `X WITH Y` is one licence.
pub(super) fn allowed(expression: &str, allowed: &BTreeSet<String>) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { words: &words, allowed };
    let verdict = parser.any()?;
    parser.words.is_empty().then_some(verdict)
}

struct Parser<'a> {
    words: &'a [&'a str],
    allowed: &'a BTreeSet<String>,
}

impl Parser<'_> {
    fn any(&mut self) -> Option<bool> {
        let mut verdict = self.all()?;
        while self.take("OR") {
            verdict |= self.all()?;
        }
        Some(verdict)
    }

    fn all(&mut self) -> Option<bool> {
        let mut verdict = self.one()?;
        while self.take("AND") {
            verdict &= self.one()?;
        }
        Some(verdict)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let verdict = self.any()?;
            return self.take(")").then_some(verdict);
        }
        let mut licence = self.word()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.word()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn word(&mut self) -> Option<&str> {
        let (word, rest) = self.words.split_first()?;
        if ["OR", "AND", "WITH", "(", ")"].contains(word) {
            return None;
        }
        self.words = rest;
        Some(word)
    }

    fn take(&mut self, expected: &str) -> bool {
        match self.words.split_first() {
            Some((word, rest)) if *word == expected => {
                self.words = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_satisfied_by_what_is_allowed() {
        let list: BTreeSet<String> = ["MIT", "ISC", "Unicode-3.0"].map(str::to_owned).into();
        for (expression, expected) in [
            ("MIT", Some(true)),
            ("Apache-2.0", Some(false)),
            ("MIT OR Apache-2.0", Some(true)),
            ("Apache-2.0/MIT", Some(true)),
            ("Apache-2.0 AND ISC", Some(false)),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", Some(true)),
            ("(GPL-2.0 OR Apache-2.0) AND MIT", Some(false)),
            ("Apache-2.0 WITH LLVM-exception OR MIT", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT OR", None),
            ("(MIT", None),
            ("MIT MIT", None),
        ] {
            assert_eq!(allowed(expression, &list), expected, "{expression}");
        }
    }
}
