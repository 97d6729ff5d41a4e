//! Writes a page about one gate on one data set: the figures, and plots of the ROC curve, of
//! precision over recall, of the scores of both classes, and of where knowledge is needed.

use std::fs;
use std::path::Path;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, context};
use plotters::prelude::*;

use super::figures::{Scored, precision_recall, roc};
use super::{GateError, MeasuredGate};

/// The content of a page for one class.
pub struct PageSection<'s> {
    /// The figures.
    pub measured: &'s MeasuredGate,
    /// The scores behind the figures.
    pub scored: &'s Scored,
}

const TEMPLATE: &str = include_str!("report.html");
/// The size of a plot in pixels.
const SIZE: (u32, u32) = (480, 340);
/// The most points of a curve.
const MAX_POINTS: usize = 600;
const BINS: usize = 25;

/// Writes the page, with every name escaped.
///
/// # Errors
/// [`GateError::Write`] and [`GateError::Draw`].
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
    let rendered = pages
        .add_template("report.html", TEMPLATE)
        .and_then(|()| pages.get_template("report.html"))
        .and_then(|template| template.render(context! { format, data, sections }));
    rendered.map_err(|error| GateError::Draw(error.to_string()))
}

fn plots(section: &PageSection<'_>) -> Result<Vec<String>, GateError> {
    let Scored { positive, scores, .. } = section.scored;
    let class = section.measured.positive;
    let curve = |name: &str, points| Series { name: name.to_owned(), colour: BLUE, points };
    let of_class = |wanted: bool, name: &str, colour| {
        let scores = scores.iter().zip(positive).filter(|(_, is)| **is == wanted);
        Series { name: name.to_owned(), colour, points: histogram(scores.map(|(it, _)| *it)) }
    };
    let by_position = |name: &str, colour, part: fn(&super::Group) -> u64| {
        let share = |(at, group): (&u32, &super::Group)| {
            (f64::from(*at), part(group) as f64 / group.n.max(1) as f64)
        };
        let points = section.measured.by_position.iter().map(share).collect();
        Series { name: name.to_owned(), colour, points }
    };
    let chance = vec![(0.0, 0.0), (1.0, 1.0)];
    let charts = [
        Chart {
            title: "ROC curve",
            axes: ["false positive rate", "true positive rate"],
            series: vec![
                curve("gate", roc(positive, scores)),
                Series { name: "chance".to_owned(), colour: BLACK, points: chance },
            ],
        },
        Chart {
            title: "Precision over recall",
            axes: ["recall", "precision"],
            series: vec![curve("gate", precision_recall(positive, scores))],
        },
        Chart {
            title: "Scores of both classes",
            axes: ["score of the class", "share of the turns"],
            series: vec![of_class(true, class, BLUE), of_class(false, "other", RED)],
        },
        Chart {
            title: "By position in the conversation",
            axes: ["turn", "share of the turns"],
            series: vec![
                by_position(class, BLUE, |group| group.positives),
                by_position("said to be", RED, |group| group.predicted),
            ],
        },
    ];
    charts.iter().map(Chart::draw).collect()
}

struct Series {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Lines over two axes; the second axis ends at 1.
struct Chart {
    title: &'static str,
    axes: [&'static str; 2],
    series: Vec<Series>,
}

impl Chart {
    fn draw(&self) -> Result<String, GateError> {
        let mut svg = String::new();
        self.draw_on(SVGBackend::with_string(&mut svg, SIZE))
            .map_err(|error| GateError::Draw(error.to_string()))?;
        Ok(svg)
    }

    fn draw_on<'b>(
        &self,
        backend: SVGBackend<'b>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let last = points().map(|(x, _)| *x).fold(1.0, f64::max);
        let top = points().map(|(_, y)| *y).fold(0.1, f64::max).min(1.0);
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d(0.0..last, 0.0..top)?;
        chart.configure_mesh().x_desc(self.axes[0]).y_desc(self.axes[1]).draw()?;
        for series in &self.series {
            let colour = series.colour;
            chart
                .draw_series(LineSeries::new(thinned(&series.points), &colour))?
                .label(&*series.name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 16, y)], colour));
        }
        chart
            .configure_series_labels()
            .background_style(WHITE.mix(0.8))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()
    }
}

/// Thins points to at most [`MAX_POINTS`] and the last one.
fn thinned(points: &[(f64, f64)]) -> impl Iterator<Item = (f64, f64)> {
    let every = points.len().div_ceil(MAX_POINTS).max(1);
    let last = points.last().copied();
    points.iter().copied().step_by(every).chain(last)
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

    #[test]
    fn a_thinned_curve_keeps_its_ends() {
        let curve: Vec<(f64, f64)> = (0..5_000).map(|at| (f64::from(at), 0.0)).collect();
        let thin: Vec<_> = thinned(&curve).collect();
        assert!(thin.len() <= MAX_POINTS + 1);
        assert_eq!((thin[0].0, thin.last().map(|point| point.0)), (0.0, Some(4_999.0)));
    }
}
