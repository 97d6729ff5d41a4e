//! Finds the column of a row that a Chinese text asks about: by the column's name, by a phrase, by its unit
//! (多少个), or by a word of it that is asked for with its opposite (辣不辣).

use super::super::Row;
use super::words::KNOWN;
use super::{ChineseNames, NamedRow, longest_run, place, tokens};

/// How much a column is asked for by 多少 or 几 before its unit, and by 辣不辣, beside the 1 of a column that is
/// named.
const UNIT: f64 = 0.9;
const WHETHER: f64 = 0.9;

impl ChineseNames {
    /// Returns the one column whose unit a text asks for (多少个, 几天), with the places of the tokens that ask.
    fn by_unit(&self, text: &[String], row: &NamedRow) -> Option<(usize, Vec<usize>)> {
        let asked = |unit: &str| {
            let unit = tokens(unit);
            let phrases = [["多", "少"].as_slice(), &["几"]].map(|asks| {
                let asks = asks.iter().map(|it| (*it).to_owned());
                asks.chain(unit.iter().cloned()).collect::<Vec<_>>()
            });
            phrases.iter().find_map(|it| place(text, it, |at| !row.used.contains(&at)))
        };
        let unit = |at: usize| Some((at, self.columns[at].simplified.split_once(' ')?.1));
        let units: Vec<(usize, &str)> = (0..self.columns.len()).filter_map(unit).collect();
        let is_only = |unit: &str| units.iter().filter(|(_, it)| *it == unit).count() == 1;
        let mut own = units.iter().filter(|(_, unit)| is_only(unit));
        own.find_map(|(column, unit)| Some((*column, asked(unit)?)))
    }

    /// Returns the place of the column of a row that a text asks about, if it is one, and the places
    /// of the tokens that ask.
    pub(super) fn column(
        &self,
        text: &[String],
        row: &NamedRow,
        rows: &[Row],
    ) -> (Option<usize>, Vec<usize>) {
        let has = |column: &usize| {
            let name = &self.columns[*column].name;
            rows[row.row].columns.iter().any(|it| it.name == *name)
        };
        let mut scores: Vec<(f64, Vec<usize>)> = vec![(0.0, Vec::new()); self.columns.len()];
        for column in (0..self.columns.len()).filter(has) {
            let name = &self.columns[column].tokens;
            let run = longest_run(text, name, |at, _| !row.used.contains(&at));
            if let Some((begin, _, run)) = run.filter(|(.., run)| *run >= 2) {
                scores[column].0 = 0.5 + 0.5 * run as f64 / name.len() as f64;
                scores[column].1.extend(begin..begin + run);
            }
        }
        let mut taken: Vec<usize> = Vec::new();
        if let Some((column, places)) = self.by_unit(text, row).filter(|(column, _)| has(column)) {
            scores[column].0 += UNIT;
            scores[column].1.extend(&places);
            taken.extend(places);
        }
        for phrase in &KNOWN.asks {
            let is_free = |at: usize| !taken.contains(&at) && !row.used.contains(&at);
            let Some(places) = place(text, &phrase.tokens, is_free) else { continue };
            taken.extend(&places);
            let is_named = || self.columns.iter().any(|it| it.simplified.contains(&phrase.text));
            if phrase.columns.is_empty() && !is_named() {
                return (None, taken);
            }
            let with = |words: &String| {
                let holds = |at: &usize| has(at) && self.columns[*at].simplified.contains(words);
                Some((0..self.columns.len()).filter(holds).collect::<Vec<_>>())
                    .filter(|it| !it.is_empty())
            };
            for column in phrase.columns.iter().find_map(with).unwrap_or_default() {
                let (score, used) = &mut scores[column];
                let is_counted = places.iter().any(|at| used.contains(at));
                // Of two columns that have the words, the one that the phrase asks for.
                *score += if is_counted { 0.05 } else { phrase.weight };
                used.extend(&places);
            }
        }
        for at in 0..text.len().saturating_sub(2) {
            let (word, places) = (&text[at], at..at + 3);
            let is_asked = text[at + 1] == "不" && text[at + 2] == *word;
            let is_free = places.clone().all(|it| !taken.contains(&it) && !row.used.contains(&it));
            if !is_asked || !is_free || KNOWN.said.iter().any(|said| said[..] == [word.clone()]) {
                continue;
            }
            let of_word = |it: &usize| has(it) && self.columns[*it].simplified.contains(&**word);
            for column in (0..self.columns.len()).filter(of_word) {
                scores[column].0 += WHETHER;
                scores[column].1.extend(places.clone());
            }
        }
        let most = scores.iter().map(|(score, _)| *score).fold(0.0, f64::max);
        let best: Vec<usize> = (0..scores.len()).filter(|it| scores[*it].0 == most).collect();
        match best[..] {
            [only] if most > 0.0 => (Some(only), std::mem::take(&mut scores[only].1)),
            _ => (None, taken),
        }
    }

    /// Returns the column that a text asks about by its words, or else by a value (挂锁还是蓝牙锁), and the places
    /// of the tokens that ask. The row's own value
    /// asks for it only where the text asks whether it is so, and describes the row elsewhere, as does a
    /// value beside the row's name.
    pub(super) fn column_or_value(
        &self,
        text: &[String],
        row: &NamedRow,
        rows: &[Row],
    ) -> (Option<usize>, Vec<usize>) {
        let found = self.column(text, row, rows);
        if found.0.is_some() || !found.1.is_empty() {
            return found;
        }
        let whether = text.iter().any(|it| matches!(&**it, "吗" | "么" | "不"))
            || text.windows(2).any(|it| it[0] == "还" && it[1] == "是");
        let cells = &rows[row.row].columns;
        let is_free = |at: usize| {
            let near = at.saturating_sub(1)..at + 3;
            !row.used.iter().any(|used| near.contains(used))
        };
        let found = self.values.iter().filter_map(|(value, column)| {
            let (places, column) = (place(text, value, is_free)?, (*column)?);
            let cell = cells.iter().find(|it| it.name == self.columns[column].name)?;
            (whether || tokens(&cell.value) != *value).then_some((places, column))
        });
        let found: Vec<(Vec<usize>, usize)> = found.collect();
        match found.first() {
            Some((_, first)) if found.iter().all(|(_, it)| it == first) => {
                let places = found.iter().flat_map(|(places, _)| places.iter().copied());
                (Some(*first), places.collect())
            }
            _ => (None, Vec::new()),
        }
    }
}
