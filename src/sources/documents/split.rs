//! Splits documents into chunks: pieces short enough to be evidence, cut at the text's own
//! boundaries (headings and paragraphs, then sentences, then words) by text-splitter.
//!
//! A chunk lies under one heading, which is its context and not a part of its text: a heading names what an
//! answer is about, but is not an answer. In plain text, lines that stand out are headings.

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use text_splitter::{ChunkConfig, ChunkSizer, MarkdownSplitter, TextSplitter};
use turnstream_ports::script::has_han;

use super::record::Markup;

/// Splits texts. The same text gives the same chunks.
pub struct Splitter {
    plain: TextSplitter<Characters>,
    markdown: MarkdownSplitter<Characters>,
}

/// Counts characters, a Chinese one as four: so many letters are about as many tokens to a reader.
#[derive(Clone, Copy, Debug)]
struct Characters;

const OF_CHINESE: usize = 4;

impl ChunkSizer for Characters {
    fn size(&self, chunk: &str) -> usize {
        let size = |it: char| if has_han(it.encode_utf8(&mut [0; 4])) { OF_CHINESE } else { 1 };
        chunk.chars().map(size).sum()
    }
}

/// A chunk of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'t> {
    /// The headings that it lies under, the outermost first.
    pub headings: Vec<String>,
    /// Its text; not empty.
    pub text: &'t str,
}

impl Splitter {
    /// Limits chunks to `chunk_characters` characters, at least 1; a Chinese one counts as four.
    pub fn new(chunk_characters: usize) -> Self {
        let size = chunk_characters.max(1);
        Self {
            plain: TextSplitter::new(ChunkConfig::new(size).with_sizer(Characters)),
            markdown: MarkdownSplitter::new(ChunkConfig::new(size).with_sizer(Characters)),
        }
    }

    /// Returns the chunks of a text in order, trimmed and never empty.
    pub fn split<'t>(&self, text: &'t str, markup: Markup) -> Vec<Piece<'t>> {
        let under = |headings: Vec<String>| move |text| Piece { headings: headings.clone(), text };
        let mut pieces: Vec<Piece<'t>> = match markup {
            Markup::Plain => {
                let sections = plain_sections(text).into_iter();
                let chunks = |(headings, body)| self.plain.chunks(body).map(under(headings));
                sections.flat_map(chunks).collect()
            }
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

/// The most characters of a line of plain text that is a heading.
const LONGEST_HEADING: usize = 80;

/// The text under each line of a plain text that stands out: in capitals, underlined, or alone before a
/// paragraph and not a sentence.
fn plain_sections(text: &str) -> Vec<(Vec<String>, &str)> {
    let mut lines: Vec<(usize, &str)> = Vec::new();
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        lines.push((begin, line));
        begin += line.len();
    }
    let line = |at: usize| lines.get(at).map_or("", |(_, line)| line.trim());
    let (mut found, mut heading) = (Vec::new(), Vec::new());
    let (mut body, mut at) = (0, 0);
    while at < lines.len() {
        let is_underlined = is_rule(line(at + 1));
        let stands_apart = at == 0 || line(at - 1).is_empty();
        let behind = [1, 2, 3].map(|further| line(at + further));
        if !(stands_apart && is_heading(line(at), is_underlined, behind)) {
            at += 1;
            continue;
        }
        found.push((std::mem::take(&mut heading), &text[body..lines[at].0]));
        heading.push(line(at).to_owned());
        at += 1 + usize::from(is_underlined);
        body = lines.get(at).map_or(text.len(), |(begin, _)| *begin);
    }
    found.push((heading, &text[body..]));
    found
}

/// Whether a line of plain text that stands apart is a heading; `behind` are the three lines after it.
fn is_heading(line: &str, is_underlined: bool, behind: [&str; 3]) -> bool {
    let letters = || line.chars().filter(|it| it.is_alphabetic());
    let is_ended = |text: &str| text.ends_with(['.', '!', '?', '。', '！', '？']);
    let is_sentence = line.ends_with(['.', '!', ';', ',', ':', '。', '！', '；', '，', '：']);
    let is_item = line.starts_with(['-', '*', '•', '|']) || is_rule(line);
    if letters().count() < 2 || is_sentence || is_item || line.chars().count() > LONGEST_HEADING {
        return false;
    }
    let is_capital = letters().all(char::is_uppercase) && !has_han(line);
    // "Monday 9-17" is a fact, "3. Returns" is not.
    let has_numbers =
        line.trim_start_matches(|it: char| it.is_numeric()).contains(char::is_numeric);
    let [next, paragraph, more] = behind;
    let is_text = !is_rule(paragraph) && (is_ended(paragraph) || !more.is_empty());
    let is_above = next.is_empty() && paragraph.len() > line.len() && is_text;
    let begins = line.starts_with(|it: char| it.is_uppercase() || it.is_numeric()) || has_han(line);
    is_underlined || is_capital || is_above && begins && !has_numbers
}

/// Whether a line is a rule under or between others.
fn is_rule(line: &str) -> bool {
    line.len() >= 3 && line.chars().all(|it| matches!(it, '=' | '-' | '_' | '*'))
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
    fn a_chunk_of_plain_text_lies_under_the_line_that_stands_out() {
        let text = "Welcome to us.\n\nRETURNS AND REFUNDS\nYou have 30 days.\n\nOpening hours\n\n\
                    We are open from nine to five.\n\nPrices\n======\nTen pounds a day.\n\n\
                    Can I pay by card?\n\nYes, by any card that you have.\n\nShort line\n\nOk.\n";
        let chunks = Splitter::new(400).split(text, Markup::Plain);
        let found: Vec<(String, &str)> =
            chunks.iter().map(|chunk| (chunk.headings.join(" > "), chunk.text)).collect();
        let of = |heading: &str, text| (heading.to_owned(), text);
        let expected = [
            of("", "Welcome to us."),
            of("RETURNS AND REFUNDS", "You have 30 days."),
            of("Opening hours", "We are open from nine to five."),
            of("Prices", "Ten pounds a day."),
            of("Can I pay by card?", "Yes, by any card that you have.\n\nShort line\n\nOk."),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_fact_that_stands_alone_is_no_heading() {
        let kept =
            "Monday 9-17\n\nOn Saturdays we open at ten.\n\nParking free\n\nDogs are on a lead";
        let headed = "2. Hours\n\nWe open at nine in\nthe summer";
        for (text, headings) in [(kept, vec![""]), (headed, vec!["2. Hours"])] {
            let chunks = Splitter::new(400).split(text, Markup::Plain);
            let found: Vec<String> = chunks.iter().map(|it| it.headings.join(" > ")).collect();
            assert_eq!(found, headings, "{text}");
        }
    }

    #[test]
    fn a_chinese_character_counts_as_four() {
        let text = "营业时间是早上九点到晚上九点。周日休息。";
        let chunks = Splitter::new(60).split(text, Markup::Plain);
        assert_eq!(
            chunks.iter().map(|it| it.text).collect::<Vec<_>>(),
            ["营业时间是早上九点到晚上九点。", "周日休息。",]
        );
    }

    #[test]
    fn headings_alone_are_a_chunk() {
        let chunks = Splitter::new(400).split("# Soon\n\n## Later\n", Markup::Markdown);
        assert_eq!(chunks.len(), 1, "{chunks:?}");
        assert!(chunks[0].headings.is_empty());
    }
}
