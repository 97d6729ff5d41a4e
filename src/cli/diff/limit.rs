//! Bounds on how many turns may change, as `--fail-over` gives them.

use std::fmt;
use std::str::FromStr;

use turnstream_schemas::Action;

/// The most turns that may change in a given way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    /// The action before; `None` for any.
    from: Option<Action>,
    /// The action after; `None` for any.
    to: Option<Action>,
    most: Most,
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Most {
    Turns(u64),
    /// The share of all compared turns, 0..=1.
    Share(f64),
}

impl Limit {
    /// Whether more turns changed than allowed. `count` returns how many turns went from one action
    /// to another; `compared` is the number of turns.
    pub(super) fn is_exceeded(
        &self,
        compared: u64,
        count: impl Fn(Option<Action>, Option<Action>) -> u64,
    ) -> bool {
        let changed = count(self.from, self.to);
        match self.most {
            Most::Turns(most) => changed > most,
            Most::Share(most) => changed as f64 > most * compared as f64,
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text)
    }
}

impl FromStr for Limit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let form = "write FROM->TO > N, or > N%, such as \"answer->decline > 1%\"; FROM and TO are \
                    answer, ask, decline, hand_off, social or any";
        let (change, most) = text.split_once(" > ").ok_or(form)?;
        let (from, to) = change.split_once("->").ok_or(form)?;
        let action = |name: &str| match name.trim() {
            "any" => Ok(None),
            name => {
                let known = Action::ALL.into_iter().find(|action| action.name() == name);
                known.map(Some).ok_or_else(|| format!("`{name}` is not an action; {form}"))
            }
        };
        let number = |text: &str| text.trim().parse::<f64>().ok().filter(|it| *it >= 0.0);
        let most = match most.trim().strip_suffix('%') {
            Some(percent) => Most::Share(number(percent).ok_or(form)? / 100.0),
            None => Most::Turns(most.trim().parse().map_err(|_| form)?),
        };
        Ok(Self { from: action(from)?, to: action(to)?, most, text: text.to_owned() })
    }
}
