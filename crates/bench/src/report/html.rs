//! Makes the report as a single HTML file, which contains the text of the Markdown report, and plots.
//!
//! Invariant: the file loads nothing from the network, and runs no script.

use std::fmt::Write as _;

use anyhow::Result;
use pulldown_cmark::{CowStr, Event, Options, Parser, html};

use crate::report::Chapter;
use crate::report::plot::Plot;

const STYLE: &str = include_str!("report.css");

/// Returns the whole report as HTML.
pub fn page(introduction: &str, chapters: &[Chapter]) -> Result<String> {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>Dunlin: benchmarks</title>\
         <style>{STYLE}</style></head><body>\n<nav aria-label=\"Suites\">"
    );
    for Chapter { suite, .. } in chapters {
        let _ = write!(page, "<a href=\"#{suite}\">{suite}</a>");
    }
    let _ = write!(page, "</nav><main>\n{}", markdown_to_html(introduction));
    for Chapter { suite, markdown, plots, .. } in chapters {
        let _ = write!(page, "<section id=\"{suite}\">\n{}", markdown_to_html(markdown));
        for plot in plots {
            figure(&mut page, plot)?;
        }
        page.push_str("</section>\n");
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn figure(page: &mut String, plot: &Plot) -> Result<()> {
    let more =
        if plot.omitted > 0 { format!(" ({} more in the table)", plot.omitted) } else { String::new() };
    let _ = write!(
        page,
        "<figure><figcaption>{}{more}</figcaption>{}<ul>",
        escape_html(&plot.title),
        plot.svg()?
    );
    for (colour, name) in plot.legend() {
        let _ = write!(page, "<li style=\"--line: {colour}\">{}</li>", escape_html(&name));
    }
    page.push_str("</ul></figure>\n");
    Ok(())
}

fn escape_html(plain: &str) -> String {
    let mut out = String::new();
    html::push_html(&mut out, std::iter::once(Event::Text(plain.into())));
    out
}

/// Converts Markdown to HTML. Marks whether goals are met, so that missed goals stand out.
fn markdown_to_html(markdown: &str) -> String {
    let marked = Parser::new_ext(markdown, Options::ENABLE_TABLES).map(|event| match event {
        Event::Text(text) => match verdict(&text) {
            Some(class) => Event::InlineHtml(CowStr::from(format!("<b class=\"{class}\">{text}</b>"))),
            None => Event::Text(text),
        },
        // HTML tags in the Markdown are shown as text, because they may come from the file of a run.
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        other => other,
    });
    let mut out = String::new();
    html::push_html(&mut out, marked);
    // A wide table must scroll, also with the keyboard. Therefore each table is put into an element of its own.
    out.replace("<table>", "<div class=\"table\" tabindex=\"0\"><table>")
        .replace("</table>", "</table></div>")
}

fn verdict(text: &str) -> Option<&'static str> {
    match text {
        "✓" => Some("met"),
        "✗" => Some("missed"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_goal_is_marked_and_wide_table_scrolls() {
        let html = markdown_to_html("| a | b |\n|---|---|\n| put | ✗ |\n");
        assert!(html.contains("<b class=\"missed\">✗</b>"), "{html}");
        assert!(html.contains("<div class=\"table\" tabindex=\"0\"><table>"), "{html}");
    }

    #[test]
    fn html_in_the_text_of_a_run_is_escaped() {
        let html =
            markdown_to_html("   - failed: <script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n");
        assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
        assert!(html.contains("&lt;script&gt;"), "{html}");
    }
}
