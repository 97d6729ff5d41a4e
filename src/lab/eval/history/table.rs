//! Makes the table of ways to keep and recall a history, on the same questions: figures, 95 %
//! intervals, and differences over a control.

use std::fmt::Write as _;

use serde::Serialize;
use turnstream_operators::history::HistoryConfig;
use turnstream_operators::history::similarity::Similarity;

use super::attending::Attending;
use super::evidence::{self, Measure, Outcomes};
use super::held::{Eviction, Method};
use super::material::Conversation;
use super::topics::{self, DEPTHS};
use super::{Capacity, Difference, difference};
use crate::eval::bootstrap::{Conversations, Figure, Mean};

/// The kept share of utterances in the tables with eviction.
const KEPT: f64 = 0.25;
/// The numbers of recalled utterances.
pub const K: [usize; 3] = [5, 10, 25];
/// The number of draws of random eviction; its figures are means over the draws.
const DRAWS: u64 = 5;

/// A named configuration to measure.
#[derive(Clone, Debug)]
pub struct Variant {
    /// The name in the table.
    pub name: String,
    /// The engine's configuration.
    pub config: HistoryConfig,
    /// The similarity of texts.
    pub similarity: Similarity,
    /// Whether questions are completed before the search.
    pub reconstruct: bool,
    /// Reorders the first recalled entries, if set.
    pub attending: Option<Attending>,
    /// The tables that show it.
    pub shown: Shown,
}

/// The tables that show a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// All tables.
    Everywhere,
    /// The table of recall, with the default method only.
    Recalled,
    /// The table of eviction.
    Kept,
}

impl Variant {
    fn keeps(&self) -> bool {
        self.shown != Shown::Recalled
    }

    /// Returns the methods to measure it with.
    fn methods(&self) -> &'static [Method] {
        match self.shown {
            Shown::Everywhere => &Method::ENGINE,
            Shown::Recalled => &Method::ENGINE[..1],
            Shown::Kept => &[],
        }
    }

    fn measure(&self, capacity: Capacity, eviction: Eviction, method: Method) -> Measure {
        Measure {
            config: self.config.clone(),
            similarity: self.similarity.clone(),
            reconstruct: self.reconstruct,
            attending: self.attending.clone(),
            k: K.to_vec(),
            capacity,
            eviction,
            method,
            seed: 1,
        }
    }
}

/// Ways measured on one data set.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HistorySection {
    /// The title.
    pub title: String,
    /// The numbers of conversations and questions, in words.
    pub about: String,
    /// The column heads of the figures.
    pub columns: Vec<String>,
    /// For each difference, the control and the figure.
    pub over: Vec<String>,
    /// One row per way.
    pub rows: Vec<Row>,
}

/// The row of a way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The way's name.
    pub name: String,
    /// The figures by column.
    pub figures: Vec<Figure>,
    /// The difference over each control; `None` for the control itself.
    pub over: Vec<Option<Difference>>,
}

/// A list of figures for each column, in the questions' order.
pub type Columns = Vec<Vec<f64>>;

