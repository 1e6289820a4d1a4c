//! Telling a story on standard output: sentences in chapters, and under them a table.
//!
//! On a terminal the table stays at the bottom and is redrawn in place whenever it changes. Anywhere else nothing is
//! ever taken back: the table is printed at the end of each chapter, and no control codes are written.

use std::{
    fmt::Write as _,
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Sentences are broken into lines of this width.
const WIDTH: usize = 78;

/// How long a word takes to read, for somebody who skims.
const PER_WORD: Duration = Duration::from_millis(22);

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

/// How the output may look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// A terminal that understands control codes: the table lives at the bottom.
    pub(super) live: bool,
    /// No pauses for reading.
    pub(super) fast: bool,
}

/// Who tells the story.
pub(super) struct Narrator {
    look: Look,
    screen: Mutex<Screen>,
}

struct Screen {
    out: Box<dyn Write + Send>,
    live: bool,
    chapters: usize,
    /// The table as it is now.
    table: String,
    /// How many lines of it stand below the text.
    drawn: usize,
    /// Whether the table has changed since it was printed.
    fresh: bool,
}

impl std::fmt::Debug for Narrator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Narrator").field("look", &self.look).finish_non_exhaustive()
    }
}

impl Narrator {
    /// Tells to `out`.
    pub(super) fn new(out: impl Write + Send + 'static, look: Look) -> Self {
        let screen =
            Screen { out: Box::new(out), live: look.live, chapters: 0, table: String::new(), drawn: 0, fresh: false };
        Self { look, screen: Mutex::new(screen) }
    }

    /// How the output looks.
    pub(super) fn look(&self) -> Look {
        self.look
    }

    /// Begins a chapter.
    pub(super) fn chapter(&self, title: &str) -> io::Result<()> {
        let mut screen = self.screen();
        screen.chapters += 1;
        let heading = format!("{}. {title}", screen.chapters);
        let heading = if self.look.live { format!("{BOLD}{heading}{PLAIN}") } else { heading };
        screen.print(&format!("\n{heading}\n"))
    }

    /// Begins something that is no chapter.
    pub(super) fn heading(&self, title: &str) -> io::Result<()> {
        let heading = if self.look.live { format!("{BOLD}{title}{PLAIN}") } else { title.to_owned() };
        self.screen().print(&format!("\n{heading}\n"))
    }

    /// Tells a sentence, or a few, and leaves time to read them.
    pub(super) async fn say(&self, text: &str) -> io::Result<()> {
        self.screen().print(&wrap(text, WIDTH))?;
        self.pause(PER_WORD.saturating_mul(u32::try_from(text.split_whitespace().count()).unwrap_or(u32::MAX))).await;
        Ok(())
    }

    /// Prints a line as it is: for people to copy, or to tell how far something is.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        self.screen().print(&format!("      {text}\n"))
    }

    /// Gives the table its present look.
    pub(super) fn table(&self, table: String) -> io::Result<()> {
        let mut screen = self.screen();
        if screen.table == table {
            return Ok(());
        }
        screen.table = table;
        screen.fresh = true;
        if self.look.live { screen.print("") } else { Ok(()) }
    }

    /// Ends a chapter: the place for the table where it is not live, and a moment to look at it.
    pub(super) async fn end_of_chapter(&self) -> io::Result<()> {
        self.screen().print_changed_table()?;
        self.pause(Duration::from_millis(500)).await;
        Ok(())
    }

    /// A moment to read, unless nobody wants one.
    async fn pause(&self, time: Duration) {
        if !self.look.fast {
            tokio::time::sleep(time).await;
        }
    }

    /// Leaves the table where it is and writes below it from now on.
    pub(super) fn release(&self) {
        self.screen().drawn = 0;
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen {
    /// Prints the table where it is not live, if there is anything new in it.
    fn print_changed_table(&mut self) -> io::Result<()> {
        if self.live || !std::mem::take(&mut self.fresh) {
            return Ok(());
        }
        writeln!(self.out, "\n{}", self.table.trim_end())?;
        self.out.flush()
    }

    /// Writes text above the table and draws the table again.
    fn print(&mut self, text: &str) -> io::Result<()> {
        let mut whole = String::new();
        if self.drawn > 0 {
            // To the table's first line, and clear from there.
            let _ = write!(whole, "\x1b[{}A\r\x1b[J", self.drawn);
        }
        whole.push_str(text);
        self.drawn = 0;
        if self.live && !self.table.is_empty() {
            whole.push('\n');
            whole.push_str(&self.table);
            self.drawn = 1 + self.table.lines().count();
        }
        self.out.write_all(whole.as_bytes())?;
        self.out.flush()
    }
}

/// Breaks text into indented lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> String {
    let mut out = String::new();
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length <= width {
            out.push(' ');
            column += 1;
        } else {
            out.push_str(if column > 0 { "\n   " } else { "   " });
            column = 3;
        }
        out.push_str(word);
        column += length;
    }
    out.push('\n');
    out
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;

    /// Keeps what is written on it.
    #[derive(Clone, Default)]
    pub(in super::super) struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Write for Paper {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).write(text)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Paper {
        pub(in super::super) fn text(&self) -> String {
            String::from_utf8_lossy(&self.0.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
        }
    }

    async fn tell(live: bool) -> io::Result<String> {
        let paper = Paper::default();
        let narrator = Narrator::new(paper.clone(), Look { live, fast: true });
        narrator.chapter("Once")?;
        narrator.table("one\nrow\n".into())?;
        narrator.say("Upon a time.").await?;
        narrator.table("two\nrows\n".into())?;
        narrator.end_of_chapter().await?;
        narrator.table("two\nrows\n".into())?;
        narrator.end_of_chapter().await?;
        Ok(paper.text())
    }

    #[tokio::test]
    async fn on_paper_the_table_is_printed_at_the_end_of_a_chapter_if_it_is_new() -> io::Result<()> {
        assert_eq!(tell(false).await?, "\n1. Once\n   Upon a time.\n\ntwo\nrows\n");
        Ok(())
    }

    #[tokio::test]
    async fn on_a_terminal_the_table_is_replaced_in_its_place() -> io::Result<()> {
        let text = tell(true).await?;
        assert_eq!(
            text,
            "\n\x1b[1m1. Once\x1b[0m\n\
             \none\nrow\n\
             \x1b[3A\r\x1b[J   Upon a time.\n\none\nrow\n\
             \x1b[3A\r\x1b[J\ntwo\nrows\n"
        );
        Ok(())
    }

    #[test]
    fn sentences_are_broken_between_words() {
        assert_eq!(wrap("one two three", 9), "   one\n   two\n   three\n");
        assert_eq!(wrap("one two three", 80), "   one two three\n");
    }
}
