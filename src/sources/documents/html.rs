//! Converts HTML pages to Markdown, so that they are split and quoted like Markdown documents.
//!
//! What frames a page and is no part of its content (navigation, footers, forms, scripts) is left
//! out. The questions of folded answers (`summary`) and the terms of definition lists (`dt`) become
//! headings, since that is what they are on a page of questions and answers.

use htmd::element_handler::Handlers;
use htmd::{Element, HtmlToMarkdown};

/// Elements that are left out with everything in them.
const NO_CONTENT: [&str; 14] = [
    "aside", "button", "dialog", "footer", "form", "head", "iframe", "img", "nav", "noscript",
    "script", "style", "svg", "template",
];

/// A page as Markdown.
pub(super) struct ConvertedPage {
    /// The text of the `title` element; may be empty.
    pub(super) title: String,
    /// The content.
    pub(super) markdown: String,
}

/// Converts a page.
///
/// # Errors
/// The page cannot be parsed.
pub(super) fn page(html: &str) -> Result<ConvertedPage, String> {
    let content = HtmlToMarkdown::builder().skip_tags(NO_CONTENT.to_vec());
    let content =
        content.add_handler(vec!["summary", "dt"], |handlers: &dyn Handlers, of: Element| {
            let heading = handlers.walk_children(of.node).content;
            Some(format!("\n\n###### {}\n\n", heading.trim()).into())
        });
    let title = HtmlToMarkdown::builder().skip_tags(vec!["body", "script", "style"]).build();
    let convert = |with: &HtmlToMarkdown| with.convert(html).map_err(|error| error.to_string());
    Ok(ConvertedPage {
        title: convert(&title)?.trim().to_owned(),
        markdown: convert(&content.build())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_of_a_page_is_markdown() {
        let html = "<!doctype html><html><head><title>Post &amp; returns</title>\
                    <style>a { color: red }</style></head><body>\
                    <nav><a href='/'>Home</a></nav><h1>Post</h1>\
                    <p>We post within <b>two</b> days,\n see <a href='/x'>the rates</a>.</p>\
                    <details><summary>Can I change my order?</summary><p>Until 5&nbsp;pm.</p></details>\
                    <dl><dt>Opening hours</dt><dd>Mon&ndash;Fri</dd></dl>\
                    <table><tr><th>To</th><th>Costs</th></tr><tr><td>France</td><td>£9</td></tr></table>\
                    <ul><li>one<li>two</ul><script>track()</script><form><button>Buy</button></form>\
                    <footer>Imprint</footer></body></html>";
        let ConvertedPage { title, markdown } = page(html).expect("a page");
        assert_eq!(title, "Post & returns");
        for (part, line) in [
            ("heading", "# Post"),
            ("question", "###### Can I change my order?"),
            ("term", "###### Opening hours"),
            ("answer", "Until 5\u{a0}pm."),
            ("definition", "Mon–Fri"),
            ("paragraph", "We post within **two** days, see [the rates](/x)."),
            ("row", "| France | £9    |"),
        ] {
            assert!(markdown.lines().any(|it| it.trim() == line), "{part}: {markdown}");
        }
        for frame in ["Home", "color", "track", "Buy", "Imprint", "returns"] {
            assert!(!markdown.contains(frame), "{frame}: {markdown}");
        }
    }

    #[test]
    fn anything_can_be_parsed() {
        for html in ["", "plain & simple", "<p>open <b>and <i>never", "<table><td>", "\u{0}<x y=>"]
        {
            page(html).expect("a page");
        }
    }
}