/// Measures all methods with everything kept, over BM25 and over the default method; then all
/// evictions with a quarter kept, over random eviction.
pub fn of_evidence(
    data: &str,
    conversations: &[Conversation],
    variants: &[Variant],
    progress: &dyn Fn(),
) -> Vec<HistorySection> {
    let ask = |variant: &Variant, capacity, eviction, method, seed| {
        let measure = Measure { seed, ..variant.measure(capacity, eviction, method) };
        evidence::ask(&measure, conversations, progress)
    };
    let all = |variant, method| ask(variant, Capacity::All, Eviction::None, method, 1);
    let Some(first) = variants.first() else { return Vec::new() };
    let control = all(first, Method::Bm25);
    let drawn = control.drawn();
    let about = format!(
        "{} questions of {} conversations in `{data}`; {} more skipped, {} evidence ids name no turn",
        control.questions.len(),
        conversations.len(),
        control.skipped,
        control.malformed
    );
    let section = |title: &str, columns: &[&str], over: &[&str], rows| HistorySection {
        title: title.to_owned(),
        about: about.clone(),
        columns: columns.iter().map(|it| (*it).to_owned()).collect(),
        over: over.iter().map(|it| (*it).to_owned()).collect(),
        rows,
    };

    let theirs = recalls(&control);
    let default = recalls(&all(first, Method::ENGINE[0]));
    let over = |name: &str| {
        let controls = [("BM25", &theirs), (Method::ENGINE[0].name(), &default)];
        controls.map(|(control, of)| (control != name).then(|| of[1].clone()))
    };
    let mut rows = vec![row("BM25", &theirs, &over("BM25"), &drawn)];
    let latest = recalls(&all(first, Method::Recency));
    rows.push(row("latest first", &latest, &over("latest first"), &drawn));
    for variant in variants {
        for method in variant.methods().iter().copied() {
            let ours = recalls(&all(variant, method));
            let name = named(variant, method.name());
            rows.push(row(&name, &ours, &over(&name), &drawn));
        }
    }
    let title = "Everything kept";
    let columns = ["recall@5", "recall@10", "recall@25"];
    let over = ["recall@10 over BM25", "recall@10 over the default"];
    let kept = section(title, &columns, &over, rows);

    let held = |variant, eviction, seed| {
        let outcomes = ask(variant, Capacity::Share(KEPT), eviction, Method::ENGINE[0], seed);
        let survival = outcomes.figures_of(None);
        std::iter::once(survival).chain(recalls(&outcomes)).collect::<Columns>()
    };
    let draws: Vec<Columns> = (1..=DRAWS).map(|seed| held(first, Eviction::Random, seed)).collect();
    let random = mean_of(&draws);
    let mut rows = vec![row("random eviction", &random, &[None], &drawn)];
    let over = [Some(random[0].clone())];
    rows.push(row("recency only", &held(first, Eviction::Recency, 1), &over, &drawn));
    for variant in variants.iter().filter(|variant| variant.keeps()) {
        let ours = held(variant, Eviction::Rule, 1);
        rows.push(row(&named(variant, "rule"), &ours, &over, &drawn));
    }
    let columns = ["survival", "recall@5", "recall@10", "recall@25"];
    let quarter =
        section("A quarter of the utterances kept", &columns, &["survival over random"], rows);
    vec![kept, quarter]
}

/// Measures all methods on turns with topics, over the default method, on returns and on all turns.
pub fn of_topics(
    data: &str,
    conversations: &[Conversation],
    variants: &[Variant],
    progress: &dyn Fn(),
) -> Vec<HistorySection> {
    let ask = |variant: &Variant, method| {
        let measure = variant.measure(Capacity::All, Eviction::None, method);
        topics::ask(&measure, conversations, progress)
    };
    let Some(first) = variants.first() else { return Vec::new() };
    let control = ask(first, Method::ENGINE[0]);
    let returning: Vec<_> = control.iter().filter(|it| it.returns).cloned().collect();
    let about = format!(
        "{} turns of {} conversations in `{data}`, from the fourth of each on; {} return to a topic",
        control.len(),
        conversations.len(),
        returning.len()
    );
    let default = Method::ENGINE[0].name();
    let row = |name: &str, outcomes: &[topics::TopicOutcome]| {
        let measured = topics::measured(outcomes);
        let of = |figures: &topics::TopicFigures| {
            let figure = |depth: &usize| Figure {
                value: figures.precision.get(depth).copied(),
                interval: figures.intervals.get(depth).copied(),
            };
            DEPTHS.iter().map(figure).collect::<Vec<_>>()
        };
        let first = |outcomes: &[topics::TopicOutcome], returning: bool| -> Vec<f64> {
            let asked = outcomes.iter().filter(|it| !returning || it.returns);
            asked.map(|it| it.precision[0]).collect()
        };
        let over = |among: &[topics::TopicOutcome], returning| {
            let (ours, theirs) = (first(outcomes, returning), first(&control, returning));
            difference(&ours, &theirs, &topics::drawn(among)).filter(|_| name != default)
        };
        let figures = [of(&measured.topic_precision), of(&measured.on_return)].concat();
        Row {
            name: name.to_owned(),
            figures,
            over: vec![over(&control, false), over(&returning, true)],
        }
    };
    let mut rows = vec![row("latest first", &ask(first, Method::Recency))];
    rows.push(row("BM25", &ask(first, Method::Bm25)));
    for variant in variants {
        for method in variant.methods().iter().copied() {
            rows.push(row(&named(variant, method.name()), &ask(variant, method)));
        }
    }
    let columns = ["all @1", "all @3", "returns @1", "returns @3"];
    vec![HistorySection {
        title: "Share of recalled turns that have the turn's topic".to_owned(),
        about,
        columns: columns.map(str::to_owned).to_vec(),
        over: ["all @1 over the default", "returns @1 over the default"]
            .map(str::to_owned)
            .to_vec(),
        rows,
    }]
}

