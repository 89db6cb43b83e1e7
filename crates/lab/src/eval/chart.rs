//! Grouped bars as SVG: a group for each workload, a bar for each series.

use super::Row;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// The figure of some rows, with a legend.
///
/// # Errors
/// The drawing library's.
pub(crate) fn bars(title: &str, rows: &[&Row]) -> Result<String, String> {
    let mut svg = String::new();
    draw(&mut svg, title, rows).map_err(|why| format!("{title}: {why}"))?;
    Ok(svg)
}

fn names<'a>(rows: &[&'a Row], name: impl Fn(&'a Row) -> &'a str) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    for row in rows {
        let name = name(row);
        if !all.contains(&name) {
            all.push(name);
        }
    }
    all
}

/// Where a bar ends below zero. The interval of one that is above may reach below; it is cut off there.
fn lowest(row: &Row) -> f64 {
    match row.ours < 0.0 {
        true => row.ours - row.plus_minus.unwrap_or(0.0),
        false => 0.0,
    }
}

type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// A group's width is 1; bars leave this free at each side of it.
const MARGIN: f64 = 0.08;
/// Of its place, what a bar fills.
const FILLED: f64 = 0.92;

fn draw(svg: &mut String, title: &str, rows: &[&Row]) -> Drawn {
    let groups = names(rows, |row| &row.workload);
    let series = names(rows, |row| &row.series);
    let top = rows
        .iter()
        .map(|row| row.ours + row.plus_minus.unwrap_or(0.0))
        .fold(0.0, f64::max)
        .max(1e-3)
        * 1.1;
    let bottom = rows.iter().map(|row| lowest(row)).fold(0.0, f64::min) * 1.1;
    let root = SVGBackend::with_string(svg, (1000, 420)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(46)
        .y_label_area_size(60)
        .build_cartesian_2d(0.0..groups.len() as f64, bottom..top)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .disable_x_axis()
        .y_desc(rows.first().map_or("", |row| row.unit))
        .draw()?;
    let width = (1.0 - 2.0 * MARGIN) / series.len().max(1) as f64;
    for (number, name) in series.iter().enumerate() {
        let own = rows.iter().filter(|row| row.series == *name);
        let place = |row: &Row| {
            let group = groups.iter().position(|group| *group == row.workload);
            group.unwrap_or(0) as f64 + MARGIN + number as f64 * width
        };
        let placed: Vec<_> = own.map(|row| (place(row), *row)).collect();
        draw_series(&mut chart, name, number, &placed, (width * FILLED, bottom))?;
    }
    if bottom < 0.0 {
        let zero = [(0.0, 0.0), (groups.len() as f64, 0.0)];
        chart.draw_series(LineSeries::new(zero, BLACK))?;
    }
    for (number, group) in groups.iter().enumerate() {
        let place = chart.backend_coord(&(number as f64 + 0.5, bottom));
        let style = ("sans-serif", 13)
            .into_font()
            .color(&BLACK)
            .pos(Pos::new(HPos::Center, VPos::Top));
        root.draw_text(group, &style, (place.0, place.1 + 6))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()?;
    root.present()?;
    Ok(())
}

/// The bars of one series, each from its left end on, with their intervals.
fn draw_series(
    chart: &mut Chart<'_, '_>,
    name: &str,
    number: usize,
    placed: &[(f64, &Row)],
    (width, bottom): (f64, f64),
) -> Drawn {
    let color = Palette99::pick(number).to_rgba();
    let bars = placed
        .iter()
        .map(|(left, row)| Rectangle::new([(*left, 0.0), (left + width, row.ours)], color.filled()));
    chart
        .draw_series(bars)?
        .label(name)
        .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 10, y + 5)], color.filled()));
    let intervals = placed.iter().filter_map(|(left, row)| {
        let (is, wide) = (row.ours, row.plus_minus?);
        let low = (is - wide).max(bottom);
        Some(ErrorBar::new_vertical(
            left + width / 2.0,
            low,
            is,
            is + wide,
            BLACK,
            4,
        ))
    });
    chart.draw_series(intervals)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The top and the height of each bar, in pixels.
    fn drawn(numbers: &[f64]) -> Vec<(f64, f64)> {
        let row = |(number, &ours): (usize, &f64)| Row {
            artifact: "a test",
            series: "one".into(),
            workload: number.to_string(),
            paper: None,
            ours,
            plus_minus: Some(0.1),
            unit: "ratio",
            note: None,
        };
        let rows: Vec<Row> = numbers.iter().enumerate().map(row).collect();
        let svg = bars("bars", &rows.iter().collect::<Vec<_>>()).unwrap();
        let field = |rect: &str, name: &str| -> f64 {
            let after = rect.split_once(&format!(" {name}=\"")).unwrap().1;
            after.split_once('"').unwrap().0.parse().unwrap()
        };
        let color = "fill=\"#E6194B\"";
        let bars = svg.split("<rect").filter(|rect| rect.contains(color));
        let all: Vec<_> = bars.map(|bar| (field(bar, "y"), field(bar, "height"))).collect();
        // The last is the legend's.
        all[..numbers.len()].to_vec()
    }

    #[test]
    fn a_negative_number_is_a_bar_below_zero() {
        let [(up, high), (down, low)] = drawn(&[1.0, -0.5])[..] else {
            panic!("two bars");
        };
        assert!(
            (up + high - down).abs() <= 1.0,
            "one ends at zero, where the other begins"
        );
        assert!((high / low - 2.0).abs() < 0.05, "{high} and {low}");
        // Without one the axis begins at zero, whatever intervals reach below.
        let [(_, all), (_, little)] = drawn(&[1.0, 0.05])[..] else {
            panic!("two bars");
        };
        assert!((all / little - 20.0).abs() < 3.0, "{all} and {little}");
    }
}
