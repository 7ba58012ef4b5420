//! The lines of `ftbctl top`, from its model.
//!
//! Responsible for: what stands where. Not responsible for: the terminal.

use super::model::{Agents, Group, Model, Pane, Row};
use crate::text;
use core::time::Duration;
use ftb_client::Severity;
use ftb_client::json::state_word;
use ftb_proto::v1::MemberState;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

/// Lines of the conditions and their heading that a low terminal keeps at least.
const PANE_LINES_MIN: u16 = 3;
const FAINT: Style = Style::new().dim();
const STRONG: Style = Style::new().bold();
const BAD: Style = Style::new().fg(Color::Red);
const WARN: Style = Style::new().fg(Color::Yellow);
const HELP: &str = "q quit  tab other part  arrows scroll  / search  s sort";

/// The time, and how it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) now_ns: u64,
    pub(crate) utc: bool,
}

/// The whole screen.
pub(crate) fn draw(frame: &mut Frame<'_>, model: &Model, clock: Clock) {
    let head = head(model, clock);
    let head_lines = u16::try_from(head.len()).unwrap_or(u16::MAX);
    let conditions = conditions(model, clock);
    let wanted = u16::try_from(conditions.len()).unwrap_or(u16::MAX);
    let left = frame.area().height.saturating_sub(head_lines + 1);
    let height = wanted.clamp(PANE_LINES_MIN, (left / 2).max(PANE_LINES_MIN));
    let parts = [
        Constraint::Length(head_lines),
        Constraint::Length(height),
        Constraint::Fill(1),
        Constraint::Length(1),
    ];
    let [top, middle, rest, foot] = Layout::vertical(parts).areas(frame.area());
    show(frame, top, head, 0);
    show(frame, middle, conditions, model.offset(Pane::Conditions));
    show(frame, rest, events(model, clock), model.offset(Pane::Events));
    show(frame, foot, vec![foot_line(model)], 0);
}

/// The lines that fit; the first one, a heading, stays. What is too long ends with `…`.
fn show(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>, offset: usize) {
    let mut lines = lines.into_iter();
    let first = lines.next();
    let shown = first.into_iter().chain(lines.skip(offset)).take(area.height.into());
    let width = usize::from(area.width);
    let lines: Vec<Line<'static>> = shown.map(|line| cut(line, width)).collect();
    frame.render_widget(Paragraph::new(lines), area);
}

fn cut(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let mut left = width.saturating_sub(1);
    let mut spans = Vec::new();
    for span in line.spans {
        let (mut content, whole) = (String::new(), span.width());
        for c in span.content.chars() {
            let wide = Span::raw(c.to_string()).width();
            if wide > left {
                break;
            }
            left -= wide;
            content.push(c);
        }
        let is_cut = Span::raw(content.as_str()).width() < whole;
        spans.push(Span::styled(content, span.style));
        if is_cut {
            break;
        }
    }
    spans.push(Span::raw("…"));
    Line::from(spans)
}

/// One frame as text, whole.
pub(crate) fn text(model: &Model, clock: Clock) -> String {
    let parts = [head(model, clock), conditions(model, clock), events(model, clock)];
    let lines = parts.into_iter().flatten();
    lines.map(|line| format!("{}\n", line.to_string().trim_end())).collect()
}

fn head(model: &Model, clock: Clock) -> Vec<Line<'static>> {
    let place = match &model.place {
        Some((cluster, host)) => format!("cluster {cluster}, agent {host}"),
        None => "no answer of the agent yet".to_owned(),
    };
    let mut lines = vec![Line::from(vec![
        Span::styled("ftb  ", STRONG),
        Span::raw(place),
        Span::styled(format!("  {}", text::time(clock.now_ns, clock.utc)), FAINT),
    ])];
    if let Some(agents) = &model.agents {
        lines.extend(agent_lines(agents));
    }
    let rate = match model.rate() {
        None => "unknown".to_owned(),
        Some(rate) => format!("{rate:.1} events/s"),
    };
    lines.push(Line::from(vec![Span::styled("rate       ", FAINT), Span::raw(rate)]));
    for problem in model.problems() {
        lines.push(Line::styled(text::printable(problem), BAD));
    }
    lines.push(Line::raw(""));
    lines
}