fn recalls(outcomes: &Outcomes) -> Columns {
    (0..K.len()).map(|at| outcomes.figures_of(Some(at))).collect()
}

fn named(variant: &Variant, way: &str) -> String {
    if variant.name.is_empty() { way.to_owned() } else { format!("{way}, {}", variant.name) }
}

/// Makes a row with its differences over the controls, in the compared column.
fn row(
    name: &str,
    columns: &[Vec<f64>],
    controls: &[Option<Vec<f64>>],
    drawn: &Conversations,
) -> Row {
    // The first column is survival if it is measured; otherwise recall at the middle K is compared.
    let compared = if columns.len() > K.len() { 0 } else { 1 };
    let figure = |values: &Vec<f64>| -> Figure {
        let parts: Vec<_> = values.iter().map(|value| Some(Mean::from(*value))).collect();
        drawn.figure(&parts, Mean::value).into()
    };
    let over = |control: &Option<Vec<f64>>| {
        control.as_ref().and_then(|control| difference(&columns[compared], control, drawn))
    };
    Row {
        name: name.to_owned(),
        figures: columns.iter().map(figure).collect(),
        over: controls.iter().map(over).collect(),
    }
}

/// Returns the mean over draws for each question.
pub fn mean_of(draws: &[Columns]) -> Columns {
    let mut means = draws.first().cloned().unwrap_or_default();
    for (column, values) in means.iter_mut().enumerate() {
        for (at, value) in values.iter_mut().enumerate() {
            *value = draws.iter().map(|draw| draw[column][at]).sum::<f64>() / draws.len() as f64;
        }
    }
    means
}

/// Formats the sections as Markdown.
pub fn markdown(sections: &[HistorySection]) -> String {
    let mut page = String::new();
    for HistorySection { title, about, columns, over, rows } in sections {
        // Writing to a string cannot fail.
        let _ = write!(page, "\n## {title}\n\n{about}.\n\n| way |");
        columns.iter().for_each(|column| page.push_str(&format!(" {column} |")));
        over.iter().for_each(|over| page.push_str(&format!(" {over} |")));
        let _ = writeln!(page, "\n|---|{}", "---|".repeat(columns.len() + over.len()));
        for Row { name, figures, over } in rows {
            let _ = write!(page, "| {} |", name.replace('|', "\\|"));
            for Figure { value, interval } in figures {
                let value = value.unwrap_or(0.0);
                let _ = match interval {
                    Some([low, high]) => write!(page, " {value:.3} [{low:.3}, {high:.3}] |"),
                    None => write!(page, " {value:.3} |"),
                };
            }
            for over in over {
                let _ = match over {
                    Some(Difference { by, interval: [low, high] }) => {
                        write!(page, " {by:+.3} [{low:+.3}, {high:+.3}] |")
                    }
                    None => write!(page, " – |"),
                };
            }
            page.push('\n');
        }
    }
    page
}
