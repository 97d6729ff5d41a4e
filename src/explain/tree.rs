//! A tree of texts, written one branch a line and wrapped beside its guides.

use super::page::{Page, Text};

/// A text with branches below it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Paragraphs; the first is the branch's own line.
    said: Vec<Text>,
    below: Vec<Tree>,
}

impl Tree {
    /// A text without branches.
    pub fn leaf(text: impl Into<Text>) -> Self {
        Self { said: vec![text.into()], below: Vec::new() }
    }

    /// Adds a paragraph, unless it is empty.
    #[must_use]
    pub fn and(mut self, text: impl Into<Text>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.said.push(text);
        }
        self
    }

    /// Appends branches.
    #[must_use]
    pub fn with(mut self, below: impl IntoIterator<Item = Self>) -> Self {
        self.below.extend(below);
        self
    }

    /// Whether there are no branches below.
    pub fn is_leaf(&self) -> bool {
        self.below.is_empty()
    }

    /// Renders the tree in lines of `width` columns, with or without colours. Words that cannot be
    /// broken run over if the guides leave too little room.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let mut out = Vec::new();
        let mut page = Page::of_width(&mut out, width, colour);
        // Writing to memory cannot fail.
        let _ = self.write(&mut page, "", "");
        String::from_utf8(out).unwrap_or_else(|_| unreachable!("only text was written"))
    }

    /// Writes the tree; `first` begins its first line and `others` all further lines.
    fn write(&self, page: &mut Page<'_>, first: &str, others: &str) -> std::io::Result<()> {
        let further = format!("{others}{}", if self.below.is_empty() { "   " } else { "│  " });
        for (at, text) in self.said.iter().enumerate() {
            page.branch(if at == 0 { first } else { &further }, &further, text)?;
        }
        for (at, below) in self.below.iter().enumerate() {
            let (branch, guide) = match at + 1 == self.below.len() {
                true => ("└─ ", "   "),
                false => ("├─ ", "│  "),
            };
            below.write(page, &format!("{others}{branch}"), &format!("{others}{guide}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Ink;
    use super::*;

    #[test]
    fn branches_have_guides_and_wrap_beside_them() {
        let leaf = Tree::leaf("one two three four five six");
        let tree = Tree::leaf("root")
            .with([Tree::leaf("first words of a branch").and("said of it").with([leaf])])
            .with([Tree::leaf("last")]);
        let expected = "\
root
├─ first words of a
│  │  branch
│  │  said of it
│  └─ one two three four
│        five six
└─ last
";
        assert_eq!(tree.render(25, false), expected);
        let coloured = Tree::leaf(Text::new(Ink::Good, "yes")).render(22, true);
        assert!(coloured.starts_with("\u{1b}["), "{coloured:?}");
    }
}
