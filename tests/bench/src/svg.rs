//! Bars as SVG, readable on light and dark pages.

use crate::stats::Summary;
use crate::stats::thousands;
use std::fmt::Write as _;

/// One bar: a median, and a whisker from smallest to largest.
#[derive(Clone, Debug)]
pub(crate) struct Bar {
    /// In front of it.
    pub(crate) label: String,
    /// One of ours: it gets the strong colour.
    pub(crate) ours: bool,
    /// How long.
    pub(crate) value: Summary,
}

/// Pixels.
const ROW: f64 = 22.0;
const TOP: f64 = 34.0;
const LABELS: f64 = 330.0;
const BARS: f64 = 330.0;
const NUMBERS: f64 = 110.0;

/// A picture of horizontal bars.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar]) -> String {
    let (width, height) = (LABELS + BARS + NUMBERS, TOP + ROW * bars.len() as f64 + 8.0);
    let longest = bars.iter().map(|bar| bar.value.max).fold(f64::MIN_POSITIVE, f64::max);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
         height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
         <text x=\"8\" y=\"20\" font-size=\"14\" font-weight=\"bold\">{}, {}</text>\n",
        escape(title),
        escape(unit)
    );
    for (place, bar) in bars.iter().enumerate() {
        let top = TOP + ROW * place as f64;
        let length = |value: f64| (value / longest * BARS).max(0.5);
        let (end, low, high) =
            (length(bar.value.median), length(bar.value.min), length(bar.value.max));
        let colour = if bar.ours { "#0b6e4f" } else { "#9aa5b1" };
        let (middle, baseline) = (top + ROW / 2.0 - 2.0, top + ROW / 2.0 + 2.5);
        let _ = writeln!(
            text,
            "<text x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\">{}</text>\
             <rect x=\"{LABELS:.1}\" y=\"{top:.1}\" width=\"{end:.1}\" height=\"{:.1}\" \
             fill=\"{colour}\"/>\
             <path d=\"M{:.1} {middle:.1}H{:.1}\" stroke=\"#222222\"/>\
             <text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
            LABELS - 6.0,
            escape(&bar.label),
            ROW - 5.0,
            LABELS + low,
            LABELS + high,
            LABELS + high + 6.0,
            thousands(bar.value.median),
        );
    }
    text.push_str("</svg>\n");
    text
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_bar_fills_the_room_and_others_are_in_proportion() {
        let bar = |value| Bar {
            label: "a & b".to_owned(),
            ours: false,
            value: Summary { median: value, min: value, max: value, count: 1 },
        };
        let picture = bars("t", "u", &[bar(100.0), bar(50.0)]);
        assert!(picture.contains("width=\"330.0\"") && picture.contains("width=\"165.0\""));
        assert!(picture.contains("a &amp; b") && !picture.contains("a & b"));
    }
}
