//! Words a row: its subject, and some of its columns.

use turnstream_knowledge::language::{Lexicon, has_han};
use turnstream_schemas::{Column, RowOperation, RowsAsked, TableRow};

use super::subject;

/// Units at the end of a column's name, each as it is said behind a number.
pub(super) const UNITS: &[(&str, &str)] = &[
    ("eur", " EUR"),
    ("euro", " euros"),
    ("usd", " USD"),
    ("gbp", " GBP"),
    ("chf", " CHF"),
    ("cent", " cents"),
    ("percent", "%"),
    ("min", " minutes"),
    ("minutes", " minutes"),
    ("hours", " hours"),
    ("days", " days"),
    ("weeks", " weeks"),
    ("months", " months"),
    ("years", " years"),
    ("mm", " mm"),
    ("cm", " cm"),
    ("m", " m"),
    ("m2", " m²"),
    ("m3", " m³"),
    ("km", " km"),
    ("g", " g"),
    ("kg", " kg"),
    ("ml", " ml"),
    ("l", " l"),
    ("litres", " litres"),
    ("w", " W"),
    ("kw", " kW"),
    ("kwh", " kWh"),
    ("gb", " GB"),
    ("db", " dB"),
    ("people", " people"),
    ("persons", " persons"),
];

/// Behind a unit at the end of a column's name, what an amount is for, beside units: a price of 9 EUR per
/// hour.
const PER: [&str; 6] = ["hour", "day", "night", "week", "month", "year"];

/// Says columns of a row as a sentence that names the row's subject. Returns `None` if no column is
/// left beside the subject.
pub fn said(row: &[Column], chosen: &[&Column], lexicon: &Lexicon) -> Option<String> {
    let subject = subject(row)?;
    let others = chosen.iter().filter(|column| column.name != subject.name);
    let is_chinese = lexicon.is_chinese();
    let is = if is_chinese { "是" } else { " is " };
    let pair = |column: &&Column| {
        if is_chinese && let Some(flag) = flag_in_chinese(column) {
            return flag;
        }
        let (name, unit) = with_unit(column).unwrap_or((&column.name, String::new()));
        format!("{name}{is}{}{unit}", column.value)
    };
    let pairs: Vec<String> = others.map(pair).collect();
    let (last, first) = pairs.split_last()?;
    if is_chinese {
        return Some(format!("{}：{}。", subject.value, pairs.join("，")));
    }
    let and = if first.is_empty() { "" } else { " and " };
    Some(format!("For {}: {}{and}{last}.", subject.value, first.join(", ")))
}

/// Returns what a column is called: its name, without a unit that is no word (`price eur`, but `max people`).
pub fn called(column: &Column) -> &str {
    let is_word = |unit: &str| unit.trim_start().len() > 3 && column.name.ends_with(unit);
    match with_unit(column) {
        Some((name, unit)) if !is_word(&unit) => name,
        _ => &column.name,
    }
}

/// Says a column that holds yes or no in Chinese: 可带宠物 or 不可带宠物. Returns `None` for other
/// columns.
fn flag_in_chinese(column: &Column) -> Option<String> {
    let holds = match &*column.value {
        "yes" | "是" => true,
        "no" | "否" => false,
        _ => return None,
    };
    let name = &column.name;
    let is_verb = name.starts_with(['可', '能', '有', '含', '是', '带', '支', '需', '免', '防']);
    Some(match (is_verb, holds) {
        (true, true) => name.clone(),
        (true, false) if name.starts_with('有') => format!("没{name}"),
        (true, false) => format!("不{name}"),
        (false, true) => format!("{name}：是"),
        (false, false) => format!("{name}：否"),
    })
}

/// The most rows that are named.
const MOST_NAMED: usize = 8;

