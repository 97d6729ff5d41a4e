//! Writes a page about one gate on one data set: the figures, and plots of the ROC curve, of
//! precision over recall, of the scores of both classes, and of where knowledge is needed.

use std::fs;
use std::path::Path;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};

use super::figures::{Scored, precision_recall, roc};
use super::{GateError, MeasuredGate};
use crate::eval::plots::{Chart, Series};

/// The content of a page for one class.
pub struct PageSection<'s> {
    /// The figures.
    pub measured: &'s MeasuredGate,
    /// The scores behind the figures.
    pub scored: &'s Scored,
}

const TEMPLATE: &str = include_str!("report.html");
const BINS: usize = 25;

/// Writes the page, with every name escaped.
///
/// # Errors
/// [`GateError::Write`], [`GateError::Draw`] and [`GateError::Page`].
pub fn write(
    path: &Path,
    (format, data): (&str, &Path),
    sections: &[PageSection<'_>],
) -> Result<(), GateError> {
    let page = page((format, &data.display().to_string()), sections)?;
    fs::write(path, page).map_err(|source| GateError::Write { path: path.to_owned(), source })
}

fn page((format, data): (&str, &str), sections: &[PageSection<'_>]) -> Result<String, GateError> {
    let sections = sections.iter().map(|section| {
        let figures = section.measured.figures.named().into_iter().map(|(name, value)| {
            let shown = value.map_or_else(|| "–".to_owned(), |value| format!("{value:.4}"));
            let interval = section.measured.intervals.get(name);
            let interval = interval.map(|[low, high]| format!("{low:.4} to {high:.4}"));
            (name, shown, interval.unwrap_or_default())
        });
        Ok(context! {
            measured => Value::from(Serde(section.measured)),
            figures => figures.collect::<Vec<_>>(),
            plots => plots(section)?,
        })
    });
    let sections = sections.collect::<Result<Vec<_>, GateError>>()?;
    let mut pages = Environment::new();
    pages.add_template("report.html", TEMPLATE)?;
    let page = pages.get_template("report.html")?;
    Ok(page.render(context! { format, data, sections })?)
}

fn plots(section: &PageSection<'_>) -> Result<Vec<String>, GateError> {
    let Scored { positive, scores, .. } = section.scored;
    let class = section.measured.positive;
    let curve = |name: &str, points| Series { name: name.to_owned(), points };
    let of_class = |wanted: bool, name: &str| {
        let scores = scores.iter().zip(positive).filter(|(_, is)| **is == wanted);
        curve(name, histogram(scores.map(|(it, _)| *it)))
    };
    let by_position = |name: &str, part: fn(&super::Group) -> u64| {
        let share = |(at, group): (&u32, &super::Group)| {
            (f64::from(*at), part(group) as f64 / group.n.max(1) as f64)
        };
        curve(name, section.measured.by_position.iter().map(share).collect())
    };
    let chance = vec![(0.0, 0.0), (1.0, 1.0)];
    let charts = [
        Chart {
            title: "ROC curve",
            axes: ["false positive rate", "true positive rate"],
            series: vec![curve("gate", roc(positive, scores)), curve("chance", chance)],
        },
        Chart {
            title: "Precision over recall",
            axes: ["recall", "precision"],
            series: vec![curve("gate", precision_recall(positive, scores))],
        },
        Chart {
            title: "Scores of both classes",
            axes: ["score of the class", "share of the turns"],
            series: vec![of_class(true, class), of_class(false, "other")],
        },
        Chart {
            title: "By position in the conversation",
            axes: ["turn", "share of the turns"],
            series: vec![
                by_position(class, |group| group.positives),
                by_position("said to be", |group| group.predicted),
            ],
        },
    ];
    charts.iter().map(|chart| Ok(chart.draw()?)).collect()
}

/// Returns the shares of scores in bins from 0 to 1, as the outline of a bar chart.
fn histogram(scores: impl Iterator<Item = f64>) -> Vec<(f64, f64)> {
    let mut counts = [0_u64; BINS];
    for score in scores {
        counts[((score * BINS as f64) as usize).min(BINS - 1)] += 1;
    }
    let all = counts.iter().sum::<u64>().max(1) as f64;
    let bars = counts.iter().enumerate().flat_map(|(bin, count)| {
        let share = *count as f64 / all;
        [(bin as f64 / BINS as f64, share), ((bin + 1) as f64 / BINS as f64, share)]
    });
    bars.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_as_high_as_its_share() {
        let outline = histogram([0.0, 0.01, 1.0, 0.5].into_iter());
        assert_eq!(outline[..2], [(0.0, 0.5), (0.04, 0.5)]);
        assert_eq!(outline[2 * BINS - 1], (1.0, 0.25));
        assert_eq!(outline.iter().step_by(2).map(|(_, share)| share).sum::<f64>(), 1.0);
    }
}
