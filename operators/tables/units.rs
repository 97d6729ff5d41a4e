//! Knows units that measure the same, such as g and kg, and converts amounts from one into another.
//!
//! By it [`columns`](super::columns) reads `800 g` and `1.2 kg` as numbers of one column, and
//! [`operations`](super::operations) brings an amount that is asked for into the unit of the
//! column. Currencies are not here: their rates change.

use std::cmp::Reverse;

use turnstream_ports::script::{has_han, is_han};
use turnstream_schemas::Column;

use super::columns::amount_and_unit;
use super::said::UNITS as UNITS_OF_NAMES;
use super::words;

/// What a unit measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dimension {
    Mass,
    Length,
    Volume,
    Time,
    Data,
    Power,
}

use Dimension::{Data, Length, Mass, Power, Time, Volume};

/// A unit that can be converted.
#[derive(Debug, PartialEq)]
pub(super) struct Unit {
    /// How it is spelled, in lower case.
    words: &'static [&'static str],
    dimension: Dimension,
    /// How many of the smallest unit of its dimension it is.
    factor: f64,
}

/// The units. A "g" is a gram, and a gigabyte only where a column of data is asked for (5g流量).
static UNITS: [Unit; 16] = [
    Unit { words: &["g", "gram", "grams", "克"], dimension: Mass, factor: 1.0 },
    Unit { words: &["斤"], dimension: Mass, factor: 500.0 },
    Unit { words: &["kg", "kilo", "kilos", "公斤", "千克"], dimension: Mass, factor: 1e3 },
    Unit { words: &["mm", "毫米"], dimension: Length, factor: 1.0 },
    Unit { words: &["cm", "厘米", "公分"], dimension: Length, factor: 10.0 },
    Unit {
        words: &["m", "metre", "metres", "meter", "meters", "米"],
        dimension: Length,
        factor: 1e3,
    },
    Unit { words: &["km", "公里", "千米"], dimension: Length, factor: 1e6 },
    Unit { words: &["ml", "毫升"], dimension: Volume, factor: 1.0 },
    Unit {
        words: &["l", "litre", "litres", "liter", "liters", "升"],
        dimension: Volume,
        factor: 1e3,
    },
    Unit { words: &["min", "mins", "minute", "minutes", "分钟"], dimension: Time, factor: 1.0 },
    Unit {
        words: &["h", "hr", "hrs", "hour", "hours", "小时", "个小时", "钟头", "个钟头"],
        dimension: Time,
        factor: 60.0,
    },
    Unit { words: &["mb"], dimension: Data, factor: 1.0 },
    Unit { words: &["gb", "g"], dimension: Data, factor: 1e3 },
    Unit { words: &["tb"], dimension: Data, factor: 1e6 },
    Unit { words: &["w", "watt", "watts", "瓦"], dimension: Power, factor: 1.0 },
    Unit { words: &["kw", "千瓦"], dimension: Power, factor: 1e3 },
];

/// Words of a name behind which a unit is what an amount is for: a price per kg is no weight.
const FOR: [&str; 13] =
    ["price", "fee", "cost", "rate", "rent", "fare", "tariff", "per", "价", "租", "费", "元", "每"];

impl Unit {
    /// Returns an amount of this unit in another one of its dimension.
    pub(super) fn convert(&self, amount: f64, into: &Self) -> f64 {
        if self == into {
            return amount;
        }
        // Without the error of the multiplication, for 2300 g and 2.3 kg are the same.
        (amount * self.factor / into.factor * 1e9).round() / 1e9
    }

    /// Returns an amount of the unit that a word says in this unit. `None` if the word says none of
    /// its dimension.
    pub(super) fn amount_of(&self, amount: f64, word: &str) -> Option<f64> {
        let mut alike = UNITS.iter().filter(|it| it.dimension == self.dimension);
        Some(alike.find(|it| it.words.contains(&word))?.convert(amount, self))
    }

    /// Whether a word says a unit of its dimension before any other.
    pub(super) fn is_like(&self, word: &str) -> bool {
        unit(word).is_some_and(|it| it.dimension == self.dimension)
    }
}

/// Returns the unit that a word in lower case says.
pub(super) fn unit(word: &str) -> Option<&'static Unit> {
    UNITS.iter().find(|it| it.words.contains(&word))
}

/// Whether an utterance asks for an amount in a unit that measures something else than a column does, by its
/// name or its value: "how many litres does it hold?" asks for no weight.
pub(crate) fn measures_otherwise(column: &Column, utterance: &str) -> bool {
    let Some(word) = asked_for(&utterance.to_lowercase()) else { return false };
    let names: Vec<String> = words(&column.name).split(' ').map(str::to_lowercase).collect();
    let value = column.value.to_lowercase();
    let of_value = || unit(amount_and_unit(&value.replace(' ', ""))?.1?);
    let own = of_name(&names).or_else(of_value);
    own.is_some_and(|own| own.amount_of(1.0, word).is_none())
}

