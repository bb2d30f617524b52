//! The lines around the rows: what is in view, the filter, messages, keys.

use ratatui::{
    style::{Modifier, Style},
    text::{Line, Span},
};

use super::{Top, draw::REVERSED, keys::FOOT};
use crate::emit::{Sheet, fitted, width as width_of};

impl Top {
    /// The titles of sheets, and which rows and columns are in view.
    pub(super) fn tabs(&self, width: usize) -> Line<'_> {
        let mut spans = vec![Span::raw(" ")];
        let shown = self.sheet().map(Sheet::title);
        for sheet in self.shown().into_iter().flat_map(|window| &window.sheets) {
            let is_shown = Some(sheet.title()) == shown;
            let style = if is_shown { REVERSED } else { Style::new() };
            spans.push(Span::styled(format!(" {} ", sheet.title()), style));
        }
        let left: usize = spans.iter().map(Span::width).sum();
        let range = self.in_view.text();
        let gap = width.saturating_sub(left + width_of(&range) + 1);
        if gap > 0 {
            spans.push(Span::raw(" ".repeat(gap)));
            spans.push(Span::raw(range));
        }
        Line::from(spans)
    }

    /// The filter, and the newest message until a key is pressed.
    pub(super) fn status(&self, width: usize) -> Line<'_> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut spans = vec![Span::raw(" ")];
        if self.typing {
            spans.push(Span::styled(format!("/{}▏", self.filter), bold));
            spans.push(Span::raw(" (Enter keeps it, Esc ends it)  "));
        } else if !self.filter.is_empty() {
            spans.push(Span::styled(format!("only /{}", self.filter), bold));
            spans.push(Span::raw(" (Esc shows all)  "));
        }
        if let Some(message) = self.messages.back().filter(|_| self.unread) {
            let used: usize = spans.iter().map(Span::width).sum();
            let width_left = width.saturating_sub(used + 6).max(8);
            let text = fitted(&[message.as_str()], width_left).concat();
            spans.push(Span::raw(format!("{text} (n)")));
        }
        Line::from(spans)
    }

    /// The keys: as many as fit.
    pub(super) fn keys_line(width: usize) -> Line<'static> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let (mut spans, mut used) = (Vec::new(), 0);
        for (key, what) in FOOT {
            let texts = [if used == 0 { " " } else { "  " }, key, " ", what];
            used += texts.iter().map(|text| width_of(text)).sum::<usize>();
            if used > width {
                break;
            }
            let styles = [Style::new(), bold, Style::new(), Style::new()];
            spans.extend(
                texts
                    .into_iter()
                    .zip(styles)
                    .map(|(text, style)| Span::styled(text, style)),
            );
        }
        Line::from(spans)
    }
}
