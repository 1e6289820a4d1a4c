//! A small pull reader over quick-xml: elements, their children, their text.
//!
//! [`Reader::child`] steps through the children of an element and leaves out what the caller did not look into, so a
//! parser is a loop with a `match` on names and everything unknown passes by at the speed of the tokenizer.

use std::{borrow::Cow, str::FromStr};

use quick_xml::{
    escape::{resolve_predefined_entity, unescape},
    events::{BytesRef, BytesStart, Event},
};

use super::{Limits, XmlError};

pub(super) struct Reader<'a> {
    inner: quick_xml::Reader<&'a [u8]>,
    document: &'static str,
    limits: Limits,
    /// Elements open now.
    depth: usize,
}

/// An element whose start has been read.
pub(super) struct Element<'a> {
    start: BytesStart<'a>,
    /// How many elements are open inside of it, itself included.
    level: usize,
    /// `<a/>`: there is no end to wait for.
    empty: bool,
}

impl<'a> Reader<'a> {
    /// Starts reading a document whose root is `document`.
    pub(super) fn open(text: &'a str, document: &'static str, limits: Limits) -> Result<(Self, Element<'a>), XmlError> {
        if text.len() > limits.bytes {
            return Err(XmlError::TooLarge { document, bytes: text.len(), limit: limits.bytes });
        }
        let mut reader = Self { inner: quick_xml::Reader::from_str(text), document, limits, depth: 0 };
        loop {
            let root = match reader.event()? {
                Event::Start(start) => reader.enter(start)?,
                Event::Empty(start) => Element { start, level: 1, empty: true },
                Event::Eof => return Err(XmlError::WrongRoot { document, found: None }),
                _ => continue,
            };
            if root.name() != document {
                // Cut, so that a hostile name does not fill the log.
                let found = root.name().chars().take(64).collect();
                return Err(XmlError::WrongRoot { document, found: Some(found) });
            }
            return Ok((reader, root));
        }
    }