fn agent_lines(agents: &Agents) -> Vec<Line<'static>> {
    let name = |host: &Option<String>| host.clone().unwrap_or_else(|| "none".to_owned());
    let view = if agents.is_complete { "" } else { "  (view of the local agent only)" };
    let roles = format!("{}, standby {}{view}", name(&agents.root), name(&agents.standby));
    let count = |(state, (count, _)): (&MemberState, &_)| format!("{count} {}", state_word(*state));
    let counts: Vec<String> = agents.states.iter().map(count).collect();
    let label = |text| Span::styled(text, FAINT);
    let mut lines = vec![
        Line::from(vec![label("root       "), Span::styled(roles, STRONG)]),
        Line::from(vec![label("agents     "), Span::raw(counts.join(", "))]),
    ];
    for (state, (_, hosts)) in agents.states.iter().filter(|(state, _)| is_bad(**state)) {
        let style = if *state == MemberState::Suspect { WARN } else { BAD };
        let word = format!("{:<11}", state_word(*state));
        lines.push(Line::from(vec![Span::styled(word, style), Span::raw(hosts.clone())]));
    }
    lines
}

fn is_bad(state: MemberState) -> bool {
    matches!(state, MemberState::Suspect | MemberState::Dead | MemberState::Lost)
}

fn heading(title: String, is_focused: bool) -> Line<'static> {
    Line::styled(title, if is_focused { STRONG.underlined() } else { FAINT.underlined() })
}

fn conditions(model: &Model, clock: Clock) -> Vec<Line<'static>> {
    let counts = model.counts();
    let counts: Vec<String> =
        counts.iter().map(|(severity, n)| format!("{severity} {n}")).collect();
    let counts = if counts.is_empty() { "none hold".to_owned() } else { counts.join(", ") };
    let title = format!("CONDITIONS: {counts} (by {})", model.order.word());
    let mut lines = vec![heading(title, model.pane == Pane::Conditions)];
    lines.extend(model.groups().into_iter().map(|group| group_line(group, clock)));
    if lines.len() == 1 {
        lines.push(Line::raw("no conditions"));
    }
    lines.push(Line::raw(""));
    lines
}

fn group_line(group: &Group, clock: Clock) -> Line<'static> {
    let (word, style) = match group.is_unknown {
        true => ("unknown", WARN),
        false => (group.severity.as_str(), style_of(group.severity)),
    };
    let age = text::duration(Duration::from_nanos(clock.now_ns.saturating_sub(group.onset_ns)));
    let component = match &group.component {
        Some(component) => component.clone(),
        None => "several components".to_owned(),
    };
    Line::from(vec![
        Span::styled(format!("{word:<8} "), style),
        Span::styled(format!("{:<18} ", group.key), STRONG),
        Span::styled(format!("{age:<8} "), FAINT),
        Span::raw(format!("{:>5}  {}  ", group.hosts.len(), group.folded)),
        Span::styled(component, FAINT),
    ])
}

fn events(model: &Model, clock: Clock) -> Vec<Line<'static>> {
    let filter = match text::printable(&model.filter) {
        all if all.is_empty() => "all".to_owned(),
        filter => filter,
    };
    let title = format!("NEWEST EVENTS: {filter}");
    let mut lines = vec![heading(title, model.pane == Pane::Events)];
    lines.extend(model.events().into_iter().map(|row| event_line(row, clock)));
    if lines.len() == 1 {
        lines.push(Line::raw("no events"));
    }
    lines
}

