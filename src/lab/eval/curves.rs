//! Measures how a method's figures move with its settings: the curves, controls and ablations of the
//! papers, on development data. `docs/curves.md` has the definitions and the figures.
//!
//! One module for each method measures; this one holds what they measure and writes the page.

use std::collections::{BTreeMap, BTreeSet};

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use serde::Serialize;

pub mod dcrag;
pub mod dh_rag;
pub mod ragate;
pub mod replayed;
#[cfg(test)]
mod tests;
pub mod unims_rag;

use super::bootstrap::Figure;
use super::plots::{Chart, DrawError, Series};

const TEMPLATE: &str = include_str!("curves/page.html");

/// Figures by name.
pub type Figures = BTreeMap<&'static str, Figure>;

/// The figures at one value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// The value.
    pub at: f64,
    /// The figures.
    pub figures: Figures,
}

/// One way, measured at rising values of a setting.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// The way.
    pub name: String,
    /// The points.
    pub points: Vec<Point>,
}

/// A setting that was varied on one data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sweep {
    /// What was varied, and on what.
    pub title: String,
    /// The data, in words.
    pub about: String,
    /// The setting: the axis of the plots.
    pub setting: &'static str,
    /// The ways.
    pub lines: Vec<Line>,
}

/// Ways that differ in kind, such as ablations, on one data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// What was compared, and on what.
    pub title: String,
    /// The data, in words.
    pub about: String,
    /// Each way with its figures.
    pub rows: Vec<(String, Figures)>,
}

/// Everything measured about a method.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Curves {
    /// The method.
    pub method: &'static str,
    /// Varied settings.
    pub sweeps: Vec<Sweep>,
    /// Compared ways.
    pub comparisons: Vec<Comparison>,
}

/// The page cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A plot cannot be drawn.
    #[error(transparent)]
    Draw(#[from] DrawError),
    /// The template fails.
    #[error("cannot make the page: {0}")]
    Page(#[from] minijinja::Error),
}

impl Sweep {
    fn names(&self) -> Vec<&'static str> {
        named(self.lines.iter().flat_map(|line| &line.points).map(|point| &point.figures))
    }

    /// Draws a plot for each figure.
    fn plots(&self) -> Result<Vec<String>, DrawError> {
        let plot = |figure: &'static str| {
            let series = self.lines.iter().map(|line| {
                let value = |point: &Point| Some((point.at, point.figures.get(figure)?.value?));
                Series {
                    name: line.name.clone(),
                    points: line.points.iter().filter_map(value).collect(),
                }
            });
            let series = series.filter(|series| !series.points.is_empty()).collect();
            Chart { title: figure, axes: [self.setting, figure], series }.draw()
        };
        self.names().into_iter().map(plot).collect()
    }
}

impl Curves {
    /// Makes the page, with every name escaped.
    ///
    /// # Errors
    /// A plot cannot be drawn, or the template fails.
    pub fn page(&self) -> Result<String, PageError> {
        let sweeps = self.sweeps.iter().map(|sweep| {
            let rows = sweep.lines.iter().flat_map(|line| {
                let at = |point: &Point| (line.name.clone(), point.at, shown(&point.figures));
                line.points.iter().map(at).collect::<Vec<_>>()
            });
            Ok(context! {
                sweep => Value::from(Serde(sweep)),
                names => sweep.names(),
                rows => rows.collect::<Vec<_>>(),
                plots => sweep.plots()?,
            })
        });
        let comparisons = self.comparisons.iter().map(|comparison| {
            let rows = comparison.rows.iter().map(|(name, figures)| (name.clone(), shown(figures)));
            context! {
                title => comparison.title.clone(),
                about => comparison.about.clone(),
                names => named(comparison.rows.iter().map(|(_, figures)| figures)),
                rows => rows.collect::<Vec<_>>(),
            }
        });
        let sweeps = sweeps.collect::<Result<Vec<_>, DrawError>>()?;
        let comparisons = comparisons.collect::<Vec<_>>();
        let mut pages = Environment::new();
        pages.add_template("page.html", TEMPLATE)?;
        let page = pages.get_template("page.html")?;
        Ok(page.render(context! { method => self.method, sweeps, comparisons })?)
    }
}

/// Returns the names of the figures that have a value anywhere.
fn named<'f>(all: impl Iterator<Item = &'f Figures>) -> Vec<&'static str> {
    let counted = all.flatten().filter(|(_, figure)| figure.value.is_some());
    let names: BTreeSet<_> = counted.map(|(name, _)| *name).collect();
    names.into_iter().collect()
}

/// Words each figure with its interval.
fn shown(figures: &Figures) -> BTreeMap<&'static str, String> {
    let words = |figure: &Figure| match (figure.value, figure.interval) {
        (Some(value), Some([low, high])) => format!("{value:.3} [{low:.3}, {high:.3}]"),
        (Some(value), None) => format!("{value:.3}"),
        (None, _) => "–".to_owned(),
    };
    figures.iter().map(|(name, figure)| (*name, words(figure))).collect()
}
