//! `locomo`: very long talk between two friends over many sessions, with questions about it
//! (Snap; CC BY-NC 4.0: for measurement only).
//!
//! Reads one conversation a record: `sample_id`,
//! `sessions [{date_time?, turns [{id, speaker, text, image_caption?}]}]`. Sessions follow each
//! other in one conversation.
//!
//! - User: the first speaker; the two are equals. One may speak several times in a row.
//! - Conversation id: `sample_id`. Turn ids: upstream's (`D1:3`), which the evidence of its
//!   questions refers to.
//! - Timestamps: each turn has the start of its session. Upstream writes `1:56 pm on 8 May, 2023`
//!   without a time zone. It is read as UTC, so only differences mean something. If a date of a
//!   conversation cannot be read, or is not later than the one before, none of its turns has a
//!   timestamp.
//! - Metadata `image_caption`: a description of the picture that was shared with the turn.
//! - Labels: none on turns. [`super::questions()`] reads the questions.
//! - Dropped: answers to the questions, summaries, observations, and the search terms of pictures.

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde::Deserialize;
use turnstream_schemas::EventTime;

use super::dialogue::{Dialogue, Shape, Utterance, side_by_order};

#[derive(Deserialize)]
pub(super) struct LocomoConversation {
    sample_id: String,
    sessions: Vec<Session>,
}

#[derive(Deserialize)]
struct Session {
    #[serde(default)]
    date_time: String,
    turns: Vec<LocomoTurn>,
}

#[derive(Deserialize)]
struct LocomoTurn {
    id: String,
    speaker: String,
    text: String,
    image_caption: Option<String>,
}

impl Shape for LocomoConversation {
    fn dialogue(self) -> Result<Dialogue, String> {
        let times = times(&self.sessions);
        let mut turns = self.sessions.iter().flat_map(|session| &session.turns);
        let first = turns.next().map_or_else(String::new, |turn| turn.speaker.clone());
        let mut utterances = Vec::new();
        for (place, session) in self.sessions.into_iter().enumerate() {
            for turn in session.turns {
                let mut utterance = Utterance::new(side_by_order(&turn.speaker, &first), turn.text);
                utterance.id = Some(turn.id);
                utterance.timestamp = times.as_ref().map(|times| times[place]);
                if let Some(caption) = turn.image_caption {
                    utterance.metadata.insert("image_caption".to_owned(), caption.into());
                }
                utterances.push(utterance);
            }
        }
        Ok(Dialogue::english(Some(self.sample_id), utterances))
    }
}

/// Returns the times of the sessions, rising; `None` if one cannot be read or they do not rise.
fn times(sessions: &[Session]) -> Option<Vec<EventTime>> {
    let times: Option<Vec<_>> = sessions.iter().map(|session| time(&session.date_time)).collect();
    times.filter(|times| times.is_sorted_by(|before, after| before < after))
}

fn time(text: &str) -> Option<EventTime> {
    let time = DateTime::strptime("%I:%M %p on %d %B, %Y", text.trim()).ok()?;
    let time = time.to_zoned(TimeZone::UTC).ok()?;
    Some(EventTime(time.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dates_of_sessions_are_read() {
        let read = |text| time(text).map(EventTime::millis);
        assert_eq!(read("12:05 am on 1 January, 1970"), Some(5 * 60_000));
        assert_eq!(read("1:00 pm on 2 January, 1970"), Some(37 * 3_600_000));
        assert_eq!(read("13:00 pm on 2 January, 1970"), None);
        assert_eq!(read("noon on 2 January, 1970"), None);
        assert_eq!(read(""), None);
    }

    #[test]
    fn one_invalid_date_discards_all() {
        let session = |date: &str| Session { date_time: date.to_owned(), turns: Vec::new() };
        let (one, two) = (session("1:00 pm on 2 May, 2020"), session("1:00 pm on 3 May, 2020"));
        assert!(times(&[one, two]).is_some());
        let (one, two) = (session("1:00 pm on 3 May, 2020"), session("1:00 pm on 2 May, 2020"));
        assert!(times(&[one, two]).is_none(), "they must rise");
        assert!(times(&[session("1:00 pm on 2 May, 2020"), session("later")]).is_none());
    }
}
