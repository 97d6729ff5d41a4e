//! Finds the amount that the rows may have at most or at least, and the column that it bounds:
//! "under 3 euros", "over 900 g".

use super::super::columns::amount_and_unit;
use super::super::units;
use super::super::words::Words;
use super::Asked;

/// Returns where a comparative with an amount is ("longer than 25 cm"), where the amount is, and
/// whether it is an upper bound.
pub(super) fn beyond(words: &[String], known: &Words) -> Option<(usize, usize, bool)> {
    let at = words.windows(3).position(|part| {
        known.extremes.contains_key(&part[0])
            && part[1] == "than"
            && amount_and_unit(&part[2]).is_some()
    })?;
    Some((at, at + 2, !known.extremes[&words[at]].is_most))
}

/// Whether words ask for the most or least of something, or set an amount as a bound.
pub(super) fn compares(words: &[String], known: &Words) -> bool {
    let is_most = |at: usize| {
        let word = &words[at];
        let is_superlative = word.ends_with("est") || word.starts_with('最');
        let is_bare = at + 1 == words.len() || at > 0 && words[at - 1] == "the";
        let is_of_column = known.amounts.contains_key(word);
        is_superlative && (is_of_column || known.extremes.contains_key(word))
            || is_bare && is_of_column
    };
    let is_bound = |at: usize| {
        let is_unit = |at: usize| words.get(at).is_some_and(|it| known.units.contains_key(it));
        let behind = words.get(at + 1 + usize::from(is_unit(at + 1)));
        let is_behind = behind.is_some_and(|it| known.bounds_behind.contains_key(it));
        let is_amount = |at: usize| words.get(at).is_some_and(|it| amount_and_unit(it).is_some());
        let is_before =
            |phrase: &[String]| words[at..].starts_with(phrase) && is_amount(at + phrase.len());
        is_amount(at) && is_behind || known.bounds.iter().any(|(phrase, _)| is_before(phrase))
    };
    (0..words.len()).any(|at| is_most(at) || is_bound(at)) || beyond(words, known).is_some()
}

impl Asked<'_> {
    /// Returns the bound that the utterance sets: whether it is an upper one, the amount, and the
    /// column.
    pub(super) fn bound(&mut self) -> Option<(bool, f64, usize)> {
        let known = self.known;
        let before = known.bounds.iter().find_map(|(words, is_less)| {
            let mut windows = self.words.windows(words.len());
            let at = windows.position(|window| window == words)?;
            Some((at, at + words.len(), *is_less))
        });
        // An amount with what stands before it or behind it: where that begins, and where the
        // amount is.
        let is_unit = |at: usize| self.words.get(at).is_some_and(|it| known.units.contains_key(it));
        let behind = |at: usize| {
            amount_and_unit(&self.words[at])?;
            let is_less =
                known.bounds_behind.get(self.words.get(at + 1 + usize::from(is_unit(at + 1)))?)?;
            Some((at, at, *is_less))
        };
        let (begin, at, is_less) = beyond(&self.words, known)
            .or(before)
            .or_else(|| (0..self.words.len()).find_map(behind))?;
        let of_amount = self.words.get(at)?;
        let (amount, unit) = amount_and_unit(of_amount)?;
        let sign: String = of_amount.chars().filter(|it| matches!(it, '€' | '$' | '£')).collect();
        let behind = self.words.get(at + 1).filter(|word| known.units.contains_key(*word));
        let end = at + usize::from(behind.is_some()) + usize::from(begin == at);
        let unit = unit.or(behind.map(String::as_str));
        let of_unit = unit.and_then(|word| known.units.get(word));
        let price = || known.units.get("€").or_else(|| known.units.get("元"));
        let of_word = known.extremes.get(&self.words[begin]).map(|it| &it.columns);
        let of_word = of_word.filter(|columns| self.numbers(columns).is_some());
        let of_unit = of_word.or(of_unit).or_else(|| known.units.get(&sign));
        let columns = of_unit.or_else(price)?;
        let (column, amount) = self.in_column(amount, unit.unwrap_or_default(), columns)?;
        self.explain(begin..=end);
        self.explain_column(column);
        Some((is_less, amount, column))
    }

    /// Returns the column that an amount is about, and the amount in the column's unit. It is the
    /// column with one of these words, else the only one whose unit measures the same: a width and
    /// a height are two.
    fn in_column(&self, amount: f64, unit: &str, words: &[String]) -> Option<(usize, f64)> {
        let columns = &self.table.columns;
        let converted = |at: usize| Some((at, columns[at].unit?.amount_of(amount, unit)?));
        let named = self.numbers(words);
        if let Some(found) = named.and_then(converted) {
            return Some(found);
        }
        let is_like = |at: &usize| columns[*at].unit.is_some_and(|it| it.is_like(unit));
        let alike = self.most_said((0..columns.len()).filter(is_like).collect());
        // Five hours are no length, if the table says in which unit its lengths are.
        let is_other = |at: &usize| columns[*at].unit.is_some() && units::unit(unit).is_some();
        match alike[..] {
            [] => named.filter(|at| !is_other(at)).map(|at| (at, amount)),
            [only] => converted(only),
            _ => None,
        }
    }
}
