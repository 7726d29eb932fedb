//! Charts as SVG. No background and middling colours, so that they can be read on light pages and dark ones.

use std::path::Path;

use plotters::prelude::*;

use crate::report::human;

/// Of text, axes and grid.
const INK: RGBColor = RGBColor(0x7d, 0x85, 0x90);
const COLOURS: [RGBColor; 4] = [
    RGBColor(0x2f, 0x81, 0xf7),
    RGBColor(0xdb, 0x6d, 0x28),
    RGBColor(0x2d, 0xa4, 0x4e),
    RGBColor(0xa3, 0x71, 0xf7),
];
const WIDTH: u32 = 860;
const FONT: (&str, u32) = ("sans-serif", 13);

/// One picture: panels beside and below one another.
pub struct Chart {
    /// Of the file.
    pub name: &'static str,
    pub title: &'static str,
    pub panels: Vec<Panel>,
    pub columns: usize,
}

pub enum Panel {
    Bars {
        title: String,
        unit: &'static str,
        bars: Vec<Bar>,
    },
    /// Something measured at growing sizes; sizes go by powers, what was measured begins at zero.
    Curves {
        title: String,
        sizes: String,
        unit: &'static str,
        curves: Vec<Curve>,
    },
}

pub struct Bar {
    name: String,
    value: f64,
    colour: RGBColor,
}

pub struct Curve {
    pub name: &'static str,
    pub points: Vec<(f64, f64)>,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

impl Bar {
    pub fn of(name: impl Into<String>, value: f64) -> Self {
        Self { name: name.into(), value, colour: COLOURS[0] }
    }

    /// What the others are measured by.
    pub fn raw(name: impl Into<String>, value: f64) -> Self {
        Self { colour: INK, ..Self::of(name, value) }
    }
}

impl Chart {
    pub fn draw(&self, folder: &Path) -> anyhow::Result<()> {
        let rows = self.panels.len().div_ceil(self.columns);
        let heights: Vec<u32> = self.panels.chunks(self.columns).map(height).collect();
        let path = folder.join(self.name).with_extension("svg");
        let all = SVGBackend::new(&path, (WIDTH, heights.iter().sum())).into_drawing_area();
        let mut below = all.clone();
        for (row, panels) in self.panels.chunks(self.columns).enumerate() {
            let area = match row + 1 < rows {
                true => {
                    let (area, rest) = below.split_vertically(heights[row]);
                    below = rest;
                    area
                }
                false => below.clone(),
            };
            for (panel, area) in panels.iter().zip(area.split_evenly((1, self.columns))) {
                panel.draw(&area)?;
            }
        }
        all.present()?;
        Ok(())
    }
}

/// Of a row of panels.
fn height(panels: &[Panel]) -> u32 {
    let of_one = |panel: &Panel| match panel {
        Panel::Bars { bars, .. } => 75 + 24 * bars.len() as u32,
        Panel::Curves { .. } => 260,
    };
    panels.iter().map(of_one).max().unwrap_or_default()
}

impl Panel {
    fn draw(&self, area: &Area<'_>) -> Drawn {
        match self {
            Self::Bars { title, unit, bars } => draw_bars(area, title, unit, bars),
            Self::Curves { title, sizes, unit, curves } => draw_curves(area, (title, sizes, unit), curves),
        }
    }
}

/// Lying, the first on top.
fn draw_bars(area: &Area<'_>, title: &str, unit: &'static str, bars: &[Bar]) -> Drawn {
    // The SVG's reader chooses the font, so this is an estimate.
    let label_px = bars.iter().map(|bar| bar.name.chars().count()).max().unwrap_or_default() as u32 * 7 + 12;
    let most = highest(bars.iter().map(|bar| bar.value));
    let count = bars.len();
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(70)
        .caption(title, (FONT.0, 15).into_font().color(&INK))
        .x_label_area_size(34)
        .y_label_area_size(label_px)
        .build_cartesian_2d(0.0..most, 0.0..count as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .axis_style(INK)
        .bold_line_style(INK.mix(0.25))
        .light_line_style(TRANSPARENT)
        .y_labels(0)
        .x_labels(6)
        .x_label_formatter(&|value| human(*value, unit))
        .label_style(FONT.into_font().color(&INK))
        .draw()?;
    let written = FONT.into_font().color(&INK);
    for (i, Bar { name, value, colour }) in bars.iter().enumerate() {
        let top = (count - i) as f64;
        chart.draw_series([Rectangle::new([(0.0, top - 0.85), (*value, top - 0.15)], colour.filled())])?;
        let middle = |value: f64| chart.backend_coord(&(value, top - 0.5));
        let (left, right) = (middle(0.0), middle(*value));
        let (x, y) = area.get_base_pixel();
        let at = |(px, py): (i32, i32), dx: i32| (px - x + dx, py - y - 6);
        area.draw_text(&human(*value, unit), &written, at(right, 5))?;
        area.draw_text(name, &written, at((x + 8, left.1), 0))?;
    }
    Ok(())
}

fn draw_curves(area: &Area<'_>, (title, sizes, unit): (&str, &str, &'static str), curves: &[Curve]) -> Drawn {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let smallest = points().map(|(size, _)| *size).fold(f64::INFINITY, f64::min);
    let largest = points().map(|(size, _)| *size).fold(smallest, f64::max);
    let most = highest(points().map(|(_, value)| *value));
    let mut chart = ChartBuilder::on(area)
        .margin(8)
        .margin_right(16)
        .caption(title, (FONT.0, 15).into_font().color(&INK))
        .x_label_area_size(44)
        .y_label_area_size(62)
        .build_cartesian_2d((smallest..largest.max(smallest * 1.01)).log_scale(), 0.0..most)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .axis_style(INK)
        .bold_line_style(INK.mix(0.25))
        .light_line_style(TRANSPARENT)
        .x_desc(sizes)
        .x_labels(5)
        .y_labels(5)
        .x_label_formatter(&|size| counted(*size))
        .y_label_formatter(&|value| human(*value, unit))
        .label_style(FONT.into_font().color(&INK))
        .axis_desc_style(FONT.into_font().color(&INK))
        .draw()?;
    for (curve, colour) in curves.iter().zip(COLOURS) {
        let points = || curve.points.iter().copied();
        chart
            .draw_series(LineSeries::new(points(), colour.stroke_width(2)))?
            .label(curve.name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 10, y + 4)], colour.filled()));
        chart.draw_series(points().map(|point| Circle::new(point, 3, colour.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .label_font(FONT.into_font().color(&INK))
        .border_style(TRANSPARENT)
        .draw()
}

/// A little above the highest.
fn highest(values: impl Iterator<Item = f64>) -> f64 {
    let most = values.fold(0.0, f64::max);
    if most > 0.0 { most * 1.1 } else { 1.0 }
}

/// A size, with its thousands kept together.
fn counted(size: f64) -> String {
    match size {
        size if size >= 1e6 => format!("{}M", size / 1e6),
        size if size >= 1e3 => format!("{}k", size / 1e3),
        size => format!("{size}"),
    }
}
