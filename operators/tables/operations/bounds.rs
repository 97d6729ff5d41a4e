//! Finds the amount that the rows may have at most or at least, and the column that it bounds:
//! "under 3 euros", "over 900 g".

use super::super::columns::amount_and_unit;
use super::Asked;

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
        let (begin, at, is_less) = before.or_else(|| (0..self.words.len()).find_map(behind))?;
        let of_amount = self.words.get(at)?;
        let (amount, unit) = amount_and_unit(of_amount)?;
        let sign: String = of_amount.chars().filter(|it| matches!(it, '€' | '$' | '£')).collect();
        let behind = self.words.get(at + 1).filter(|word| known.units.contains_key(*word));
        let end = at + usize::from(behind.is_some()) + usize::from(begin == at);
        let unit = unit.or(behind.map(String::as_str));
        let of_unit = unit.and_then(|word| known.units.get(word));
        let price = || known.units.get("€").or_else(|| known.units.get("元"));
        let columns = of_unit.or_else(|| known.units.get(&sign)).or_else(price)?;
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
        match alike[..] {
            [] => named.map(|it| (it, amount)),
            [only] => converted(only),
            _ => None,
        }
    }
}
