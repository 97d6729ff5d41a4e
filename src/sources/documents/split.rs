//! Splits documents into chunks: pieces short enough to be evidence, cut at the text's own
//! boundaries (headings and paragraphs, then sentences, then words) by text-splitter.
//!
//! A chunk of Markdown lies under one heading, which is its context and not a part of its text: a
//! heading names what an answer is about, but is not an answer.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use text_splitter::{ChunkConfig, MarkdownSplitter, TextSplitter};

use super::record::Markup;

/// Splits texts. The same text gives the same chunks.
pub struct Splitter {
    plain: TextSplitter<text_splitter::Characters>,
    markdown: MarkdownSplitter<text_splitter::Characters>,
}

/// A chunk of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'t> {
    /// The headings that it lies under, the outermost first; empty in plain text.
    pub headings: Vec<String>,
    /// Its text; not empty.
    pub text: &'t str,
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
    pub fn split<'t>(&self, text: &'t str, markup: Markup) -> Vec<Piece<'t>> {
        let under = |headings: Vec<String>| move |text| Piece { headings: headings.clone(), text };
        let mut pieces: Vec<Piece<'t>> = match markup {
            Markup::Plain => self.plain.chunks(text).map(under(Vec::new())).collect(),
            Markup::Markdown => {
                let sections = sections(text).into_iter();
                let chunks = |(headings, body)| self.markdown.chunks(body).map(under(headings));
                sections.flat_map(chunks).collect()
            }
        };
        pieces.retain(|piece| !piece.text.trim().is_empty());
        if pieces.is_empty() {
            // A document of headings alone has these as its chunks.
            pieces = self.markdown.chunks(text).map(under(Vec::new())).collect();
            pieces.retain(|piece| !piece.text.trim().is_empty());
        }
        pieces
    }
}

/// The text under each heading of a Markdown document, with the headings that it lies under.
fn sections(text: &str) -> Vec<(Vec<String>, &str)> {
    let (mut found, mut path) = (Vec::new(), Vec::<(HeadingLevel, String)>::new());
    let (mut begin, mut open) = (0, None);
    for (event, place) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { level, .. }) => {
                found.push((headings(&path), &text[begin..place.start]));
                begin = place.end;
                path.retain(|(above, _)| *above < level);
                open = Some((level, String::new()));
            }
            Event::Text(words) | Event::Code(words) => {
                if let Some((_, heading)) = &mut open {
                    heading.push_str(&words);
                }
            }
            Event::End(TagEnd::Heading(_)) => path.extend(open.take()),
            _ => {}
        }
    }
    found.push((headings(&path), &text[begin..]));
    found
}

fn headings(path: &[(HeadingLevel, String)]) -> Vec<String> {
    path.iter().map(|(_, heading)| heading.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_and_lose_nothing_but_space() {
        let text = "One sentence here. Another one, which is longer.\n\nA paragraph. 第一句话。第二句话很长很长。";
        let chunks = Splitter::new(30).split(text, Markup::Plain);
        assert!(chunks.len() > 2);
        assert!(chunks.iter().all(|chunk| chunk.text.chars().count() <= 30), "{chunks:?}");
        let without_space = |text: &str| text.split_whitespace().collect::<String>();
        let whole: String = chunks.iter().map(|chunk| chunk.text).collect();
        assert_eq!(without_space(&whole), without_space(text));
    }

    #[test]
    fn a_chunk_of_markdown_lies_under_one_heading() {
        let text = "Before.\n\n# Shop\n\n## Opening *hours*\n\nFrom nine to five.\n\n### Sundays\n\n\
                    - closed\n\nPrices\n------\n\nTen pounds a day.\n\n```\n# no heading\n```\n";
        let chunks = Splitter::new(400).split(text, Markup::Markdown);
        let found: Vec<(String, &str)> =
            chunks.iter().map(|chunk| (chunk.headings.join(" > "), chunk.text)).collect();
        let of = |headings: &str, text| (headings.to_owned(), text);
        let expected = [
            of("", "Before."),
            of("Shop > Opening hours", "From nine to five."),
            of("Shop > Opening hours > Sundays", "- closed"),
            of("Shop > Prices", "Ten pounds a day.\n\n```\n# no heading\n```"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn headings_alone_are_a_chunk() {
        let chunks = Splitter::new(400).split("# Soon\n\n## Later\n", Markup::Markdown);
        assert_eq!(chunks.len(), 1, "{chunks:?}");
        assert!(chunks[0].headings.is_empty());
    }
}
