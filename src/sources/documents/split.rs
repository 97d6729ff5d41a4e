//! Splits documents into chunks: pieces short enough to be evidence, cut at the text's own
//! boundaries (headings and paragraphs, then sentences, then words) by text-splitter.

use text_splitter::{ChunkConfig, MarkdownSplitter, TextSplitter};

use super::record::Markup;

/// Splits texts. The same text gives the same chunks.
pub struct Splitter {
    plain: TextSplitter<text_splitter::Characters>,
    markdown: MarkdownSplitter<text_splitter::Characters>,
}

impl Splitter {
    /// Limits chunks to `chunk_characters` characters (Unicode scalar values), at least 1.
    pub fn new(chunk_characters: usize) -> Self {
        let size = chunk_characters.max(1);
        Self {
            plain: TextSplitter::new(ChunkConfig::new(size)),
            markdown: MarkdownSplitter::new(ChunkConfig::new(size)),
        }
    }

    /// Returns the chunks of a text in order, trimmed and never empty.
    pub fn split<'t>(&self, text: &'t str, markup: Markup) -> Vec<&'t str> {
        let chunks: Vec<&str> = match markup {
            Markup::Plain => self.plain.chunks(text).collect(),
            Markup::Markdown => self.markdown.chunks(text).collect(),
        };
        chunks.into_iter().filter(|chunk| !chunk.trim().is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_and_lose_nothing_but_space() {
        let text = "One sentence here. Another one, which is longer.\n\nA paragraph. 第一句话。第二句话很长很长。";
        let chunks = Splitter::new(30).split(text, Markup::Plain);
        assert!(chunks.len() > 2);
        assert!(chunks.iter().all(|chunk| chunk.chars().count() <= 30), "{chunks:?}");
        let without_space = |text: &str| text.split_whitespace().collect::<String>();
        assert_eq!(without_space(&chunks.concat()), without_space(text));
    }

    #[test]
    fn markdown_is_cut_at_its_headings() {
        let text = "# Opening hours\n\nFrom nine to five.\n\n# Prices\n\nTen pounds a day.";
        let chunks = Splitter::new(45).split(text, Markup::Markdown);
        assert_eq!(chunks.len(), 2, "{chunks:?}");
        assert!(chunks[1].starts_with("# Prices"));
    }
}
