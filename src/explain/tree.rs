//! A tree of texts, and how it is written: a branch a line, wrapped beside its guides.

use super::page::{Page, Text};

/// A text, and what belongs below it.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    /// Paragraphs; the first one is what the branch leads to.
    said: Vec<Text>,
    below: Vec<Tree>,
}

impl Tree {
    /// A text with nothing below it.
    pub fn leaf(text: impl Into<Text>) -> Self {
        Self { said: vec![text.into()], below: Vec::new() }
    }

    /// The same with one more paragraph, unless that is empty.
    #[must_use]
    pub fn and(mut self, text: impl Into<Text>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.said.push(text);
        }
        self
    }

    /// The same with these below it, behind what is there already.
    #[must_use]
    pub fn with(mut self, below: impl IntoIterator<Item = Self>) -> Self {
        self.below.extend(below);
        self
    }

    /// Whether nothing is below it.
    pub fn is_leaf(&self) -> bool {
        self.below.is_empty()
    }

    /// The tree in lines of `width` columns, with colours or without. Words that are not to be
    /// parted run over where the guides leave too little room.
    pub fn render(&self, width: usize, colour: bool) -> String {
        let mut out = Vec::new();
        let mut page = Page::of_width(&mut out, width, colour);
        // Writing to memory does not fail.
        let _ = self.write(&mut page, "", "");
        String::from_utf8(out).unwrap_or_else(|_| unreachable!("only text was written"))
    }

    /// Writes it behind what stands before its first line, and before all others.
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