/// Says the rows that answer a row operation: each with the column that the operation is about, or
/// their names. Returns `None` if there are none.
pub fn said_of_all(rows: &[&TableRow], asked: &RowsAsked, lexicon: &Lexicon) -> Option<String> {
    let few = || rows.iter().take(MOST_NAMED);
    let by_column = |row: &&TableRow| {
        let column = row.columns.iter().find(|it| Some(&it.name) == asked.column.as_ref())?;
        said(&row.columns, &[column], lexicon)
    };
    let is_by_number = few().any(|row| {
        let column = row.columns.iter().find(|it| Some(&it.name) == asked.column.as_ref());
        column.is_some_and(|it| !matches!(&*it.value, "yes" | "是" | "no" | "否" | "0"))
    });
    let is_compared = asked.operation == RowOperation::Compare;
    if asked.column.is_some() && (is_compared || is_by_number) {
        let pairs: Vec<String> = few().filter_map(by_column).collect();
        let is_chinese = lexicon.is_chinese();
        return (!pairs.is_empty()).then(|| pairs.join(if is_chinese { "" } else { " " }));
    }
    let names = few().filter_map(|row| Some(subject(&row.columns)?.value.clone()));
    let mut names: Vec<String> = names.collect();
    let rest = rows.len() - names.len();
    if lexicon.is_chinese() {
        let and_more = if rest > 0 { format!("等{}个", rows.len()) } else { String::new() };
        let listed = format!("{}{and_more}。", names.join("、"));
        return (!names.is_empty()).then(|| match asked.operation {
            RowOperation::Count => format!("{}个：{listed}", rows.len()),
            _ => listed,
        });
    }
    if rest > 0 {
        names.push(format!("{rest} more"));
    }
    let (last, first) = names.split_last()?;
    let listed =
        if first.is_empty() { last.clone() } else { format!("{} and {last}", first.join(", ")) };
    Some(match asked.operation {
        RowOperation::Count => format!("{}: {listed}.", rows.len()),
        _ => format!("{listed}."),
    })
}

/// Returns the name of a column without its unit, and the unit, if the value is a number and the
/// name ends in a unit: `price eur` and 349 is a price of 349 EUR, and `price eur night` one per night. Behind a
/// Chinese name, any last part is a unit (`价格 元`).
fn with_unit(column: &Column) -> Option<(&str, String)> {
    let is_number = column.value.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    let known = |unit: &str| UNITS.iter().find(|(word, _)| *word == unit).map(|(_, said)| *said);
    let (name, last) = column.name.rsplit_once(' ').filter(|_| is_number)?;
    let per = known(last).map(str::trim_start).or(PER.contains(&last).then_some(last));
    if let (Some(per), Some((name, of))) = (per, name.rsplit_once(' '))
        && let Some(unit) = known(of)
    {
        return Some((name, format!("{unit} per {per}")));
    }
    Some((name, known(last).or_else(|| has_han(last).then_some(last))?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_stands_behind_its_number() {
        let column = |name: &str, value: &str| Column { name: name.into(), value: value.into() };
        let row = [
            column("id", "T-1"),
            column("name", "Summit"),
            column("price eur", "349"),
            column("delivery days", "2 to 3"),
            column("size m2", "4.5"),
            column("rent eur night", "9"),
            column("rate cent kwh", "31"),
            column("sold by min", "no"),
        ];
        let chosen: Vec<&Column> = row[2..].iter().collect();
        let expected = "For Summit: price is 349 EUR, delivery days is 2 to 3, size is 4.5 m², rent is 9 EUR per night, rate is 31 cents per kWh and sold by min is no.";
        assert_eq!(said(&row, &chosen, Lexicon::english()).as_deref(), Some(expected));
        assert_eq!(said(&row, &[&row[1]], Lexicon::english()), None);
        let names: Vec<&str> = chosen[..4].iter().map(|it| called(it)).collect();
        assert_eq!(names, ["price", "delivery days", "size", "rent"]);
        assert_eq!(called(&column("max people", "5")), "max people");
        let row = [column("名称", "青瓦小院"), column("每晚价 元", "468"), column("城市", "苏州")];
        let expected = "青瓦小院：每晚价是468元，城市是苏州。";
        assert_eq!(said(&row, &[&row[1], &row[2]], Lexicon::chinese()).as_deref(), Some(expected));
    }

    #[test]
    fn yes_and_no_are_said_in_chinese() {
        let column = |name: &str, value: &str| Column { name: name.into(), value: value.into() };
        let row = [
            column("名称", "青瓦小院"),
            column("可带宠物", "no"),
            column("有电子书", "no"),
            column("可上门", "是"),
            column("早餐", "no"),
        ];
        let chosen: Vec<&Column> = row[1..].iter().collect();
        let expected = "青瓦小院：不可带宠物，没有电子书，可上门，早餐：否。";
        assert_eq!(said(&row, &chosen, Lexicon::chinese()).as_deref(), Some(expected));
    }
}
