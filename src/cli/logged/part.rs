//! Selects the part of a service's log that is read: by time, offsets, conversations or a share of
//! them, up to known ends.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::RangeInclusive;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use turnstream_log::Record;

/// Parses a moment, given as such or as how long ago it was.
///
/// # Errors
/// The text is neither; the message shows both.
pub(crate) fn moment(text: &str) -> Result<Timestamp, String> {
    let ago = || {
        let ago: SignedDuration = text.parse().ok()?;
        Timestamp::now().checked_sub(ago).ok()
    };
    let time = text.parse().ok().or_else(ago);
    time.ok_or_else(|| {
        "write a time such as 2026-11-26T08:00:00Z, or how long ago, such as 2h or 30m".to_owned()
    })
}

/// A share of conversations, written as `5%`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ConversationShare(f64);

impl FromStr for ConversationShare {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent: Option<f64> = text.strip_suffix('%').and_then(|of| of.trim().parse().ok());
        let share = percent.filter(|of| *of > 0.0 && *of <= 100.0).map(|of| Self(of / 100.0));
        share.ok_or_else(|| "write a share above 0% and at most 100%, such as 5%".to_owned())
    }
}

impl ConversationShare {
    /// Whether the share includes a conversation: always the same ones, which larger shares include
    /// too.
    fn has(self, conversation: &str) -> bool {
        f64::from(crc32fast::hash(conversation.as_bytes())) < self.0 * (f64::from(u32::MAX) + 1.0)
    }
}

/// Selects the part of a log that is read.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct LoggedPart {
    /// Turns since this time, such as 2026-11-26T08:00:00Z, or this long ago, such as 2h or 30m.
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "from_log")]
    pub(crate) since: Option<Timestamp>,
    /// Turns until this time.
    #[arg(long, value_name = "TIME", value_parser = moment, requires = "from_log")]
    pub(crate) until: Option<Timestamp>,
    /// Only these offsets of these partitions, both ends included, such as 0:100-250,1:0-99.
    #[arg(long, value_name = "RANGES", requires = "from_log", conflicts_with_all = ["since", "until"])]
    pub(crate) offsets: Option<OffsetRanges>,
    /// Only this conversation; may be given several times.
    #[arg(long = "conversation", value_name = "ID", requires = "from_log")]
    pub(crate) conversations: Vec<String>,
    /// Only a share of the conversations, such as 5%: always the same ones.
    #[arg(long, value_name = "SHARE", requires = "from_log", conflicts_with = "conversations")]
    pub(crate) sample: Option<ConversationShare>,
}

impl LoggedPart {
    pub(super) fn since_ms(&self) -> Option<i64> {
        self.since.map(Timestamp::as_millisecond)
    }

    /// Whether inputs are left out because of their time or offset.
    pub(crate) fn is_limited(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.offsets.is_some()
    }

    /// Whether an input is selected, judging by its time and offset.
    pub(super) fn has_place(&self, record: &Record) -> bool {
        let at = |time: Option<Timestamp>| time.map(Timestamp::as_millisecond);
        let (since, until) = (at(self.since), at(self.until));
        let is_in_time = record.time_ms.is_none_or(|ms| {
            since.is_none_or(|since| ms >= since) && until.is_none_or(|until| ms <= until)
        });
        let offsets = self.offsets.as_ref();
        is_in_time && offsets.is_none_or(|of| of.has(record.partition, record.offset))
    }

    /// Whether a turn of this conversation is selected. An input without a conversation is, unless
    /// conversations or a share of them are chosen.
    pub(super) fn has(&self, conversation: Option<&str>) -> bool {
        let is_named = |of: &str| self.conversations.iter().any(|id| id == of);
        match (conversation, self.sample) {
            (of, None) if !self.conversations.is_empty() => of.is_some_and(is_named),
            (_, None) => true,
            (of, Some(share)) => of.is_some_and(|of| share.has(of)),
        }
    }
}

