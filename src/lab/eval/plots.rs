//! Draws lines over two axes, as SVG for a page.

use plotters::prelude::*;

/// The size of a plot in pixels.
const SIZE: (u32, u32) = (480, 340);
/// The most points of a line.
const MAX_POINTS: usize = 600;
/// The colours of the lines, in order.
const COLOURS: [RGBColor; 6] = [
    BLUE,
    RED,
    RGBColor(0, 120, 60),
    RGBColor(120, 120, 120),
    RGBColor(190, 110, 0),
    RGBColor(120, 0, 140),
];

/// The plot cannot be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw a plot: {0}")]
pub struct DrawError(String);

/// A named line.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// The name, for the legend.
    pub name: String,
    /// The points, by rising x.
    pub points: Vec<(f64, f64)>,
}

/// Lines over two axes, which begin at 0 unless a point lies below it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart<'c> {
    /// The caption.
    pub title: &'c str,
    /// What x and y are.
    pub axes: [&'c str; 2],
    /// The lines.
    pub series: Vec<Series>,
}

impl Chart<'_> {
    /// Draws the chart as an SVG element.
    ///
    /// # Errors
    /// The library cannot draw it.
    pub fn draw(&self) -> Result<String, DrawError> {
        let mut svg = String::new();
        self.draw_on(SVGBackend::with_string(&mut svg, SIZE))
            .map_err(|error| DrawError(error.to_string()))?;
        Ok(svg)
    }

    fn draw_on<'b>(
        &self,
        backend: SVGBackend<'b>,
    ) -> Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let last = points().map(|(x, _)| *x).fold(f64::MIN_POSITIVE, f64::max);
        let top = points().map(|(_, y)| *y).fold(f64::NEG_INFINITY, f64::max);
        let bottom = points().map(|(_, y)| *y).fold(0.0, f64::min);
        // A line along the bottom needs some height above it.
        let top = if top > bottom { top.max(0.0) } else { bottom + 0.1 };
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, ("sans-serif", 16))
            .margin(8)
            .x_label_area_size(36)
            .y_label_area_size(46)
            .build_cartesian_2d(0.0..last, bottom..top)?;
        chart.configure_mesh().x_desc(self.axes[0]).y_desc(self.axes[1]).draw()?;
        for (series, colour) in self.series.iter().zip(COLOURS.into_iter().cycle()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thinned_curve_keeps_its_ends() {
        let curve: Vec<(f64, f64)> = (0..5_000).map(|at| (f64::from(at), 0.0)).collect();
        let thin: Vec<_> = thinned(&curve).collect();
        assert!(thin.len() <= MAX_POINTS + 1);
        assert_eq!((thin[0].0, thin.last().map(|point| point.0)), (0.0, Some(4_999.0)));
    }

    #[test]
    fn a_chart_of_any_values_can_be_drawn() {
        let drawn = |points: &[(f64, f64)]| {
            let series = Series { name: "a <line>".to_owned(), points: points.to_vec() };
            let chart = Chart { title: "values", axes: ["x", "y"], series: vec![series] };
            chart.draw().expect("a plot")
        };
        for points in [&[][..], &[(0.0, 0.0)], &[(0.0, -3.0), (50.0, -1.0)], &[(1.0, 42.0)]] {
            assert!(drawn(points).starts_with("<svg"), "{points:?}");
        }
        assert!(drawn(&[(0.0, 1.0)]).contains("a &lt;line&gt;"));
    }
}
