//! Shared test material, and tests of all measures together.

use std::io::Write;

use turnstream_formats::Format;
use turnstream_schemas::{Speaker, Turn};

use super::material::Log;

/// Responses and references of our own.
pub(super) const ENGLISH: [(&str, &str); 7] = [
    (
        "The kettle, at 1,500 watts, boils in 3.5 minutes.",
        "A kettle of 1,500 watts boils water in 3.5 minutes!",
    ),
    (
        "I'd say: bring an umbrella - it's raining...",
        "I would bring an umbrella; it's raining again.",
    ),
    ("Café “Luna” opens at 7:30 — naïve, isn’t it?", "Café “Luna” opens at 8:00, isn’t it?"),
    ("", "Nobody said a word."),
    ("yes yes yes yes", "yes, the bread is in the oven"),
    (
        "Tom &amp; Ann paid $20 (10-12 people) <skipped>for R&D.",
        "Tom & Ann paid $20 for 10-12 people, R&D included.",
    ),
    ("Sleep well.", "Sleep well."),
];

/// Responses and references in Chinese.
pub(super) const CHINESE: [(&str, &str); 4] = [
    ("北京的故宫很大，要走一整天。", "故宫很大，逛一天才够。"),
    ("门票60元，wifi免费！", "门票是60元，有WiFi吗？"),
    ("“好的”……我们走吧", "好的，我们走。"),
    ("", "不知道"),
];

pub(super) fn near(figure: f64, expected: f64) {
    assert!((figure - expected).abs() < 1e-9, "{figure} is not {expected}");
}

/// Makes a log of (conversation, speaker, text).
pub(super) fn log(said: &[(&str, &str, &str)]) -> Log {
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    for (conversation, speaker, text) in said {
        let speaker = if *speaker == "user" { Speaker::User } else { Speaker::System };
        let turn = Turn::new(conversation, speaker, text);
        writeln!(file, "{}", serde_json::to_string(&turn).expect("JSON")).expect("written");
    }
    Log::read(Format::Turns, file.path()).expect("a log")
}