fn event_line(row: &Row, clock: Clock) -> Line<'static> {
    let Some(severity) = row.severity else {
        return Line::styled(row.details.clone(), BAD);
    };
    Line::from(vec![
        Span::styled(format!("{}  ", text::time(row.time_ns, clock.utc)), FAINT),
        Span::styled(format!("{severity:<8} "), style_of(severity)),
        Span::raw(format!("{:<10} ", row.host)),
        Span::styled(format!("{:<22} ", row.name), STRONG),
        Span::raw(row.details.clone()),
    ])
}

fn style_of(severity: Severity) -> Style {
    match severity {
        Severity::Info => Style::new(),
        Severity::Warning => WARN,
        Severity::Error | Severity::Fatal => BAD,
    }
}

fn foot_line(model: &Model) -> Line<'static> {
    match (model.is_typing, model.search.as_str()) {
        (true, search) => Line::raw(format!("/{search}▏  enter: keep, esc: none")),
        (false, "") => Line::styled(HELP, FAINT),
        (false, search) => Line::raw(format!("search {search:?} (esc: none)  {HELP}")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::top::model::tests::table;
    use crate::top::model::{Key, News};
    use ftb_proto::v1::{AgentRole, TreeNode, TreeReply};
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    const CLOCK: Clock = Clock { now_ns: 70_000_000_000, utc: true };

    fn model() -> Model {
        let mut model = Model::new("severity>=warning");
        let node = |rank, host: &str, state: MemberState, role: AgentRole| TreeNode {
            rank,
            host: host.to_owned(),
            state: state.into(),
            role: Some(role.into()),
            ..TreeNode::default()
        };
        let nodes = vec![
            node(0, "login", MemberState::Up, AgentRole::Root),
            node(1, "node01", MemberState::Up, AgentRole::Standby),
            node(2, "node02", MemberState::Suspect, AgentRole::Member),
            node(3, "node03", MemberState::Suspect, AgentRole::Member),
        ];
        model.on_news(0, News::Tree(TreeReply { nodes, complete: true }));
        model.on_news(0, table());
        model.refresh();
        model
    }

    fn screen(model: &Model, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, model, CLOCK)).unwrap();
        let rows = terminal.backend().to_string();
        rows.lines().map(|row| row.trim_matches('"').trim_end().to_owned()).collect()
    }

    #[test]
    fn a_frame_names_root_standby_suspects_and_folded_conditions() {
        let shown = text(&model(), CLOCK);
        for line in [
            "root       login, standby node01",
            "agents     2 up, 2 suspect",
            "suspect    node[02-03]",
            "CONDITIONS: FATAL 1, ERROR 2, WARNING 2 (by severity)",
            "ERROR    FANFAIL            1m 0s        2  node[01-02]  FAN 1",
            "NEWEST EVENTS: severity>=warning",
        ] {
            assert!(shown.lines().any(|other| other == line), "{line:?} is not in\n{shown}");
        }
    }

    #[test]
    fn every_size_of_a_terminal_has_a_frame() {
        let model = model();
        for (width, height) in [(1, 1), (10, 3), (40, 12), (200, 60)] {
            assert_eq!(screen(&model, width, height).len(), usize::from(height));
        }
        let narrow = screen(&model, 40, 24).join("\n");
        assert!(narrow.contains('…'), "what is cut shows it\n{narrow}");
        assert!(screen(&model, 100, 24).last().unwrap().starts_with("q quit"));
    }

    #[test]
    fn the_heading_stays_while_rows_scroll() {
        let mut model = model();
        (0..3).for_each(|_| assert!(!model.on_key(Key::Down)));
        model.refresh();
        let shown = screen(&model, 100, 24).join("\n");
        assert!(shown.contains("CONDITIONS:") && !shown.contains("NODE_DEAD"), "{shown}");
        assert!(shown.contains("unknown  FANFAIL"), "{shown}");
    }
}