    /// The next child element of `parent`; `None` after the last one.
    pub(super) fn child(&mut self, parent: &Element<'a>) -> Result<Option<Element<'a>>, XmlError> {
        if parent.empty {
            return Ok(None);
        }
        while self.depth >= parent.level {
            // Deeper than the parent means inside of a child that nobody wanted to see the inside of.
            let direct = self.depth == parent.level;
            match self.event()? {
                Event::Start(start) => {
                    let child = self.enter(start)?;
                    if direct {
                        return Ok(Some(child));
                    }
                }
                Event::Empty(start) if direct => {
                    return Ok(Some(Element { start, level: self.depth + 1, empty: true }));
                }
                Event::End(_) => self.depth = self.depth.saturating_sub(1),
                Event::Eof => return Err(self.truncated()),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The element's own text, trimmed, without that of its children.
    pub(super) fn text(&mut self, element: &Element<'a>) -> Result<Cow<'a, str>, XmlError> {
        let mut text = Cow::Borrowed("");
        if element.empty {
            return Ok(text);
        }
        while self.depth >= element.level {
            let direct = self.depth == element.level;
            match self.event()? {
                Event::Start(start) => {
                    self.enter(start)?;
                }
                Event::Text(part) if direct => append(&mut text, part.into_inner()),
                Event::CData(part) if direct => append(&mut text, part.into_inner()),
                Event::GeneralRef(reference) if direct => {
                    let part = self.resolve(&reference)?;
                    append(&mut text, part);
                }
                Event::End(_) => self.depth = self.depth.saturating_sub(1),
                Event::Eof => return Err(self.truncated()),
                _ => {}
            }
        }
        Ok(match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.trim()),
            Cow::Owned(text) => Cow::Owned(text.trim().to_owned()),
        })
    }

    /// The element's text as a value of its own; `None` if it is empty.
    pub(super) fn string(&mut self, element: &Element<'a>) -> Result<Option<String>, XmlError> {
        let text = self.text(element)?;
        Ok((!text.is_empty()).then(|| text.into_owned()))
    }

    /// The element's text as a number or whatever else; `None` if it is not one.
    pub(super) fn parse<T: FromStr>(&mut self, element: &Element<'a>) -> Result<Option<T>, XmlError> {
        Ok(self.text(element)?.parse().ok())
    }

    fn enter(&mut self, start: BytesStart<'a>) -> Result<Element<'a>, XmlError> {
        self.depth += 1;
        if self.depth > self.limits.depth {
            let (document, limit) = (self.document, self.limits.depth);
            return Err(XmlError::TooDeep { document, position: self.inner.buffer_position(), limit });
        }
        Ok(Element { start, level: self.depth, empty: false })
    }

    fn event(&mut self) -> Result<Event<'a>, XmlError> {
        match self.inner.read_event() {
            Ok(Event::DocType(_)) => Err(XmlError::DocumentType { document: self.document }),
            Ok(event) => Ok(event),
            Err(cause) => {
                let position = self.inner.error_position();
                Err(XmlError::Malformed { document: self.document, position, cause })
            }
        }
    }

    fn resolve(&self, reference: &BytesRef<'a>) -> Result<Cow<'a, str>, XmlError> {
        if let Ok(Some(character)) = reference.resolve_char_ref() {
            return Ok(Cow::Owned(character.to_string()));
        }
        match resolve_predefined_entity(reference) {
            Some(text) => Ok(Cow::Borrowed(text)),
            None => Err(XmlError::Entity {
                document: self.document,
                entity: reference.chars().take(64).collect(),
                position: self.inner.buffer_position(),
            }),
        }
    }

    fn truncated(&self) -> XmlError {
        XmlError::Truncated { document: self.document, position: self.inner.buffer_position() }
    }
}

fn append<'a>(text: &mut Cow<'a, str>, part: Cow<'a, str>) {
    if text.is_empty() {
        *text = part;
    } else {
        text.to_mut().push_str(&part);
    }
}

impl Element<'_> {
    /// The name with its prefix, as it stands there.
    pub(super) fn name(&self) -> &str {
        self.start.name().0
    }

    /// The name without its prefix.
    pub(super) fn local_name(&self) -> &str {
        let name = self.name();
        name.split_once(':').map_or(name, |(_, local)| local)
    }

    /// An attribute's value. One that is broken counts as missing.
    pub(super) fn attribute(&self, name: &str) -> Option<Cow<'_, str>> {
        let mut attributes = self.start.attributes();
        let attribute = attributes.with_checks(false).flatten().find(|attribute| attribute.key.0 == name)?;
        match attribute.value {
            Cow::Borrowed(value) => unescape(value).ok(),
            Cow::Owned(value) => unescape(&value).ok().map(|value| Cow::Owned(value.into_owned())),
        }
    }

    /// An attribute as a string of its own.
    pub(super) fn string(&self, name: &str) -> Option<String> {
        self.attribute(name).map(Cow::into_owned)
    }

    /// An attribute as a number or whatever else; `None` if it is not one.
    pub(super) fn parse<T: FromStr>(&self, name: &str) -> Option<T> {
        self.attribute(name)?.trim().parse().ok()
    }

    /// Whether the attribute has exactly this value.
    pub(super) fn is(&self, name: &str, value: &str) -> bool {
        self.attribute(name).is_some_and(|found| found == value)
    }

    /// The namespace that this element declares for `prefix` (or as default).
    pub(super) fn declares(&self, prefix: Option<&str>) -> Option<Cow<'_, str>> {
        match prefix {
            Some(prefix) => self.attribute(&format!("xmlns:{prefix}")),
            None => self.attribute("xmlns"),
        }
    }

    /// The prefix of the element's name.
    pub(super) fn prefix(&self) -> Option<&str> {
        self.name().split_once(':').map(|(prefix, _)| prefix)
    }
}
