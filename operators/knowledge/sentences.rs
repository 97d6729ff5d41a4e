//! Splits a text into its sentences, list items and table rows, without mark-up.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_segmentation::UnicodeSegmentation;

/// What separates the cells of a table row.
pub const CELLS: &str = " | ";

/// Returns the sentences, list items and table rows of Markdown or plain text, in order, without
/// mark-up and never empty. Leaves out headings and the headers of tables. Joins the cells of a row
/// by [`CELLS`].
pub fn sentences(text: &str) -> Vec<String> {
    sentences_and_headers(text).into_iter().map(|(sentence, _)| sentence).collect()
}

/// Returns the [`sentences`] of a text, each table row with the cells of its table's header, which may be fewer
/// than its own; for all else the header is empty.
pub fn sentences_and_headers(text: &str) -> Vec<(String, Vec<String>)> {
    let (mut found, mut open, mut skipped, mut items) = (Vec::new(), String::new(), false, 0);
    let mut header: Vec<String> = Vec::new();
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Text(words) | Event::Code(words) if !skipped => open.push_str(&words),
            Event::Html(words) | Event::InlineHtml(words) if words.starts_with("<br") => {
                open.push(' ');
            }
            Event::SoftBreak | Event::HardBreak => open.push(' '),
            Event::Start(Tag::Heading { .. }) => skipped = true,
            Event::End(TagEnd::Heading(_)) => (open, skipped) = (String::new(), false),
            Event::End(TagEnd::TableCell) => open.push_str(CELLS),
            Event::End(TagEnd::TableHead) => {
                header = row(&open).split(CELLS).map(str::to_owned).collect();
                open.clear();
            }
            Event::End(TagEnd::TableRow) => {
                found.push((row(&open), header.clone()));
                open.clear();
            }
            Event::Start(Tag::List(_) | Tag::Item)
            | Event::End(TagEnd::Item | TagEnd::Paragraph | TagEnd::CodeBlock) => {
                let unheaded = |it: &str| (spaced(it), Vec::new());
                if items > 0 {
                    found.push(unheaded(&open));
                } else {
                    found.extend(open.split_sentence_bounds().map(unheaded));
                }
                open.clear();
                match event {
                    Event::Start(Tag::Item) => items += 1,
                    Event::End(TagEnd::Item) => items -= 1,
                    _ => {}
                }
            }
            _ => {}
        }
    }
    found.retain(|(sentence, _)| !sentence.is_empty());
    found
}

/// The cells of a row, without those that are empty at its end.
fn row(cells: &str) -> String {
    spaced(cells.trim_end_matches([' ', '|']))
}

/// A text with single spaces.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_said_has_no_mark_up() {
        let text = "## Sending\n\nBring it **back** within 14 days. Sale items, e.g. socks,\nneed \
                    7.5 days!\n\n- a `tent`: 2.5 kg. Light.\n- a stove\n  with gas\n\n1. Sign in.\n2. \
                    [Pay](https://example.org).\n\n| what | price |\n|---|---|\n| post | £3.50 |\n\
                    | *express* | £8 |\n\n---\n";
        let expected = [
            "Bring it back within 14 days.",
            "Sale items, e.g. socks, need 7.5 days!",
            "a tent: 2.5 kg. Light.",
            "a stove with gas",
            "Sign in.",
            "Pay.",
            "post | £3.50",
            "express | £8",
        ];
        assert_eq!(sentences(text), expected);
        assert_eq!(
            sentences("十四天内可以退。打折的不能退！"),
            ["十四天内可以退。", "打折的不能退！"]
        );
        assert!(sentences(" \n\n---\n").is_empty());
        let header = ["what", "price"].map(str::to_owned).to_vec();
        let found = sentences_and_headers(text);
        assert_eq!(
            found[6..],
            [(expected[6].to_owned(), header.clone()), (expected[7].to_owned(), header)]
        );
        assert!(found[..6].iter().all(|(_, header)| header.is_empty()));
    }
}