/// Returns the unit behind "how many", 多少 or 几, as [`UNITS`] spell it.
fn asked_for(utterance: &str) -> Option<&'static str> {
    let begins = |behind: &str, word: &str| {
        let next = behind.strip_prefix(word).map(|it| it.chars().next());
        let is_cut = |next: Option<char>| next.is_some_and(|it| it.is_alphabetic() && !is_han(it));
        next.is_some_and(|next| !is_cut(next))
    };
    ["how many ", "多少", "几"].iter().find_map(|asking| {
        let (_, behind) = utterance.split_once(asking)?;
        let spelled = UNITS.iter().flat_map(|it| it.words).copied();
        spelled.filter(|word| begins(behind, word)).max_by_key(|word| word.len())
    })
}

/// Returns the unit that most of some amounts have, the first of them on a tie. `None` if one has
/// no unit or another dimension.
pub(super) fn most_common(units: &[Option<&'static Unit>]) -> Option<&'static Unit> {
    let units: Vec<&Unit> = units.iter().copied().collect::<Option<_>>()?;
    if units.iter().any(|it| it.dimension != units[0].dimension) {
        return None;
    }
    let place = |unit: &Unit| units.iter().position(|it| *it == unit);
    let count = |unit: &Unit| units.iter().filter(|it| **it == unit).count();
    let given = UNITS.iter().filter(|it| units.contains(it));
    given.max_by_key(|it| (count(it), Reverse(place(it))))
}

/// Returns the unit that the words of a column's name end in: `weight kg`, `重量 公斤`. `None` if an
/// amount is for each of it: `price eur min`.
pub(super) fn of_name(words: &[String]) -> Option<&'static Unit> {
    let (last, before) = words.split_last().filter(|(_, before)| !before.is_empty())?;
    let is_unit = |word: &String| UNITS_OF_NAMES.iter().any(|(unit, _)| unit == word);
    let is_for = |word: &String| {
        is_unit(word) || FOR.iter().any(|it| word == it || has_han(it) && word.contains(it))
    };
    let is_own = (is_unit(last) || has_han(last)) && !before.iter().any(is_for);
    unit(last).filter(|_| is_own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_converted_within_a_dimension() {
        let of = |amount: f64, word: &str, into: &str| unit(into)?.amount_of(amount, word);
        for (amount, word, into, expected) in [
            (800.0, "g", "kg", Some(0.8)),
            (2.3, "公斤", "克", Some(2300.0)),
            (3.0, "斤", "kg", Some(1.5)),
            (180.0, "cm", "m", Some(1.8)),
            (1.5, "升", "ml", Some(1500.0)),
            (90.0, "minutes", "h", Some(1.5)),
            (5.0, "g", "mb", Some(5000.0)),
            (1.1, "kg", "千克", Some(1.1)),
            (1.0, "g", "ml", None),
            (1.0, "eur", "g", None),
        ] {
            assert_eq!(of(amount, word, into), expected, "{amount} {word} in {into}");
        }
    }

    #[test]
    fn a_question_for_a_unit_asks_for_no_other_amount() {
        let is_other = |utterance: &str, name: &str, value: &str| {
            measures_otherwise(&Column { name: name.into(), value: value.into() }, utterance)
        };
        for (utterance, name, value, expected) in [
            ("石瓢壶装多少毫升", "净重 克", "310", true),
            ("石瓢壶装多少毫升", "容量", "0.3升", false),
            ("多少瓦的", "净重 克", "2100", true),
            ("How many litres does it hold?", "weight", "1.2 kg", true),
            ("How many litres does it hold?", "colour", "grey", false),
            ("How many grams is it?", "weight kg", "1.2", false),
            ("how many g do I get?", "data gb", "5", false),
            ("how many metal ones are there?", "weight kg", "1.2", false),
            ("几位师傅", "时长 分钟", "90", false),
        ] {
            assert_eq!(is_other(utterance, name, value), expected, "{utterance} {name}");
        }
    }

    #[test]
    fn a_name_ends_in_the_unit_of_its_column() {
        for (name, expected) in [
            ("weight kg", unit("kg")),
            ("重量 千克", unit("千克")),
            ("duration min", unit("min")),
            ("price eur min", None),
            ("price kg", None),
            ("运费 公斤", None),
            ("min people", None),
            ("size m2", None),
            ("m", None),
        ] {
            let words: Vec<String> = name.split(' ').map(str::to_owned).collect();
            assert_eq!(of_name(&words), expected, "{name}");
        }
    }
}
