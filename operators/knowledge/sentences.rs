//! Splits a text into its sentences, list items and table rows, without mark-up.

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use unicode_segmentation::UnicodeSegmentation;

/// Returns the sentences, list items and table rows of Markdown or plain text, in order, without
/// mark-up and never empty. Leaves out headings and the headers of tables. Joins the cells of a row
/// by ` | `.
pub fn sentences(text: &str) -> Vec<String> {
    let (mut found, mut open, mut skipped, mut items) = (Vec::new(), String::new(), false, 0);
    for event in Parser::new_ext(text, Options::ENABLE_TABLES) {
        match event {
            Event::Text(words) | Event::Code(words) if !skipped => open.push_str(&words),
            Event::Html(words) | Event::InlineHtml(words) if words.starts_with("<br") => {
                open.push(' ');
            }
            Event::SoftBreak | Event::HardBreak => open.push(' '),
            Event::Start(Tag::Heading { .. } | Tag::TableHead) => skipped = true,
            Event::End(TagEnd::Heading(_) | TagEnd::TableHead) => {
                (open, skipped) = (String::new(), false);
            }
            Event::End(TagEnd::TableCell) if !skipped => open.push_str(" | "),
            Event::End(TagEnd::TableRow) => {
                found.push(spaced(open.trim_end_matches([' ', '|'])));
                open.clear();
            }
            Event::Start(Tag::List(_) | Tag::Item)
            | Event::End(TagEnd::Item | TagEnd::Paragraph | TagEnd::CodeBlock) => {
                if items > 0 {
                    found.push(spaced(&open));
                } else {
                    found.extend(open.split_sentence_bounds().map(spaced));
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
    found.retain(|sentence| !sentence.is_empty());
    found
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
    }
}