/// Offsets of partitions, written as `0:100-250,1:0-99`; both ends are included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OffsetRanges(BTreeMap<i32, RangeInclusive<i64>>);

impl OffsetRanges {
    fn has(&self, partition: i32, offset: i64) -> bool {
        self.0.get(&partition).is_some_and(|range| range.contains(&offset))
    }
}

impl FromStr for OffsetRanges {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let range = |of: &str| {
            let (partition, offsets) = of.split_once(':')?;
            let (first, last) = offsets.split_once('-')?;
            Some((partition.parse().ok()?, first.parse().ok()?..=last.parse().ok()?))
        };
        let ranges: Option<_> = text.split(',').map(range).collect();
        ranges.map(Self).ok_or_else(|| {
            "write offsets as PARTITION:FIRST-LAST, such as 0:100-250,1:0-99".to_owned()
        })
    }
}

/// The ends of partitions, written as `0:17,1:4`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogEnds(pub(super) BTreeMap<i32, i64>);

impl LogEnds {
    /// Whether this offset is before the end of its partition.
    pub(crate) fn has(&self, partition: i32, offset: i64) -> bool {
        self.0.get(&partition).is_some_and(|end| offset < *end)
    }
}

impl Display for LogEnds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ends = self.0.iter().map(|(partition, end)| format!("{partition}:{end}"));
        f.write_str(&ends.collect::<Vec<_>>().join(","))
    }
}

impl FromStr for LogEnds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = |of: &str| {
            let (partition, end) = of.split_once(':')?;
            Some((partition.parse().ok()?, end.parse().ok()?))
        };
        let ends: Option<_> = text.split(',').map(end).collect();
        ends.map(Self)
            .ok_or_else(|| format!("`{text}` is not a list of partition ends, such as 0:17,1:4"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_moment_or_a_while_ago() {
        let ms = |text| moment(text).map(Timestamp::as_millisecond);
        assert_eq!(ms("2026-11-26T08:00:00Z"), Ok(1_795_680_000_000));
        let ago = Timestamp::now().as_millisecond() - ms("2h").expect("a while");
        assert!((7_199_000..7_300_000).contains(&ago), "{ago}");
        assert!(moment("yesterday").is_err());
    }

    #[test]
    fn ends_are_read_as_they_are_written() {
        let ends = LogEnds([(0, 17), (1, 0), (11, 4)].into());
        assert_eq!(ends.to_string(), "0:17,1:0,11:4");
        assert_eq!(ends.to_string().parse(), Ok(ends));
        assert!("0:17,".parse::<LogEnds>().is_err());
    }

    #[test]
    fn offsets_are_chosen_by_partition() {
        let ranges: OffsetRanges = "0:100-250,3:0-0".parse().expect("ranges");
        let has = [(0, 100), (0, 250), (3, 0)].map(|(of, at)| ranges.has(of, at));
        let has_not = [(0, 99), (0, 251), (1, 100), (3, 1)].map(|(of, at)| ranges.has(of, at));
        assert_eq!((has, has_not), ([true; 3], [false; 4]));
        for wrong in ["", "0", "0:1", "0:1-", "0:1-2,"] {
            assert!(wrong.parse::<OffsetRanges>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_has_the_same_conversations_each_time() {
        let share = |text: &str| text.parse::<ConversationShare>();
        for wrong in ["5", "0%", "101%", "some%", "-1%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
        let (few, more, all) = (share("5%"), share("50%"), share("100%"));
        let of = |share: &Result<ConversationShare, String>, at: u32| {
            share.as_ref().expect("a share").has(&format!("c-{at}"))
        };
        let count = |share| (0..10_000).filter(|at| of(share, *at)).count();
        assert!((400..600).contains(&count(&few)), "{}", count(&few));
        assert_eq!(count(&all), 10_000);
        assert!(
            (0..10_000).all(|at| !of(&few, at) || of(&more, at)),
            "the smaller is in the larger"
        );
    }
}
